/**
 * What is said of sizes, times and kernels. Pure.
 */
import { IKernel, IPool, ISize } from './types';

/** The part of JupyterLab's TranslationBundle that is used here. */
export interface IWords {
  __(text: string, ...args: (string | number)[]): string;
  _n(one: string, many: string, n: number, ...args: (string | number)[]): string;
}

const FRACTIONS: [number, string][] = [
  [1 / 4, '¼'],
  [1 / 3, '⅓'],
  [1 / 2, '½'],
  [2 / 3, '⅔'],
  [3 / 4, '¾']
];

/** `½ GPU`, `2 × 30 % GPU`, `2 GPUs`, `8 GiB`. */
export function sizeText(size: Partial<ISize>, trans: IWords): string {
  const gpus = size.gpus ?? 1;
  const times = gpus > 1 ? `${gpus} × ` : '';
  if (size.memory_mib) {
    return `${times}${memoryText(size.memory_mib)}`;
  }
  const partial = size.partial ?? 1;
  if (partial >= 1) {
    return trans._n('%1 GPU', '%1 GPUs', gpus, gpus);
  }
  return trans.__('%1 GPU', `${times}${shareText(partial)}`);
}

/** `½`, `30 %`. */
export function shareText(share: number): string {
  const found = FRACTIONS.find(([value]) => Math.abs(value - share) < 0.006);
  return found ? found[1] : `${Math.round(share * 100)} %`;
}

/** `512 MiB`, `8 GiB`, `7.9 GiB`. */
export function memoryText(mib: number): string {
  if (mib < 1024) {
    return `${Math.round(mib)} MiB`;
  }
  return `${Number((mib / 1024).toFixed(1))} GiB`;
}

/** How long something has lasted, roughly: `40 s`, `12 min`, `3 h 5 min`, `2 d 4 h`. */
export function durationText(seconds: number, trans: IWords): string {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  if (whole < 60) {
    return trans.__('%1 s', whole);
  }
  if (hours < 1) {
    return trans.__('%1 min', minutes);
  }
  if (hours < 24) {
    return minutes % 60
      ? trans.__('%1 h %2 min', hours, minutes % 60)
      : trans.__('%1 h', hours);
  }
  return trans.__('%1 d %2 h', Math.floor(hours / 24), hours % 24);
}

/** How long a wait has lasted, to the second: `0:07`, `1:40`, `1:02:03`. */
export function stopwatchText(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (number: number) => String(number).padStart(2, '0');
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  return hours
    ? `${hours}:${two(minutes % 60)}:${two(whole % 60)}`
    : `${minutes}:${two(whole % 60)}`;
}

/** A time of day where the reader is; with its date if that is another. */
export function clockText(at: number, now: number): string {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString([], {
    hour: '2-digit',
    minute: '2-digit'
  });
  const sameDay = date.toDateString() === new Date(now * 1000).toDateString();
  return sameDay ? time : `${date.toLocaleDateString()} ${time}`;
}

/** Whether it holds GPUs now, whatever else it waits for. */
export function holds(kernel: IKernel): boolean {
  return kernel.lease !== null && kernel.state !== 'none';
}

/** What another size costs a kernel now; empty: nothing. */
export function costOfChange(kernel: IKernel | null, trans: IWords): string {
  if (kernel && holds(kernel)) {
    return trans.__('variables are lost');
  }
  return kernel?.state === 'waiting' ? trans.__('the position in the queue is lost') : '';
}

/** The same as a sentence. */
export function costSentence(kernel: IKernel | null, trans: IWords): string {
  if (kernel && holds(kernel)) {
    return trans.__('Changing the size restarts the kernel: its variables are lost.');
  }
  return kernel?.state === 'waiting'
    ? trans.__(
        'Changing the size makes a new request: the position in the queue is lost.'
      )
    : '';
}

/** `queue 2 of 3`, `in the queue`. */
export function placeText(kernel: IKernel, trans: IWords): string {
  const queue = kernel.queue;
  if (!queue || queue.position === null) {
    return trans.__('waiting for a GPU');
  }
  return queue.length === null
    ? trans.__('queue %1', queue.position)
    : trans.__('queue %1 of %2', queue.position, queue.length);
}

/** Who waits for what this kernel holds: of the pool, where the kernel itself does not know. */
export function waitersOf(kernel: IKernel, pool: IPool | null): number {
  return kernel.waited_for_by?.length ?? pool?.waiting.length ?? 0;
}

/** Seconds of a time that is not looked at each second would only jump. */
function lasted(seconds: number, trans: IWords): string {
  return seconds < 60 ? '' : durationText(seconds, trans);
}

/** What a chip says in a narrow notebook. */
export function shortChipText(kernel: IKernel, now: number, trans: IWords): string {
  const queue = kernel.queue;
  switch (kernel.state) {
    case 'none':
      return trans.__('no GPU');
    case 'releasing':
      return trans.__('releasing');
    case 'waiting':
      return [
        queue?.position && queue.length
          ? trans.__('%1 of %2', queue.position, queue.length)
          : trans.__('waits'),
        stopwatchText(now - (kernel.asked_at ?? kernel.since))
      ].join(' · ');
    default:
      return chipText(kernel, null, now, trans).split(' · ').slice(0, 2).join(' · ');
  }
}

/** The text of the chip beside the kernel's name. */
export function chipText(
  kernel: IKernel,
  pool: IPool | null,
  now: number,
  trans: IWords
): string {
  const size = kernel.request ? sizeText(kernel.request, trans) : '';
  const parts: string[] = [];
  switch (kernel.state) {
    case 'none':
      return trans.__('no GPU: the next cell takes one');
    case 'releasing':
      return trans.__('releasing the GPU');
    case 'waiting':
      parts.push(placeText(kernel, trans));
      parts.push(stopwatchText(now - (kernel.asked_at ?? kernel.since)));
      break;
    case 'starting':
      parts.push(size, trans.__('starting'));
      break;
    case 'parked':
      parts.push(size, trans.__('kept during the restart'));
      break;
    case 'idle': {
      const idle = lasted(now - (kernel.idle_since ?? kernel.since), trans);
      parts.push(size, idle ? trans.__('idle %1', idle) : trans.__('idle'));
      break;
    }
    default:
      parts.push(size, lasted(now - (kernel.granted_at ?? kernel.since), trans));
  }
  if (kernel.state !== 'waiting') {
    const waiters = waitersOf(kernel, pool);
    if (waiters) {
      parts.push(trans._n('%1 waits', '%1 wait', waiters, waiters));
    }
  }
  if (kernel.lease?.simulated) {
    parts.push(trans.__('simulated'));
  }
  return parts.filter(Boolean).join(' · ');
}

/** The same in sentences, for tooltips and screen readers. */
export function chipDetails(
  kernel: IKernel,
  pool: IPool | null,
  now: number,
  trans: IWords
): string {
  const size = kernel.request ? sizeText(kernel.request, trans) : trans.__('a GPU');
  const lines: string[] = [];
  switch (kernel.state) {
    case 'none':
      lines.push(
        trans.__('This notebook holds no GPU. The next cell requests %1.', size)
      );
      break;
    case 'waiting':
      lines.push(trans.__('Waiting for %1: %2.', size, placeText(kernel, trans)));
      if (kernel.queue?.held_by.length) {
        lines.push(trans.__('Held by: %1', kernel.queue.held_by.join(', ')));
      }
      if (kernel.queue?.why) {
        lines.push(kernel.queue.why);
      }
      break;
    case 'releasing':
      lines.push(trans.__('The GPU is being returned to the pool.'));
      break;
    default:
      lines.push(
        trans.__(
          'Has held %1 since %2.',
          size,
          clockText(kernel.granted_at ?? kernel.since, now)
        )
      );
      for (const device of kernel.lease?.devices ?? []) {
        lines.push(deviceText(device.name, device.id, device.server));
      }
      if (kernel.idle_since !== null) {
        lines.push(
          trans.__('No code has run since %1.', clockText(kernel.idle_since, now))
        );
      }
      if (waitersOf(kernel, pool)) {
        const waiters = waitersOf(kernel, pool);
        lines.push(
          trans._n(
            '%1 request is waiting for a GPU.',
            '%1 requests are waiting for a GPU.',
            waiters,
            waiters
          )
        );
      }
  }
  if (kernel.idle_release_at) {
    lines.push(
      trans.__(
        'Will be released at %1 unless code runs before then.',
        clockText(kernel.idle_release_at, now)
      )
    );
  }
  if (kernel.lease?.simulated) {
    lines.push(trans.__('The GPU is simulated: the CPU computes.'));
  }
  return lines.join('\n');
}

export function deviceText(
  name: string | null,
  id: number | string | null,
  server: string | null
): string {
  const number = id === null ? '' : `GPU ${id}`;
  return [number, name, server].filter(Boolean).join(' · ');
}
