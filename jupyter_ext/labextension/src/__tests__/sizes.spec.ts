import { IGpu } from '../types';
import { freeNow, largest, offeredSize, sameSize, savedSize } from '../sizes';
import { HELD, kernel, pool } from './samples';

const half = { gpus: 1, partial: 0.5, memory_mib: null };

test.each([
  [{ gpus: 1, partial: 0.5 }, half],
  [{ partial: 0.5 }, half],
  [{ gpus: 2 }, { gpus: 2, partial: null, memory_mib: null }],
  [{ memory_mib: 8192 }, { gpus: 1, partial: null, memory_mib: 8192 }]
])('metadata %j is a size', (metadata, size) => {
  expect(savedSize(metadata)).toEqual(size);
});

test.each([
  undefined,
  null,
  {},
  [],
  'half',
  { gpus: 0 },
  { gpus: 1.5 },
  { gpus: '1' },
  { partial: 2 },
  { partial: -1 },
  { partial: '0.5; rm -rf' },
  { partial: 0.5, memory_mib: 8192 },
  { memory_mib: NaN }
])('metadata %j is no size', metadata => {
  expect(savedSize(metadata)).toBeNull();
});

test('a whole GPU is one GPU, however it is said', () => {
  const request = { text: '1 GPU', gpus: 1 };
  expect(sameSize({ gpus: 1, partial: 1, memory_mib: null }, request)).toBe(true);
  expect(sameSize(half, request)).toBe(false);
  expect(sameSize(null, request)).toBe(false);
});

test('a saved size is offered where it is another one and nothing is held', () => {
  expect(offeredSize({ partial: 0.5 }, kernel())).toEqual(half);
  expect(offeredSize({ gpus: 1 }, kernel())).toBeNull();
  expect(offeredSize({ gpus: 2 }, kernel(HELD))).toBeNull();
  expect(offeredSize({ gpus: 2 }, null)).toBeNull();
});

function gpu(free: number | null): IGpu {
  return {
    index: 0,
    name: null,
    simulated: false,
    free_mib: free,
    total_mib: 16000,
    holders: [],
    notes: []
  };
}

test('GPUs of one lease are different ones of one server', () => {
  const servers = [
    { address: 'a', gpus: [gpu(16000), gpu(8000)] },
    { address: 'b', gpus: [gpu(16000)] }
  ];
  const whole = { gpus: 1, partial: null, memory_mib: null };
  expect(freeNow(pool({ servers }), half)).toBe(5);
  expect(freeNow(pool({ servers }), whole)).toBe(2);
  expect(freeNow(pool({ servers }), { ...half, gpus: 2 })).toBe(1);
  expect(freeNow(pool({ servers }), { ...whole, gpus: 2 })).toBe(0);
  expect(freeNow(pool({ servers }), { ...whole, memory_mib: 4000 })).toBe(10);
});

test('what a pool does not say is not known', () => {
  expect(freeNow(null, half)).toBeNull();
  expect(freeNow(pool(), half)).toBeNull();
  const servers = [{ address: 'a', gpus: [gpu(null)] }];
  expect(freeNow(pool({ servers }), half)).toBeNull();
  expect(largest(pool({ servers }))).toEqual({ gpus: 1, mib: 16000 });
  expect(largest(null)).toEqual({ gpus: 8, mib: 16384 });
});
