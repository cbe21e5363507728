import {
  PanelWithToolbar,
  ReactWidget,
  SidePanel,
  refreshIcon
} from '@jupyterlab/ui-components';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import { AccordionPanel } from '@lumino/widgets';
import * as React from 'react';

import { heldShare, historyPath, partsOf } from './bars';
import { gpuIcon } from './icons';
import { noteOf } from './menu';
import { sameSize } from './sizes';
import { CommandIDs, IBitfusion } from './tokens';
import { IGpu, IKernel, IPool, IServer } from './types';
import {
  IWords,
  chipText,
  clockText,
  costSentence,
  deviceText,
  durationText,
  holds,
  memoryText,
  placeText
} from './words';

/** The pool: my kernels, the sizes for the notebook in front, the queue, the GPUs of each server and what was held. */
export class PoolPanel extends SidePanel {
  constructor(private readonly bitfusion: IBitfusion) {
    super({ translator: undefined });
    const { trans } = bitfusion;
    this.id = 'bitfusion-pool';
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU Pool');
    this.addClass('bf-Panel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU Pool'));
    // not a ToolbarButton: JupyterLab says of each whether it is pressed, which is wrong of this one
    const label = trans.__('Refresh the pool');
    const refresh = ReactWidget.create(
      <button
        className="bf-IconButton"
        aria-label={label}
        title={label}
        onClick={() => void bitfusion.model.refresh()}
      >
        <refreshIcon.react tag="span" />
      </button>
    );
    this.addWidget(section(trans.__('My Kernels'), Kernels, bitfusion, refresh));
    this.addWidget(section(trans.__('Size'), Sizes, bitfusion));
    this.addWidget(section(trans.__('Queue'), Queue, bitfusion));
    this.addWidget(section(trans.__('GPUs'), Gpus, bitfusion));
    this.addWidget(section(trans.__('History'), History, bitfusion));
    this._sections = this.content as AccordionPanel;
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.open();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._shown?.dispose();
    this._shown = null;
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this.open();
    }
  }

  protected override onBeforeDetach(message: Message): void {
    this._shown?.dispose();
    this._shown = null;
    super.onBeforeDetach(message);
  }

  /** It is to be seen; the first time the GPUs get most of the room. */
  private open(): void {
    this._shown ??= this.bitfusion.model.show();
    if (!this._isSized) {
      this._isSized = true;
      // JupyterLab 4.2 saves all as closed while the panel is hidden, and opens it so the next time
      if (this._sections.widgets.every(each => each.isHidden)) {
        this._sections.widgets.forEach((_, index) => this._sections.expand(index));
      }
      requestAnimationFrame(() => this._sections.setRelativeSizes([4, 5, 2, 5, 3]));
    }
  }

  private _shown: IDisposable | null = null;
  private readonly _sections: AccordionPanel;
  private _isSized = false;
}

type View = React.FC<{ bitfusion: IBitfusion }>;

function section(
  title: string,
  View: View,
  bitfusion: IBitfusion,
  button?: ReactWidget
): PanelWithToolbar {
  const panel = new PanelWithToolbar();
  panel.title.label = title;
  panel.title.caption = title;
  panel.addClass('bf-Section');
  panel.node.tabIndex = 0; // it scrolls
  if (button) {
    panel.toolbar.addItem('refresh', button);
  }
  panel.addWidget(new SectionView(View, bitfusion));
  return panel;
}

class SectionView extends ReactWidget {
  constructor(
    private readonly view: View,
    private readonly bitfusion: IBitfusion
  ) {
    super();
    this.addClass('bf-SectionView');
    bitfusion.model.changed.connect(this.update, this);
    bitfusion.model.ticked.connect(this.update, this);
    bitfusion.actions.grace.changed.connect(this.update, this);
    bitfusion.tracker.currentChanged.connect(this.update, this);
  }

  protected render(): React.ReactElement {
    const { model, trans } = this.bitfusion;
    const View = this.view;
    if (model.isMissing) {
      return (
        <Note>
          {trans.__(
            'The kubeflow-bitfusion server extension is not installed on this Jupyter server.'
          )}
        </Note>
      );
    }
    if (!model.state) {
      return <Note>{model.error ? model.error.text : trans.__('Loading…')}</Note>;
    }
    return <View bitfusion={this.bitfusion} />;
  }
}

const Note: React.FC<{ children: React.ReactNode; alert?: boolean }> = props => (
  <div className="bf-Note" role={props.alert ? 'alert' : undefined}>
    {props.children}
  </div>
);

const Kernels: View = ({ bitfusion }) => {
  const { model, trans } = bitfusion;
  const kernels = [...model.kernels].sort(
    (a, b) => order(a) - order(b) || a.title.localeCompare(b.title)
  );
  if (!kernels.length) {
    return <Note>{trans.__('No Bitfusion kernel is running.')}</Note>;
  }
  return (
    <ul className="bf-List">
      {kernels.map(kernel => (
        <KernelRow key={kernel.id} kernel={kernel} bitfusion={bitfusion} />
      ))}
    </ul>
  );
};

function order(kernel: IKernel): number {
  return holds(kernel) ? 0 : kernel.state === 'waiting' ? 1 : 2;
}

const KernelRow: React.FC<{ kernel: IKernel; bitfusion: IBitfusion }> = ({
  kernel,
  bitfusion
}) => {
  const { actions, app, model, trans } = bitfusion;
  const { id, path, title } = kernel;
  const now = model.now();
  const pending = actions.grace.pending(id);
  return (
    <li className={`bf-Kernel bf-mod-${kernel.state}`}>
      <div className="bf-Kernel-head">
        {path ? (
          <button
            className="bf-Link"
            title={path}
            onClick={() => void app.commands.execute('docmanager:open', { path })}
          >
            {title}
          </button>
        ) : (
          <span className="bf-Ellipsis">{title}</span>
        )}
        {pending && (
          <Button
            label={trans.__('Undo')}
            about={trans.__('Undo: %1 is %2', title, pending)}
            onClick={() => actions.grace.takeBack(id)}
          />
        )}
        {model.canChange && !pending && (
          <span className="bf-Buttons">
            {kernel.state === 'waiting' && (
              <Button
                label={trans.__('Cancel')}
                about={trans.__('Cancel the wait of %1', title)}
                onClick={() => void actions.cancel(id)}
              />
            )}
            {kernel.state === 'none' && (
              <Button
                label={trans.__('Take')}
                about={trans.__('Take a GPU now for %1', title)}
                onClick={() => void actions.acquire(id)}
              />
            )}
            {holds(kernel) &&
              kernel.state !== 'waiting' &&
              kernel.state !== 'releasing' && (
                <Button
                  label={trans.__('Release')}
                  about={trans.__('Release the GPU of %1: its variables are lost', title)}
                  onClick={() => void actions.release(id)}
                />
              )}
          </span>
        )}
      </div>
      <div className="bf-Kernel-state">
        {pending ?? chipText(kernel, model.pool, now, trans)}
      </div>
      {kernel.idle_release_at && (
        <div className="bf-Kernel-warning">
          <span>
            {trans.__(
              'Will be released at %1 unless code runs before then.',
              clockText(kernel.idle_release_at, now)
            )}
          </span>
          {model.canChange && (
            <Button
              label={trans.__('Keep')}
              about={trans.__('Keep the GPU of %1', title)}
              onClick={() => void actions.keep(id)}
            />
          )}
        </div>
      )}
    </li>
  );
};

const Button: React.FC<{
  label: string;
  about: string;
  onClick: () => void;
}> = ({ label, about, onClick }) => (
  <button className="bf-Button" aria-label={about} title={about} onClick={onClick}>
    {label}
  </button>
);

/** One click, and the notebook in front has that size. */
const Sizes: View = ({ bitfusion }) => {
  const { app, model, tracker, trans } = bitfusion;
  const panel = tracker.currentWidget;
  const kernelId = bitfusion.kernelIdOf(panel);
  const kernel = model.kernel(kernelId);
  if (!panel || !kernel) {
    return (
      <Note>
        {trans.__('Open a notebook with a Bitfusion kernel to choose its size here.')}
      </Note>
    );
  }
  const cost = costSentence(kernel, trans);
  return (
    <>
      <div className="bf-Kernel-state bf-Wrap">
        {trans.__('For %1', panel.title.label)}
        {cost && `. ${cost}`}
      </div>
      <ul className="bf-List bf-Sizes">
        {(model.state?.sizes ?? []).map(size => {
          const { gpus, partial, memory_mib, label, possible, words } = size;
          const args = { kernelId, gpus, partial, memory_mib };
          return (
            <li key={words}>
              <button
                className="bf-Size"
                aria-pressed={sameSize(size, kernel.request)}
                disabled={!possible || !model.canChange}
                onClick={() => void app.commands.execute(CommandIDs.request, args)}
              >
                <span>{label}</span>
                <span className="bf-Size-note">{noteOf(size, bitfusion)}</span>
              </button>
            </li>
          );
        })}
      </ul>
    </>
  );
};

const Queue: View = ({ bitfusion }) => {
  const { model, trans } = bitfusion;
  const waiting = model.pool?.waiting ?? [];
  const here = model.kernels.filter(kernel => kernel.state === 'waiting');
  if (!waiting.length && !here.length) {
    return <Note>{trans.__('Nobody is waiting.')}</Note>;
  }
  if (!waiting.length) {
    return (
      <ul className="bf-List">
        {here.map(kernel => (
          <li key={kernel.id} className="bf-Place">
            <span className="bf-Ellipsis">{kernel.title}</span>
            <span>{placeText(kernel, trans)}</span>
          </li>
        ))}
      </ul>
    );
  }
  return (
    <ol className="bf-List">
      {waiting.map((each, index) => (
        <li key={index} className="bf-Place">
          <span className="bf-Place-number">{index + 1}</span>
          <span className="bf-Wrap">{each.text}</span>
          {each.mine && <Mine trans={trans} />}
        </li>
      ))}
    </ol>
  );
};

const Mine: React.FC<{ trans: IWords }> = ({ trans }) => (
  <span className="bf-Mine">{trans.__('mine')}</span>
);

const Gpus: View = ({ bitfusion }) => {
  const { model, trans } = bitfusion;
  const pool = model.pool as IPool;
  return (
    <>
      {pool.error && (
        <Note alert>
          <b>{trans.__('The pool cannot be reached.')}</b> {pool.error.message}{' '}
          {pool.error.next_step}
          {pool.seen_at !== null &&
            ` ${trans.__('Last seen at %1.', clockText(pool.seen_at, model.now()))}`}
        </Note>
      )}
      {pool.simulated && (
        <Note>{trans.__('These GPUs are simulated: the CPU computes.')}</Note>
      )}
      {pool.text !== null && <pre className="bf-Text">{pool.text}</pre>}
      {pool.servers.map(server => (
        <Server key={server.address} server={server} trans={trans} />
      ))}
      {pool.notes.map((note, index) => (
        <Note key={index}>{note}</Note>
      ))}
      {pool.servers.length > 0 && (
        <div className="bf-Legend" aria-hidden="true">
          <span>
            <i className="bf-Bar-part bf-mod-mine" /> {trans.__('held by me')}
          </span>
          <span>
            <i className="bf-Bar-part bf-mod-others" /> {trans.__('held by others')}
          </span>
          <span>
            <i className="bf-Bar-part" /> {trans.__('free')}
          </span>
        </div>
      )}
    </>
  );
};

const Server: React.FC<{
  server: IServer;
  trans: IWords;
}> = ({ server, trans }) => (
  <div className="bf-Server">
    <h3 className="bf-Server-name">{server.address}</h3>
    <ul className="bf-List" aria-label={trans.__('GPUs of %1', server.address)}>
      {server.gpus.map(gpu => (
        <Gpu key={gpu.index} gpu={gpu} trans={trans} />
      ))}
    </ul>
  </div>
);

const Gpu: React.FC<{ gpu: IGpu; trans: IWords }> = ({ gpu, trans }) => {
  const parts = partsOf(gpu);
  const free =
    gpu.free_mib !== null && gpu.total_mib !== null
      ? trans.__('%1 of %2 free', memoryText(gpu.free_mib), memoryText(gpu.total_mib))
      : '';
  const percent = Math.round(heldShare(gpu) * 100);
  return (
    <li className="bf-Gpu">
      <div className="bf-Gpu-head">
        <span className="bf-Ellipsis" title={gpu.name ?? undefined}>
          {deviceText(gpu.name, gpu.index, null)}
        </span>
      </div>
      <div
        className="bf-Bar"
        role="meter"
        aria-label={trans.__('GPU %1: held', gpu.index)}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={percent}
        aria-valuetext={trans.__('%1 % held', percent)}
        title={trans.__('%1 % held', percent)}
      >
        {parts.map((part, index) => (
          <span
            key={index}
            className={`bf-Bar-part bf-mod-${part.kind}`}
            style={{ width: `${Math.min(1, part.share) * 100}%` }}
            title={part.text}
          />
        ))}
      </div>
      {free && <div className="bf-Gpu-free">{free}</div>}
      {gpu.holders.map((holder, index) => (
        <div key={index} className="bf-Holder">
          <span className="bf-Wrap">{holder.text}</span>
          {holder.mine && <Mine trans={trans} />}
        </div>
      ))}
      {gpu.notes.map((note, index) => (
        <div key={index} className="bf-Holder">
          {note}
        </div>
      ))}
    </li>
  );
};

const WIDTH = 240;
const HEIGHT = 48;

const History: View = ({ bitfusion }) => {
  const { model, trans } = bitfusion;
  const history = model.pool?.history ?? [];
  const path = historyPath(history, WIDTH, HEIGHT);
  const first = history[0];
  const last = history[history.length - 1];
  if (!path || !first || !last) {
    return (
      <Note>
        {trans.__('The history is recorded while a page with a GPU notebook is open.')}
      </Note>
    );
  }
  const held = Number(last.held.toFixed(2));
  const label = trans.__(
    '%1 of %2 GPUs held, %3 waiting; the last %4',
    held,
    last.total,
    last.waiting,
    durationText(last.at - first.at, trans)
  );
  return (
    <figure className="bf-History">
      <svg
        viewBox={`0 -2 ${WIDTH} ${HEIGHT + 2}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={label}
      >
        <path className="bf-History-area" d={`${path}V${HEIGHT}H0Z`} />
        <path className="bf-History-line" d={path} vectorEffect="non-scaling-stroke" />
      </svg>
      <figcaption>{label}</figcaption>
    </figure>
  );
};
