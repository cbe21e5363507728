import { IKernel, IPool, IState } from '../types';
import { IWords } from '../words';

/** Words as they are without a translation. */
export const plain: IWords = {
  __: (text, ...args) => fill(text, args),
  _n: (one, many, n, ...args) => fill(n === 1 ? one : many, args)
};

function fill(text: string, args: (string | number)[]): string {
  return text.replace(/%(\d)/g, (whole, number: string) =>
    String(args[Number(number) - 1] ?? whole)
  );
}

export const NOW = 1_764_212_345;

export function kernel(changes: Partial<IKernel> = {}): IKernel {
  return {
    id: 'k1',
    path: 'work/x.ipynb',
    title: 'x.ipynb',
    state: 'none',
    since: NOW,
    idle_since: null,
    request: { text: '1 GPU', gpus: 1 },
    asked_at: null,
    granted_at: null,
    queue: null,
    lease: null,
    ...changes
  };
}

export const HELD: Partial<IKernel> = {
  state: 'running',
  request: { text: '1 GPU × 50 %', gpus: 1, partial: 0.5 },
  asked_at: NOW - 730,
  granted_at: NOW - 725,
  lease: { devices: [], server: 'gpu:56001', simulated: false }
};

export function pool(changes: Partial<IPool> = {}): IPool {
  return {
    seen_at: NOW,
    error: null,
    servers: [],
    waiting: [],
    notes: [],
    simulated: false,
    text: null,
    history: [],
    ...changes
  };
}

export function state(changes: Partial<IState> = {}): IState {
  return {
    version: '0.1.0',
    now: NOW,
    pool: pool(),
    kernels: [],
    sizes: [],
    can_change: true,
    ...changes
  };
}
