import { ISignal, Signal } from '@lumino/signaling';

/** How long an act that loses something can be taken back. */
export const GRACE_MS = 5_000;

interface IPending {
  text: string;
  timer: number;
  decide: (isDone: boolean) => void;
}

/**
 * Acts that lose something begin some seconds late, and can be taken back until then. One for each
 * kernel: a second one takes the first one's place. Who leaves the page has decided.
 */
export class Grace {
  constructor(private readonly ms = GRACE_MS) {
    window.addEventListener('pagehide', () => this.begin());
  }

  /** An act is about to begin, has begun, or was taken back. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** What is about to be done with a kernel, in words; null: nothing. */
  pending(kernelId: string | null): string | null {
    return this._pending.get(kernelId ?? '')?.text ?? null;
  }

  /** True when the time is over, false if it was taken back. */
  wait(kernelId: string, text: string): Promise<boolean> {
    this.takeBack(kernelId);
    return new Promise(decide => {
      const timer = window.setTimeout(() => this._end(kernelId, true), this.ms);
      this._pending.set(kernelId, { text, timer, decide });
      this._changed.emit();
    });
  }

  takeBack(kernelId: string): void {
    this._end(kernelId, false);
  }

  /** All that is about to be done begins now. */
  begin(): void {
    for (const kernelId of [...this._pending.keys()]) {
      this._end(kernelId, true);
    }
  }

  private _end(kernelId: string, isDone: boolean): void {
    const pending = this._pending.get(kernelId);
    if (pending) {
      window.clearTimeout(pending.timer);
      this._pending.delete(kernelId);
      pending.decide(isDone);
      this._changed.emit();
    }
  }

  private readonly _pending = new Map<string, IPending>();
  private readonly _changed = new Signal<this, void>(this);
}
