/**
 * What has become of a wait that a cell shows. Pure.
 */
import { IKernel } from './types';

export type Wait =
  { kind: 'waits'; kernel: IKernel } | { kind: 'granted'; at: number } | { kind: 'over' };

/** `told`: the state that the cell has kept; `kernel`: what that kernel is now, null if it is gone. */
export function waitOf(
  told: Pick<Partial<IKernel>, 'asked_at'>,
  kernel: IKernel | null
): Wait {
  const isSame =
    kernel !== null &&
    kernel.asked_at !== null &&
    Math.abs(kernel.asked_at - (told.asked_at ?? kernel.asked_at)) < 1;
  if (!kernel || !isSame) {
    return { kind: 'over' };
  }
  if (kernel.state === 'waiting') {
    return { kind: 'waits', kernel };
  }
  return kernel.granted_at === null
    ? { kind: 'over' }
    : { kind: 'granted', at: kernel.granted_at };
}
