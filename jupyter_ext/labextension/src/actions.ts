import { Notification } from '@jupyterlab/apputils';
import { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { Api } from './api';
import { ApiError } from './errors';
import { GRACE_MS, Grace } from './grace';
import { Model } from './model';
import { sameSize } from './sizes';
import { ISize, IVerbAnswer } from './types';
import { holds, sizeText } from './words';

type TranslationBundle = IRenderMime.TranslationBundle;

const JUST_MS = 15_000;

/**
 * What a person does with a kernel. One click does it; what loses something says what, and can be
 * taken back for some seconds.
 */
export class Actions {
  constructor(
    private readonly api: Api,
    private readonly model: Model,
    private readonly trans: TranslationBundle
  ) {}

  readonly grace = new Grace();

  /** Take a size. True unless it was taken back or refused. */
  async request(kernelId: string, size: ISize): Promise<boolean> {
    const { trans } = this;
    const kernel = this.model.kernel(kernelId);
    const text = sizeText(size, trans);
    const isHolding = kernel !== null && holds(kernel);
    const isWaiting = kernel?.state === 'waiting';
    if ((isHolding || isWaiting) && sameSize(size, kernel.request)) {
      this.grace.takeBack(kernelId);
      Notification.info(trans.__('The size is already %1.', text), { autoClose: 4000 });
      return false;
    }
    const isSure = isHolding
      ? await this.isLeft(
          kernelId,
          trans.__('about to change to %1', text),
          trans.__('The kernel will restart with %1: its variables will be lost.', text)
        )
      : !isWaiting ||
        (await this.isLeft(
          kernelId,
          trans.__('about to request %1', text),
          trans.__(
            'The cell will request %1 instead: its position in the queue will be lost.',
            text
          )
        ));
    return (
      isSure &&
      this.tell(kernelId, () => this.api.request(kernelId, size, isHolding || isWaiting))
    );
  }

  acquire(kernelId: string): Promise<boolean> {
    return this.tell(kernelId, () => this.api.tell(kernelId, 'acquire'));
  }

  /** Give it back; `atOnce`: somebody has been asked already. */
  async release(kernelId: string, atOnce = false): Promise<boolean> {
    const { trans } = this;
    const kernel = this.model.kernel(kernelId);
    const text = kernel?.request ? sizeText(kernel.request, trans) : trans.__('The GPU');
    const isSure =
      atOnce ||
      (await this.isLeft(
        kernelId,
        trans.__('about to be released'),
        kernel?.state === 'running'
          ? trans.__(
              '%1 will be released when the cell has finished: variables will be lost.',
              text
            )
          : trans.__('%1 will return to the pool: variables will be lost.', text)
      ));
    if (!isSure) {
      return false;
    }
    this.releasedAt.set(kernelId, Date.now());
    return this.tell(kernelId, () => this.api.tell(kernelId, 'release'));
  }

  cancel(kernelId: string): Promise<boolean> {
    return this.tell(kernelId, () => this.api.tell(kernelId, 'cancel'));
  }

  keep(kernelId: string): Promise<boolean> {
    return this.tell(kernelId, () => this.api.tell(kernelId, 'keep'));
  }

  /** Whether it was given back from this page, just now: then nobody need be told. */
  hasJustReleased(kernelId: string | null): boolean {
    const at = this.releasedAt.get(kernelId ?? '');
    return at !== undefined && Date.now() - at < JUST_MS;
  }

  /** Whether it was not taken back, in the chip's menu or in this notification. */
  private async isLeft(
    kernelId: string,
    about: string,
    message: string
  ): Promise<boolean> {
    const { trans } = this;
    const title = this.model.kernel(kernelId)?.title;
    const seconds = Math.round(GRACE_MS / 1000);
    const left = this.grace.wait(kernelId, about);
    const id = Notification.warning(
      [title ? `${title}: ${message}` : message, trans.__('In %1 s.', seconds)].join(' '),
      {
        autoClose: false,
        actions: [
          {
            label: trans.__('Undo'),
            displayType: 'accent',
            callback: () => this.grace.takeBack(kernelId)
          }
        ]
      }
    );
    const isLeft = await left;
    Notification.dismiss(id);
    return isLeft;
  }

  private async tell(
    kernelId: string,
    ask: () => Promise<IVerbAnswer>
  ): Promise<boolean> {
    this.grace.takeBack(kernelId); // it was decided otherwise
    try {
      const answer = await ask();
      if (answer.kernel) {
        this.model.put(kernelId, answer.kernel);
      }
      Notification.info(answer.message, { autoClose: 4000 });
      return true;
    } catch (error) {
      Notification.error(error instanceof ApiError ? error.text : String(error), {
        autoClose: 10000
      });
      return false;
    }
  }

  private readonly releasedAt = new Map<string, number>();
}
