import { NotebookPanel } from '@jupyterlab/notebook';
import { LabIcon, ReactWidget, caretDownIcon } from '@jupyterlab/ui-components';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { heldIcon, idleIcon, noneIcon, waitingIcon } from './icons';
import { openMenu } from './menu';
import { METADATA_KEY } from './sizes';
import { IBitfusion } from './tokens';
import { KernelPhase } from './types';
import { chipDetails, chipText, shortChipText } from './words';

const ICONS: Record<KernelPhase, LabIcon> = {
  none: noneIcon,
  waiting: waitingIcon,
  starting: waitingIcon,
  running: heldIcon,
  idle: idleIcon,
  parked: idleIcon,
  releasing: noneIcon
};

/** Narrower notebooks have no room for the whole text beside their tools, in CSS pixels. */
const NARROW = 900;

/** The state of a notebook's GPU, and a click from it the menu. Hidden beside other kernels. */
export class Chip extends ReactWidget {
  constructor(
    private readonly bitfusion: IBitfusion,
    private readonly panel: () => NotebookPanel | null,
    private readonly place: 'toolbar' | 'statusbar'
  ) {
    super();
    this.addClass('bf-ChipBox');
    this.addClass(`bf-mod-${place}`);
    bitfusion.model.changed.connect(this.update, this);
    bitfusion.model.ticked.connect(this.update, this);
    bitfusion.actions.grace.changed.connect(this.update, this);
    bitfusion.app.serviceManager.kernelspecs.specsChanged.connect(this.renew, this);
    this.renew();
  }

  /** Another kernel or another notebook. */
  renew(): void {
    if (this.isDisposed) {
      return;
    }
    const id = this.bitfusion.kernelIdOf(this.panel());
    if (id && !this._shown) {
      this._shown = this.bitfusion.model.show();
    } else if (!id) {
      this._shown?.dispose();
      this._shown = null;
    }
    if (id && !this.bitfusion.model.kernel(id)) {
      void this.bitfusion.model.refresh();
    }
    this.update();
  }

  override dispose(): void {
    this._shown?.dispose();
    this._shown = null;
    super.dispose();
  }

  open = (): void => {
    const panel = this.panel();
    const id = this.bitfusion.kernelIdOf(panel);
    const button = this.node.querySelector('button');
    if (id && button) {
      const metadata = panel?.content.model?.getMetadata(METADATA_KEY);
      openMenu(this.bitfusion, id, button, metadata);
    }
  };

  protected override onUpdateRequest(message: Message): void {
    const { model } = this.bitfusion;
    const id = this.bitfusion.kernelIdOf(this.panel());
    const isOff =
      this.place === 'statusbar' &&
      this.bitfusion.settings?.get('statusBar').composite === false;
    this.setHidden(!id || model.isMissing || !model.state || isOff);
    super.onUpdateRequest(message);
  }

  protected render(): React.ReactElement | null {
    const { actions, model, trans } = this.bitfusion;
    const id = this.bitfusion.kernelIdOf(this.panel());
    const kernel = model.kernel(id);
    if (!id || !model.state) {
      return null;
    }
    const pending = actions.grace.pending(id);
    const text =
      pending ??
      (kernel ? chipText(kernel, model.pool, model.now(), trans) : trans.__('GPU'));
    const width = this.panel()?.node.clientWidth ?? NARROW;
    const isNarrow = this.place === 'toolbar' && width < NARROW;
    const shown =
      isNarrow && kernel && !pending ? shortChipText(kernel, model.now(), trans) : text;
    const details = kernel
      ? chipDetails(kernel, model.pool, model.now(), trans)
      : trans.__('The kernel has not reported its state yet.');
    const Icon = ICONS[kernel?.state ?? 'none'];
    const waits = kernel?.state === 'waiting';
    const lost = model.error !== null;
    const title = lost
      ? `${details}\n${trans.__('The server is not responding: this may be out of date.')}`
      : details;
    return (
      <button
        className={`bf-Chip bf-mod-${kernel?.state ?? 'none'}${lost ? ' bf-mod-stale' : ''}${isNarrow ? ' bf-mod-narrow' : ''}`}
        title={title}
        aria-label={trans.__('GPU: %1', text)}
        aria-haspopup="menu"
        aria-expanded="false"
        onClick={event => {
          // JupyterLab 4.2's toolbar would give the notebook the focus that the menu has taken
          event.stopPropagation();
          this.open();
        }}
        data-state={kernel?.state ?? 'none'}
      >
        <Icon.react tag="span" className="bf-Chip-icon" />
        <span className="bf-Chip-text" role={waits ? 'timer' : undefined}>
          {shown}
        </span>
        {this.place === 'toolbar' && !isNarrow && (
          <caretDownIcon.react tag="span" className="bf-Chip-caret" />
        )}
      </button>
    );
  }

  private _shown: IDisposable | null = null;
}

/** The chip of one notebook's toolbar. */
export function toolbarChip(bitfusion: IBitfusion, panel: NotebookPanel): Chip {
  const chip = new Chip(bitfusion, () => panel, 'toolbar');
  const { sessionContext } = panel;
  sessionContext.kernelChanged.connect(chip.renew, chip);
  sessionContext.sessionChanged.connect(chip.renew, chip);
  void sessionContext.ready.then(() => chip.renew());
  const observer = new ResizeObserver(() => chip.update());
  observer.observe(panel.node);
  chip.disposed.connect(() => observer.disconnect());
  return chip;
}

/** The chip of the notebook in front. */
export function statusChip(bitfusion: IBitfusion): Chip {
  const { tracker } = bitfusion;
  const chip = new Chip(bitfusion, () => tracker.currentWidget, 'statusbar');
  let watched: NotebookPanel | null = null;
  const follow = () => {
    if (watched && !watched.isDisposed) {
      watched.sessionContext.kernelChanged.disconnect(chip.renew, chip);
    }
    watched = tracker.currentWidget;
    watched?.sessionContext.kernelChanged.connect(chip.renew, chip);
    chip.renew();
  };
  tracker.currentChanged.connect(follow);
  follow();
  return chip;
}
