/**
 * Bars and lines of the pool, as numbers: full is held. Pure.
 */
import { IGpu, IMoment } from './types';

export interface IPart {
  kind: 'mine' | 'others';
  /** Of the whole GPU, 0 to 1. */
  share: number;
  text: string;
}

/** What is held of a GPU, mine first. What nobody is named for counts as others'. */
export function partsOf(gpu: IGpu): IPart[] {
  const total = gpu.total_mib ?? 0;
  const held = heldShare(gpu);
  const known = gpu.holders.filter(holder => holder.mib !== null);
  const knownShare = total
    ? known.reduce((sum, holder) => sum + (holder.mib ?? 0), 0) / total
    : 0;
  const unknown = gpu.holders.length - known.length;
  const rest = Math.max(0, held - knownShare);
  const parts: IPart[] = gpu.holders.map(holder => ({
    kind: holder.mine ? 'mine' : 'others',
    share: holder.mib !== null && total ? holder.mib / total : rest / (unknown || 1),
    text: holder.text
  }));
  if (rest > 0.005 && !unknown) {
    parts.push({ kind: 'others', share: rest, text: '' });
  }
  return parts.sort((a, b) => Number(b.kind === 'mine') - Number(a.kind === 'mine'));
}

/** How much of a GPU is held, 0 to 1. */
export function heldShare(gpu: IGpu): number {
  if (gpu.total_mib && gpu.free_mib !== null) {
    return Math.min(1, Math.max(0, 1 - gpu.free_mib / gpu.total_mib));
  }
  return gpu.holders.length ? 1 : 0;
}

/** An SVG path of what was held, as steps, in a box of this size. */
export function historyPath(history: IMoment[], width: number, height: number): string {
  const first = history[0];
  const last = history[history.length - 1];
  if (!first || !last || last.at <= first.at) {
    return '';
  }
  const most = Math.max(1, ...history.map(moment => moment.total));
  const x = (moment: IMoment) =>
    round(((moment.at - first.at) / (last.at - first.at)) * width);
  const y = (moment: IMoment) =>
    round(height - (Math.min(moment.held, most) / most) * height);
  let path = `M0,${y(first)}`;
  for (const moment of history.slice(1)) {
    path += `H${x(moment)}V${y(moment)}`;
  }
  return path;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
