import { waitOf } from '../waits';
import { NOW, kernel } from './samples';

const told = kernel({ state: 'waiting', asked_at: NOW });
const later = { asked_at: NOW, since: NOW + 60 };

test('a wait that goes on is told as the kernel is now', () => {
  const queue = { of: 'pool' as const, position: 1, length: 2 };
  const others = { held_by: [], before: [], why: null };
  const now = { ...told, queue: { ...queue, ...others } };
  expect(waitOf(told, now, NOW + 99)).toEqual({ kind: 'waits', kernel: now });
});

test('one that has ended well says when', () => {
  const now = kernel({ ...later, state: 'idle', granted_at: NOW + 60 });
  const granted = { kind: 'granted', at: NOW + 60, starts: false };
  expect(waitOf(told, now, NOW + 99)).toEqual(granted);
  const starts = { ...now, state: 'starting' as const };
  expect(waitOf(told, starts, NOW + 99)).toEqual({ ...granted, starts: true });
});

test('a kernel that is not here may wait elsewhere', () => {
  expect(waitOf(told, null, NOW + 99)).toEqual({ kind: 'gone' });
});

test.each([
  ['it was called off', kernel()],
  ['a cell after a restart waits', kernel({ ...told, since: NOW + 0.6 })],
  ['another cell waits', kernel({ state: 'waiting', asked_at: NOW + 500 })]
])('it is over where %s', (_, now) => {
  expect(waitOf(told, now, NOW + 999)).toEqual({ kind: 'over' });
});

test.each([
  ['has not heard of the kernel', null],
  ['knows it from before', kernel({ since: NOW - 60 })]
])('the cell is right where the page %s', (_, known) => {
  expect(waitOf(told, known, NOW - 10)).toEqual({ kind: 'waits', kernel: told });
});
