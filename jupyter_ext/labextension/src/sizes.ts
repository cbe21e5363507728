/**
 * Sizes: as a notebook remembers them, and how many of one are free now. Pure.
 */
import { IKernel, IPool, IRequest, ISize } from './types';

/** The key in a notebook's metadata. */
export const METADATA_KEY = 'bitfusion';

/** A size from metadata that anybody may have written; null if it is none. */
export function savedSize(metadata: unknown): ISize | null {
  const saved = (metadata ?? {}) as Partial<Record<keyof ISize, unknown>>;
  if (typeof saved !== 'object' || Array.isArray(saved)) {
    return null;
  }
  const gpus = saved.gpus ?? 1;
  const partial = saved.partial ?? null;
  const memory = saved.memory_mib ?? null;
  const whole = (value: unknown): value is number =>
    typeof value === 'number' && Number.isInteger(value) && value >= 1;
  if (saved.gpus === undefined && partial === null && memory === null) {
    return null;
  }
  if (!whole(gpus) || (memory !== null && !whole(memory))) {
    return null;
  }
  if (
    partial !== null &&
    (typeof partial !== 'number' || !(partial > 0 && partial <= 1))
  ) {
    return null;
  }
  if (partial !== null && memory !== null) {
    return null;
  }
  return { gpus, partial, memory_mib: memory };
}

export function sameSize(
  one: ISize | IRequest | null,
  other: ISize | IRequest | null
): boolean {
  if (!one || !other) {
    return one === other;
  }
  return (
    one.gpus === other.gpus &&
    (one.memory_mib ?? null) === (other.memory_mib ?? null) &&
    Math.abs(shareOf(one) - shareOf(other)) < 1e-6
  );
}

function shareOf(size: ISize | IRequest): number {
  return size.partial ?? 1;
}

/** What is saved and worth an offer: another size than the kernel asks for or holds. */
export function offeredSize(metadata: unknown, kernel: IKernel | null): ISize | null {
  const saved = savedSize(metadata);
  if (!saved || !kernel || kernel.state !== 'none') {
    return null;
  }
  return sameSize(saved, kernel.request) ? null : saved;
}

/** How many leases of a size the pool has free; null if it does not say. */
export function freeNow(pool: IPool | null, size: ISize): number | null {
  if (!pool || pool.error || !pool.servers.length) {
    return null;
  }
  let free = 0;
  for (const server of pool.servers) {
    let onServer = 0;
    for (const gpu of server.gpus) {
      if (gpu.free_mib === null || gpu.total_mib === null) {
        return null;
      }
      const needed = size.memory_mib ?? Math.floor(gpu.total_mib * (size.partial ?? 1));
      // several GPUs of one lease are different GPUs
      const places = needed ? Math.floor(gpu.free_mib / needed) : 0;
      onServer += size.gpus > 1 ? Math.min(places, 1) : places;
    }
    free += Math.floor(onServer / size.gpus);
  }
  return free;
}

/** The most GPUs that one server has, and the most memory of one GPU: the ends of the sliders. */
export function largest(pool: IPool | null): { gpus: number; mib: number } {
  let gpus = 0;
  let mib = 0;
  for (const server of pool?.servers ?? []) {
    gpus = Math.max(gpus, server.gpus.length);
    for (const gpu of server.gpus) {
      mib = Math.max(mib, gpu.total_mib ?? 0);
    }
  }
  return { gpus: gpus || 8, mib: mib || 16 * 1024 };
}
