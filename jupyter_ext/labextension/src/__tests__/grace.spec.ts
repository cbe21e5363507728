import { Grace } from '../grace';

beforeEach(() => jest.useFakeTimers());
afterEach(() => jest.useRealTimers());

test('an act begins when its time is over', async () => {
  const grace = new Grace(5000);
  const seen: (string | null)[] = [];
  grace.changed.connect(() => seen.push(grace.pending('k')));
  const left = grace.wait('k', 'about to go');
  jest.advanceTimersByTime(4999);
  expect(grace.pending('k')).toBe('about to go');
  jest.advanceTimersByTime(1);
  expect(await left).toBe(true);
  expect(seen).toEqual(['about to go', null]);
});

test('it can be taken back, and another one takes its place', async () => {
  const grace = new Grace(5000);
  const first = grace.wait('k', 'first');
  const other = grace.wait('another', 'of another kernel');
  const second = grace.wait('k', 'second');
  expect(await first).toBe(false);
  expect(grace.pending('k')).toBe('second');
  grace.takeBack('k');
  jest.advanceTimersByTime(5000);
  expect(await second).toBe(false);
  expect(await other).toBe(true);
});

test('who leaves the page has decided', async () => {
  const left = new Grace(5000).wait('k', 'about to go');
  window.dispatchEvent(new Event('pagehide'));
  expect(await left).toBe(true);
});
