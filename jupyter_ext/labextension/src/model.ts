import { IDisposable, DisposableDelegate } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { ApiError } from './errors';
import { ChangedEvent, IKernel, IPool, IState } from './types';

/** Where the model gets the state from. */
export interface IStateSource {
  state(): Promise<IState>;
}

/** As often as the server looks at the pool while nobody waits; what changes is told by events. */
const IDLE_INTERVAL_MS = 15_000;
const LONGEST_INTERVAL_MS = 120_000;
const FEW_POOL_EVENTS_MS = 1_000;
const FRESH_MS = 2_000;

/**
 * What all views of a page show. It asks the server only while a view is to be seen;
 * between the questions it follows the server's events.
 */
export class Model implements IDisposable {
  constructor(source: IStateSource, intervalMs = IDLE_INTERVAL_MS) {
    this._source = source;
    this._poll = new Poll({
      auto: false,
      name: 'kubeflow-bitfusion:state',
      factory: () => this._ask(),
      frequency: {
        interval: Math.max(intervalMs, IDLE_INTERVAL_MS),
        backoff: true,
        max: LONGEST_INTERVAL_MS
      },
      standby: () => !this.isShown
    });
    document.addEventListener('visibilitychange', this._onVisibility);
  }

  /** Something that is shown has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Time has passed that is shown: each second while a kernel waits. */
  get ticked(): ISignal<this, void> {
    return this._ticked;
  }

  get state(): IState | null {
    return this._state;
  }

  get pool(): IPool | null {
    return this._state?.pool ?? null;
  }

  get kernels(): IKernel[] {
    return this._state?.kernels ?? [];
  }

  /** Why the server does not answer; null if it does. */
  get error(): ApiError | null {
    return this._error;
  }

  /** Whether this server has no such extension: then everything stays quiet. */
  get isMissing(): boolean {
    return this._error?.code === 'missing';
  }

  get canChange(): boolean {
    return this._state?.can_change ?? false;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Whether anybody sees what the model knows. */
  get isShown(): boolean {
    return this._views > 0 && !document.hidden && !this.isMissing;
  }

  /** The server's clock, in seconds since the epoch. */
  now(): number {
    return Date.now() / 1000 + this._ahead;
  }

  kernel(id: string | null | undefined): IKernel | null {
    return this.kernels.find(kernel => kernel.id === id) ?? null;
  }

  /** A view is to be seen, until what is returned is disposed of. What it shows is as of now. */
  show(): IDisposable {
    this._views += 1;
    if (Date.now() - this._askedAt > FRESH_MS) {
      void this.refresh();
    }
    this._setTimer();
    return new DisposableDelegate(() => {
      this._views -= 1;
      this._setTimer();
    });
  }

  /** Ask now; resolved when the answer is there, whatever it is. */
  async refresh(): Promise<void> {
    if (this._isDisposed || this.isMissing) {
      return;
    }
    this._views += 1; // a poll that stands by would not ask
    try {
      await this._poll.refresh();
      await this._poll.tick.catch(() => undefined);
    } finally {
      this._views -= 1;
    }
  }

  /** One event of the server. */
  take(event: ChangedEvent): void {
    if (event.what === 'pool') {
      this._askSoon();
    } else if (event.what === 'kernel') {
      this.put(event.kernel_id, event.state);
    }
  }

  /** A kernel as it is now; null: it is gone. */
  put(id: string, kernel: IKernel | null): void {
    this._meanwhile?.push([id, kernel]);
    if (!this._state) {
      return;
    }
    const others = this._state.kernels.filter(each => each.id !== id);
    const old = this.kernel(id);
    // an event may tell the published state alone
    const merged = kernel && { ...old, ...kernel, id };
    const kernels = merged ? [...others, merged] : others;
    kernels.sort((a, b) => a.id.localeCompare(b.id));
    this._state = { ...this._state, kernels };
    this.announce();
  }

  /** Have all views look again. */
  announce(): void {
    this._setTimer();
    this._changed.emit();
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    document.removeEventListener('visibilitychange', this._onVisibility);
    window.clearInterval(this._timer);
    window.clearTimeout(this._soon);
    this._poll.dispose();
    Signal.clearData(this);
  }

  private async _ask(): Promise<void> {
    this._askedAt = Date.now();
    const meanwhile: [string, IKernel | null][] = (this._meanwhile = []);
    try {
      this._state = await this._source.state();
      this._ahead = this._state.now - Date.now() / 1000;
      this._error = null;
      this._meanwhile = null;
      // the answer may be from before these; what is newer than both is still to come
      meanwhile.forEach(([id, kernel]) => this.put(id, kernel));
    } catch (error) {
      this._meanwhile = null;
      this._error =
        error instanceof ApiError ? error : new ApiError('internal', String(error));
      if (!this.isMissing) {
        this.announce();
        throw error; // the poll asks less often then
      }
    }
    this.announce();
  }

  private _askSoon(): void {
    if (!this._soon && this.isShown) {
      this._soon = window.setTimeout(() => {
        this._soon = 0;
        void this.refresh();
      }, FEW_POOL_EVENTS_MS);
    }
  }

  private _setTimer(): void {
    const waits = this.kernels.some(kernel => kernel.state === 'waiting');
    const period = !this.isShown ? 0 : waits ? 1_000 : 15_000;
    if (period !== this._period) {
      window.clearInterval(this._timer);
      this._period = period;
      this._timer = period ? window.setInterval(() => this._ticked.emit(), period) : 0;
    }
  }

  private _onVisibility = (): void => {
    if (this.isShown) {
      void this.refresh();
    }
    this._setTimer();
  };

  private readonly _source: IStateSource;
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _ticked = new Signal<this, void>(this);
  private _state: IState | null = null;
  /** What was put while the server answers. */
  private _meanwhile: [string, IKernel | null][] | null = null;
  private _error: ApiError | null = null;
  private _ahead = 0;
  private _askedAt = 0;
  private _views = 0;
  private _timer = 0;
  private _period = 0;
  private _soon = 0;
  private _isDisposed = false;
}
