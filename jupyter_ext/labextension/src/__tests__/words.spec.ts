import { IKernel, IQueue } from '../types';
import {
  chipDetails,
  chipText,
  durationText,
  memoryText,
  shortChipText,
  sizeText,
  stopwatchText
} from '../words';
import { HELD, NOW, kernel, plain, pool } from './samples';

const queue: IQueue = {
  of: 'pool',
  position: 2,
  length: 3,
  held_by: ['grace'],
  before: ['alan'],
  why: null
};
const waiting: Partial<IKernel> = { state: 'waiting', asked_at: NOW - 100, queue };
const others = pool({
  waiting: [
    { text: 'a', mine: false },
    { text: 'b', mine: false }
  ]
});

test.each([
  [{ gpus: 1 }, '1 GPU'],
  [{ gpus: 2, partial: 1 }, '2 GPUs'],
  [{ gpus: 1, partial: 0.5 }, '½ GPU'],
  [{ gpus: 2, partial: 0.25 }, '2 × ¼ GPU'],
  [{ gpus: 1, partial: 0.3 }, '30 % GPU'],
  [{ gpus: 1, memory_mib: 8192 }, '8 GiB'],
  [{ gpus: 2, memory_mib: 512 }, '2 × 512 MiB']
])('the size %j is %s', (size, text) => {
  expect(sizeText(size, plain)).toBe(text);
});

test.each([
  [0, '0 s'],
  [59.9, '59 s'],
  [720, '12 min'],
  [3600, '1 h'],
  [11100, '3 h 5 min'],
  [187200, '2 d 4 h'],
  [-5, '0 s']
])('%d seconds are %s', (seconds, text) => {
  expect(durationText(seconds, plain)).toBe(text);
});

test.each([
  [7, '0:07'],
  [100, '1:40'],
  [3723, '1:02:03']
])('a wait of %d seconds is %s', (seconds, text) => {
  expect(stopwatchText(seconds)).toBe(text);
});

test.each([
  [512, '512 MiB'],
  [8192, '8 GiB'],
  [8080, '7.9 GiB']
])('%d MiB are %s', (mib, text) => {
  expect(memoryText(mib)).toBe(text);
});

test.each<[Partial<IKernel>, string, string]>([
  [{}, 'no GPU: the next cell takes one', 'no GPU'],
  [waiting, 'queue 2 of 3 · 1:40', '2 of 3 · 1:40'],
  [{ ...waiting, queue: null }, 'waiting for a GPU · 1:40', 'waits · 1:40'],
  [HELD, '½ GPU · 12 min · 2 wait', '½ GPU · 12 min'],
  [{ ...HELD, waited_for_by: ['a'] }, '½ GPU · 12 min · 1 waits', '½ GPU · 12 min'],
  [{ ...HELD, waited_for_by: [] }, '½ GPU · 12 min', '½ GPU · 12 min'],
  [
    { ...HELD, state: 'idle', idle_since: NOW - 300 },
    '½ GPU · idle 5 min · 2 wait',
    '½ GPU · idle 5 min'
  ],
  [
    {
      ...HELD,
      lease: { devices: [], server: null, simulated: true },
      waited_for_by: []
    },
    '½ GPU · 12 min · simulated',
    '½ GPU · 12 min'
  ],
  [{ ...HELD, granted_at: NOW - 5, waited_for_by: [] }, '½ GPU', '½ GPU'],
  [
    { ...HELD, state: 'idle', idle_since: NOW - 5, waited_for_by: [] },
    '½ GPU · idle',
    '½ GPU · idle'
  ],
  [{ ...HELD, state: 'releasing' }, 'releasing the GPU', 'releasing']
])('the chip of %j', (changes, text, short) => {
  expect(chipText(kernel(changes), others, NOW, plain)).toBe(text);
  expect(shortChipText(kernel(changes), NOW, plain)).toBe(short);
});

test('the details name who holds what is waited for', () => {
  const details = chipDetails(kernel(waiting), null, NOW, plain);
  expect(details).toContain('Waiting for 1 GPU: queue 2 of 3.');
  expect(details).toContain('Held by: grace');
});

test('the details say that a simulated GPU is none', () => {
  const lease = { devices: [], server: null, simulated: true };
  const details = chipDetails(kernel({ ...HELD, lease }), null, NOW, plain);
  expect(details).toContain('The GPU is simulated: the CPU computes.');
});
