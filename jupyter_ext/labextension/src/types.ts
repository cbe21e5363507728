/**
 * What the server extension answers. Times are seconds since the epoch; fields may be added.
 */

export interface IHolder {
  text: string;
  mine: boolean;
  mib: number | null;
}

export interface IGpu {
  index: number;
  name: string | null;
  simulated: boolean;
  free_mib: number | null;
  total_mib: number | null;
  holders: IHolder[];
  notes: string[];
}

export interface IServer {
  address: string;
  gpus: IGpu[];
}

export interface IWaiting {
  text: string;
  mine: boolean;
}

export interface IMoment {
  at: number;
  held: number;
  total: number;
  waiting: number;
}

export interface IErrorAnswer {
  code: string;
  message: string;
  next_step: string;
}

export interface IPool {
  seen_at: number | null;
  error: IErrorAnswer | null;
  servers: IServer[];
  waiting: IWaiting[];
  notes: string[];
  simulated: boolean;
  text: string | null;
  history: IMoment[];
}

/** A size as it is asked for. */
export interface ISize {
  gpus: number;
  partial: number | null;
  memory_mib: number | null;
}

/** A size that is offered. */
export interface IOfferedSize extends ISize {
  label: string;
  words: string;
  free_now: number | null;
  note: string;
  possible: boolean;
}

export interface IRequest {
  text: string;
  gpus: number;
  partial?: number | null;
  memory_mib?: number | null;
}

export interface IQueue {
  of: 'pool' | 'pod';
  position: number | null;
  length: number | null;
  held_by: string[];
  before: string[];
  why: string | null;
}

export interface IDevice {
  id: number | string | null;
  name: string | null;
  memory_mib: number | null;
  total_mib: number | null;
  server: string | null;
  simulated: boolean;
}

export interface ILease {
  devices: IDevice[];
  server: string | null;
  simulated: boolean;
}

export type KernelPhase =
  'none' | 'waiting' | 'starting' | 'running' | 'idle' | 'parked' | 'releasing';

/** A kernel's published state (docs/kernel-state.schema.json), and where Jupyter has it. */
export interface IKernel {
  id: string;
  path: string | null;
  title: string;
  state: KernelPhase;
  since: number;
  idle_since: number | null;
  request: IRequest | null;
  asked_at: number | null;
  granted_at: number | null;
  queue: IQueue | null;
  lease: ILease | null;
  waited_for_by?: string[] | null;
  idle_release_at?: number | null;
}

export interface IState {
  version: string;
  now: number;
  pool: IPool;
  kernels: IKernel[];
  sizes: IOfferedSize[];
  can_change: boolean;
}

/** What is asked of a kernel, as the last part of the address. */
export type Verb = 'request' | 'acquire' | 'release' | 'cancel' | 'keep';

export interface IVerbAnswer {
  message: string;
  kernel: IKernel | null;
}

export type NoticeKind =
  | 'someone_waits'
  | 'idle_release_soon'
  | 'granted'
  | 'lease_ended'
  | 'pool_lost'
  | 'pool_back';

export const EVENT_SCHEMA = 'https://kubeflow-bitfusion.io/events/changed/v1';

export type ChangedEvent =
  | { what: 'kernel'; kernel_id: string; state: IKernel | null }
  | { what: 'pool' }
  | {
      what: 'notice';
      kind: NoticeKind;
      kernel_id: string | null;
      message: string;
    };
