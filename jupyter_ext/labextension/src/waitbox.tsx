import { ReactWidget } from '@jupyterlab/ui-components';
import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { IDisposable } from '@lumino/disposable';
import * as React from 'react';

import { IBitfusion } from './tokens';
import { IKernel } from './types';
import { clockText, placeText, sizeText, stopwatchText } from './words';
import { waitOf } from './waits';

/** What the kernel adds to the display of a cell that waits. */
export const MIME_TYPE = 'application/vnd.bitfusion.kernel-state+json';

/**
 * Shows a wait as it is now, in any browser and after a reload. A state that is not a wait
 * (that of `%bitfusion`) keeps its own text.
 */
export function waitBoxFactory(bitfusion: IBitfusion): IRenderMime.IRendererFactory {
  return {
    safe: true,
    mimeTypes: [MIME_TYPE],
    defaultRank: 10,
    createRenderer: () => new WaitBox(bitfusion)
  };
}

class WaitBox extends ReactWidget implements IRenderMime.IRenderer {
  constructor(private readonly bitfusion: IBitfusion) {
    super();
    this.addClass('bf-WaitBox');
    bitfusion.model.changed.connect(this.update, this);
    bitfusion.model.ticked.connect(this.update, this);
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const told: unknown = model.data[MIME_TYPE];
    const text: unknown = model.data['text/plain'];
    this._told = told as Partial<IKernel> | null;
    this._text = Array.isArray(text)
      ? text.join('')
      : typeof text === 'string'
        ? text
        : '';
    const id = this._told?.state === 'waiting' ? kernelIdOf(this._told) : null;
    this._shown?.dispose();
    this._shown = id ? this.bitfusion.model.show() : null;
    this.update();
    return this.renderPromise ?? Promise.resolve();
  }

  override dispose(): void {
    this._shown?.dispose();
    this._shown = null;
    super.dispose();
  }

  protected render(): React.ReactElement {
    const { actions, model, trans } = this.bitfusion;
    const told = this._told;
    const id = told ? kernelIdOf(told) : null;
    if (!told || told.state !== 'waiting' || !model.state || !id) {
      return <pre className="bf-Text">{this._text}</pre>;
    }
    const now = model.now();
    const wait = waitOf(told, model.kernel(id));
    const asked = told.asked_at ?? told.since ?? now;
    const size = told.request ? sizeText(told.request, trans) : trans.__('a GPU');
    if (wait.kind !== 'waits') {
      const line =
        wait.kind === 'granted'
          ? trans.__(
              'Waited for %1 from %2 to %3.',
              size,
              clockText(asked, now),
              clockText(wait.at, now)
            )
          : trans.__(
              'Waited for %1 from %2. This wait is over.',
              size,
              clockText(asked, now)
            );
      return (
        <div className="bf-Wait bf-mod-over" role="status">
          {line}
        </div>
      );
    }
    const { kernel } = wait;
    const names = (title: string, list: string[] | undefined) =>
      list?.length ? (
        <div>
          {title} {list.join(', ')}
        </div>
      ) : null;
    return (
      <div className="bf-Wait" role="status">
        <div className="bf-Wait-head">
          <b>
            {trans.__('Waiting for %1', size)} · {placeText(kernel, trans)} ·{' '}
          </b>
          <b aria-hidden="true">{stopwatchText(now - asked)}</b>
          {model.canChange && (
            <button className="bf-Button" onClick={() => void actions.cancel(id)}>
              {trans.__('Cancel the Wait')}
            </button>
          )}
        </div>
        {names(trans.__('Held by:'), kernel.queue?.held_by)}
        {names(trans.__('Before you in the queue:'), kernel.queue?.before)}
        {kernel.queue?.why && <div>{kernel.queue.why}</div>}
        <div>{trans.__('Asked for at %1.', clockText(asked, now))}</div>
      </div>
    );
  }

  private _told: Partial<IKernel> | null = null;
  private _text = '';
  private _shown: IDisposable | null = null;
}

function kernelIdOf(told: Partial<IKernel>): string | null {
  const id = (told as { kernel_id?: unknown }).kernel_id ?? told.id;
  return typeof id === 'string' ? id : null;
}
