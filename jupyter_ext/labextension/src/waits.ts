/**
 * What has become of a wait that a cell shows. Pure.
 */
import { IKernel } from './types';

export type Wait =
  | { kind: 'waits'; kernel: IKernel }
  | { kind: 'granted'; at: number; starts: boolean }
  | { kind: 'over' }
  | { kind: 'gone' };

/**
 * `told`: the state that the cell has kept. `kernel`: what that kernel is now, null if it is not here,
 * as of `asOf`. A cell that waits may know of it before the page does.
 */
export function waitOf(
  told: Partial<IKernel>,
  kernel: IKernel | null,
  asOf: number
): Wait {
  const isNews = (told.since ?? 0) > (kernel?.since ?? asOf);
  const now = isNews ? (told as IKernel) : kernel;
  if (!now) {
    return { kind: 'gone' };
  }
  const isSame =
    typeof now.asked_at === 'number' &&
    Math.abs(now.asked_at - (told.asked_at ?? now.asked_at)) < 1;
  if (isSame && now.state === 'waiting') {
    // after a restart it is another cell that waits, in the same place
    const isSameCell = now.since === (told.since ?? now.since);
    return isSameCell ? { kind: 'waits', kernel: now } : { kind: 'over' };
  }
  return isSame && typeof now.granted_at === 'number'
    ? { kind: 'granted', at: now.granted_at, starts: now.state === 'starting' }
    : { kind: 'over' };
}
