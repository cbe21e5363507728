import { ReactWidget } from '@jupyterlab/ui-components';
import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { IDisposable } from '@lumino/disposable';
import * as React from 'react';

import { IBitfusion } from './tokens';
import { IKernel } from './types';
import { clockText, durationText, placeText, sizeText, stopwatchText } from './words';
import { Wait, waitOf } from './waits';

/** What the kernel adds to the display of a cell that waits. */
export const MIME_TYPE = 'application/vnd.bitfusion.kernel-state+json';

/**
 * Shows a wait as it is now, in any browser and after a reload. The state behind `%bitfusion`, whose text
 * stands before it, is for programs: nothing is shown of it.
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
    if (this._wait()) {
      this._shown ??= this.bitfusion.model.show(); // the kernel updates it each second
    } else {
      this._shown?.dispose();
      this._shown = null;
    }
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
    const shown = this._wait();
    if (!this._text) {
      return <></>;
    }
    if (!shown || !model.state) {
      return <pre className="bf-Text">{this._text}</pre>;
    }
    const { told, id } = shown;
    const now = model.now();
    const wait = waitOf(told, model.kernel(id), model.state.now);
    const asked = told.asked_at ?? told.since ?? now;
    const size = told.request ? sizeText(told.request, trans) : trans.__('a GPU');
    if (wait.kind !== 'waits') {
      return (
        <div className="bf-Wait bf-mod-over" role="status">
          {overText(wait, size, asked, now, trans)}
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
        {kernel.queue?.why && <div>{trans.__('Why: %1', kernel.queue.why)}</div>}
        <div>{trans.__('Requested at %1.', clockText(asked, now))}</div>
      </div>
    );
  }

  /** The wait that is to be shown, and whose; null if it is none. */
  private _wait(): { told: Partial<IKernel>; id: string } | null {
    const told = this._told;
    const id = told ? kernelIdOf(told) : null;
    const waits = told?.state === 'waiting' || told?.state === 'starting';
    return told && id && waits && this._text ? { told, id } : null;
  }

  private _told: Partial<IKernel> | null = null;
  private _text = '';
  private _shown: IDisposable | null = null;
}

/** The line about a wait that does not go on. */
function overText(
  wait: Exclude<Wait, { kind: 'waits' }>,
  size: string,
  asked: number,
  now: number,
  trans: IBitfusion['trans']
): string {
  const from = clockText(asked, now);
  switch (wait.kind) {
    case 'gone':
      return trans.__(
        'Requested %1 at %2. No kernel on this server is waiting for it any more.',
        size,
        from
      );
    case 'over':
      return trans.__('Requested %1 at %2. This wait is over.', size, from);
    case 'granted':
      return wait.starts
        ? trans.__('Got %1. The kernel is starting.', size)
        : trans.__(
            'Waited %1 for %2, until %3.',
            durationText(wait.at - asked, trans),
            size,
            clockText(wait.at, now)
          );
  }
}

function kernelIdOf(told: Partial<IKernel>): string | null {
  const id = (told as { kernel_id?: unknown }).kernel_id ?? told.id;
  return typeof id === 'string' ? id : null;
}
