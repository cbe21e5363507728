import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { Api } from './api';
import { ApiError } from './errors';
import { Model } from './model';
import { IKernel, ISize, IVerbAnswer } from './types';
import { holds, sizeText } from './words';

type TranslationBundle = IRenderMime.TranslationBundle;

const JUST_MS = 15_000;

/** What a person does with a kernel. Each asks first where something would be lost. */
export class Actions {
  constructor(
    private readonly api: Api,
    private readonly model: Model,
    private readonly trans: TranslationBundle
  ) {}

  /** Take a size. True unless it was called off or refused. */
  async request(kernelId: string, size: ISize): Promise<boolean> {
    const { trans } = this;
    const kernel = this.model.kernel(kernelId);
    const text = sizeText(size, trans);
    const holding = kernel !== null && holds(kernel);
    const waiting = kernel?.state === 'waiting';
    if (holding) {
      const sure = await this.confirm(
        trans.__('Change the size to %1?', text),
        trans.__(
          'The kernel starts anew on %1, and the variables of this notebook are lost. If the size cannot be had soon, the kernel keeps the GPU that it has.',
          text
        ),
        trans.__('Change the Size')
      );
      if (!sure) {
        return false;
      }
    } else if (waiting) {
      const sure = await this.confirm(
        trans.__('Wait for %1 instead?', text),
        trans.__('The cell asks anew for %1, and its place in the queue is lost.', text),
        trans.__('Ask Anew'),
        false
      );
      if (!sure) {
        return false;
      }
    }
    return this.tell(kernelId, () =>
      this.api.request(kernelId, size, holding || waiting)
    );
  }

  acquire(kernelId: string): Promise<boolean> {
    return this.tell(kernelId, () => this.api.tell(kernelId, 'acquire'));
  }

  async release(kernelId: string, ask = true): Promise<boolean> {
    const kernel = this.model.kernel(kernelId);
    if (ask && !(await this.isSureToRelease(kernel))) {
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

  private isSureToRelease(kernel: IKernel | null): Promise<boolean> {
    const { trans } = this;
    const body = [
      trans.__("The GPU goes back to the pool; the notebook's variables are lost.")
    ];
    if (kernel?.state === 'running') {
      body.push(trans.__('A cell is running: it runs to its end first.'));
    }
    return this.confirm(
      kernel?.request
        ? trans.__('Release %1?', sizeText(kernel.request, trans))
        : trans.__('Release the GPU?'),
      body.join('\n'),
      trans.__('Release')
    );
  }

  private async confirm(
    title: string,
    body: string,
    label: string,
    warn = true
  ): Promise<boolean> {
    const { trans } = this;
    const accept = warn ? Dialog.warnButton({ label }) : Dialog.okButton({ label });
    const result = await showDialog({
      title,
      body,
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), accept],
      defaultButton: 1
    });
    return result.button.accept;
  }

  private async tell(
    kernelId: string,
    ask: () => Promise<IVerbAnswer>
  ): Promise<boolean> {
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
