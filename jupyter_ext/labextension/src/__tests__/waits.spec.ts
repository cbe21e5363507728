import { waitOf } from '../waits';
import { NOW, kernel } from './samples';

const told = { asked_at: NOW };

test('a wait that goes on is told as the kernel is now', () => {
  const now = kernel({ state: 'waiting', asked_at: NOW });
  expect(waitOf(told, now)).toEqual({ kind: 'waits', kernel: now });
});

test('one that has ended well says when', () => {
  const now = kernel({ state: 'idle', asked_at: NOW, granted_at: NOW + 60 });
  expect(waitOf(told, now)).toEqual({ kind: 'granted', at: NOW + 60, starts: false });
  const starts = { ...now, state: 'starting' as const };
  expect(waitOf(told, starts)).toEqual({ kind: 'granted', at: NOW + 60, starts: true });
});

test('a kernel that is not here may wait elsewhere', () => {
  expect(waitOf(told, null)).toEqual({ kind: 'gone' });
});

test.each([
  ['it was called off', kernel()],
  ['another cell waits', kernel({ state: 'waiting', asked_at: NOW + 500 })]
])('it is over where %s', (_, now) => {
  expect(waitOf(told, now)).toEqual({ kind: 'over' });
});
