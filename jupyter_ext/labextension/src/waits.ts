/**
 * What has become of a wait that a cell shows. Pure.
 */
import { IKernel } from './types';

export type Wait =
  | { kind: 'waits'; kernel: IKernel }
  | { kind: 'granted'; at: number; starts: boolean }
  | { kind: 'over' }
  | { kind: 'gone' };

/** `told`: the state that the cell has kept; `kernel`: what that kernel is now, null if it is not here. */
export function waitOf(
  told: Pick<Partial<IKernel>, 'asked_at'>,
  kernel: IKernel | null
): Wait {
  if (!kernel) {
    return { kind: 'gone' };
  }
  const isSame =
    kernel.asked_at !== null &&
    Math.abs(kernel.asked_at - (told.asked_at ?? kernel.asked_at)) < 1;
  if (isSame && kernel.state === 'waiting') {
    return { kind: 'waits', kernel };
  }
  return isSame && kernel.granted_at !== null
    ? { kind: 'granted', at: kernel.granted_at, starts: kernel.state === 'starting' }
    : { kind: 'over' };
}
