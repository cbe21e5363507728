import { ApiError } from '../errors';
import { Model } from '../model';
import { IState } from '../types';
import { HELD, kernel, state } from './samples';

let asked = 0;
let answer: () => IState;
let model: Model;

beforeEach(() => {
  asked = 0;
  answer = () => state({ kernels: [kernel()] });
  model = new Model({
    state: () => {
      asked += 1;
      return Promise.resolve().then(answer);
    }
  });
});

afterEach(() => {
  model.dispose();
  jest.useRealTimers();
});

function settle(): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, 20));
}

test('nothing is asked until something is shown', async () => {
  await settle();
  expect(asked).toBe(0);
  model.show();
  await settle();
  expect(asked).toBe(1);
  model.show();
  await settle();
  expect(asked).toBe(1);
});

test('an event changes one kernel without a question', async () => {
  await model.refresh();
  let changes = 0;
  model.changed.connect(() => (changes += 1));
  model.take({ what: 'kernel', kernel_id: 'k1', state: kernel(HELD) });
  expect(model.kernel('k1')?.state).toBe('running');
  expect(model.kernel('k1')?.title).toBe('x.ipynb');
  model.take({ what: 'kernel', kernel_id: 'k1', state: null });
  expect(model.kernels).toEqual([]);
  expect([changes, asked]).toEqual([2, 1]);
});

test.each([0, 1])(
  'what events tell while the server answers stays, after %d answers',
  async answers => {
    for (let each = 0; each < answers; each++) {
      await model.refresh();
    }
    answer = () => {
      model.take({ what: 'kernel', kernel_id: 'k1', state: kernel(HELD) });
      model.take({ what: 'kernel', kernel_id: 'k2', state: null });
      return state({ kernels: [kernel(), kernel({ id: 'k2' })] });
    };
    await model.refresh();
    expect(model.kernels.map(each => [each.id, each.state])).toEqual([['k1', 'running']]);
    answer = () => state({ kernels: [kernel()] });
    await model.refresh();
    expect(model.kernel('k1')?.state).toBe('none'); // this answer is newer
  }
);

test('a pool that has changed is asked for once, and only where it is shown', async () => {
  model.take({ what: 'pool' });
  jest.useFakeTimers();
  await jest.advanceTimersByTimeAsync(5_000);
  expect(asked).toBe(0);
  const shown = model.show();
  await jest.advanceTimersByTimeAsync(100);
  model.take({ what: 'pool' });
  model.take({ what: 'pool' });
  await jest.advanceTimersByTimeAsync(1_500);
  expect(asked).toBe(2);
  shown.dispose();
  await jest.advanceTimersByTimeAsync(60_000);
  expect(asked).toBe(2);
});

test('a view that is opened later shows what is now', async () => {
  jest.useFakeTimers();
  model.show();
  await jest.advanceTimersByTimeAsync(4_000);
  model.show();
  await jest.advanceTimersByTimeAsync(100);
  expect(asked).toBe(2);
});

test('an open page asks once in 15 s, a hidden one never', async () => {
  jest.useFakeTimers();
  const hide = (hidden: boolean): void => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  };
  model.show();
  await jest.advanceTimersByTimeAsync(600_500);
  expect(asked).toBe(41);
  hide(true);
  model.take({ what: 'pool' });
  model.take({ what: 'kernel', kernel_id: 'k1', state: kernel(HELD) });
  await jest.advanceTimersByTimeAsync(600_000);
  expect(asked).toBe(41);
  hide(false);
  await jest.advanceTimersByTimeAsync(1_000);
  expect(asked).toBe(42);
});

test('a server without the extension is asked once', async () => {
  answer = () => {
    throw new ApiError('missing', 'Not Found');
  };
  model.show();
  await settle();
  await model.refresh();
  model.show();
  await settle();
  expect([asked, model.isMissing]).toEqual([1, true]);
});

test('what was known stays while the server does not answer', async () => {
  await model.refresh();
  answer = () => {
    throw new ApiError('out_of_reach', 'no route');
  };
  await model.refresh();
  expect(model.error?.code).toBe('out_of_reach');
  expect(model.kernels).toHaveLength(1);
  answer = () => state();
  await model.refresh();
  expect(model.error).toBeNull();
});
