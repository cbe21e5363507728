import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { freeNow, largest } from './sizes';
import { IBitfusion } from './tokens';
import { ISize } from './types';
import { memoryText, sizeText } from './words';

/**
 * Ask for a size: number, and of each GPU the whole, a share or memory. Null if called off.
 * `cost`: what is lost by taking another.
 */
export async function askSize(
  bitfusion: IBitfusion,
  title: string,
  label: string,
  start: ISize | null,
  cost = ''
): Promise<ISize | null> {
  const { trans } = bitfusion;
  const shown = bitfusion.model.show();
  try {
    const result = await showDialog<ISize>({
      title,
      body: new SizeForm(bitfusion, start, cost),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.okButton({ label })
      ],
      focusNodeSelector: '.bf-Form input'
    });
    return result.button.accept ? result.value : null;
  } finally {
    shown.dispose();
  }
}

type Kind = 'whole' | 'share' | 'memory';

class SizeForm extends ReactWidget {
  constructor(
    private readonly bitfusion: IBitfusion,
    start: ISize | null,
    private readonly cost: string
  ) {
    super();
    this.addClass('bf-FormBox');
    const { mib } = largest(bitfusion.model.pool);
    this._gpus = start?.gpus ?? 1;
    this._share = start?.partial ?? 0.5;
    this._gib = Math.max(1, Math.round((start?.memory_mib ?? mib / 2) / 1024));
    this._kind = start?.memory_mib
      ? 'memory'
      : (start?.partial ?? 1) < 1
        ? 'share'
        : 'whole';
    bitfusion.model.changed.connect(this.update, this);
  }

  getValue(): ISize {
    return {
      gpus: this._gpus,
      partial: this._kind === 'share' ? this._share : null,
      memory_mib: this._kind === 'memory' ? this._gib * 1024 : null
    };
  }

  protected render(): React.ReactElement {
    const { model, trans } = this.bitfusion;
    const most = largest(model.pool);
    const size = this.getValue();
    const free = freeNow(model.pool, size);
    const gibs = Math.max(1, Math.floor(most.mib / 1024));
    return (
      <form className="bf-Form" onSubmit={event => event.preventDefault()}>
        <label className="bf-Form-row">
          <span>{trans.__('Number of GPUs')}</span>
          <input
            className="jp-mod-styled"
            type="number"
            min={1}
            max={most.gpus}
            value={this._gpus}
            onChange={event =>
              this.set(() => {
                const value = Math.floor(Number(event.target.value));
                this._gpus = Math.min(Math.max(value || 1, 1), most.gpus);
              })
            }
          />
        </label>
        <fieldset>
          <legend>{trans.__('Of each GPU, use')}</legend>
          {this.choice('whole', trans.__('The whole GPU'))}
          {this.choice('share', trans.__('A share'), {
            min: 5,
            max: 95,
            step: 5,
            value: Math.round(this._share * 100),
            text: `${Math.round(this._share * 100)} %`,
            change: value => (this._share = value / 100)
          })}
          {this.choice('memory', trans.__('Memory'), {
            min: 1,
            max: gibs,
            step: 1,
            value: Math.min(this._gib, gibs),
            text: memoryText(this._gib * 1024),
            change: value => (this._gib = value)
          })}
        </fieldset>
        <p className="bf-Form-sum" role="status">
          <b>{sizeText(size, trans)}</b>
          {free === null
            ? ''
            : free > 0
              ? ` · ${trans.__('%1 free now', free)}`
              : ` · ${trans.__('none free now: the request would wait')}`}
        </p>
        {this.cost && <p className="bf-Form-cost">{this.cost}</p>}
      </form>
    );
  }

  private choice(
    kind: Kind,
    label: string,
    slider?: {
      min: number;
      max: number;
      step: number;
      value: number;
      text: string;
      change: (value: number) => void;
    }
  ): React.ReactElement {
    const isChosen = this._kind === kind;
    return (
      <div className="bf-Form-row">
        <label>
          <input
            type="radio"
            name="bf-kind"
            checked={isChosen}
            onChange={() => this.set(() => (this._kind = kind))}
          />{' '}
          {label}
        </label>
        {slider && (
          <>
            <input
              type="range"
              aria-label={label}
              aria-valuetext={slider.text}
              min={slider.min}
              max={slider.max}
              step={slider.step}
              value={slider.value}
              onChange={event =>
                this.set(() => {
                  slider.change(Number(event.target.value));
                  this._kind = kind;
                })
              }
            />
            <output className={isChosen ? '' : 'bf-mod-faint'}>{slider.text}</output>
          </>
        )}
      </div>
    );
  }

  private set(change: () => void): void {
    change();
    this.update();
  }

  private _gpus: number;
  private _share: number;
  private _gib: number;
  private _kind: Kind;
}
