import { IRunningSessionManagers, IRunningSessions } from '@jupyterlab/running';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { gpuIcon } from './icons';
import { isBitfusion } from './kernelspecs';
import { IBitfusion } from './tokens';
import { IKernel } from './types';
import { chipDetails, holds, shortChipText } from './words';

/** The Running panel's section of leases; the button of each gives it back. */
export function addLeases(
  managers: IRunningSessionManagers,
  bitfusion: IBitfusion
): IDisposable {
  return managers.add(new Leases(bitfusion));
}

class Leases implements IRunningSessions.IManager {
  constructor(private readonly bitfusion: IBitfusion) {
    const { model, trans } = bitfusion;
    this.name = trans.__('GPUs');
    this.shutdownLabel = trans.__('Release the GPU');
    this.shutdownAllLabel = trans.__('Release All');
    this.shutdownAllConfirmationText = trans.__(
      "Release the GPUs of all notebooks? They return to the pool; the notebooks' variables will be lost."
    );
    model.changed.connect(() => this._runningChanged.emit());
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;

  get runningChanged(): ISignal<this, void> {
    return this._runningChanged;
  }

  running(): IRunningSessions.IRunningItem[] {
    return this.bitfusion.model.kernels.filter(holds).map(kernel => ({
      className: 'bf-Lease',
      icon: () => gpuIcon,
      label: () => this.label(kernel),
      labelTitle: () => `${kernel.path ?? kernel.title}\n${this.details(kernel)}`,
      detail: () => this.detail(kernel),
      open: () => this.open(kernel),
      shutdown: () => void this.bitfusion.actions.release(kernel.id)
    }));
  }

  refreshRunning(): void {
    const { model, app } = this.bitfusion;
    const { kernels, kernelspecs } = app.serviceManager;
    // a server without such a kernel is asked for nothing
    const runs = Array.from(kernels.running()).some(kernel =>
      isBitfusion(kernelspecs.specs, kernel.name)
    );
    if (runs) {
      void model.refresh();
    }
  }

  shutdownAll(): void {
    for (const kernel of this.bitfusion.model.kernels.filter(holds)) {
      void this.bitfusion.actions.release(kernel.id, true);
    }
  }

  private label(kernel: IKernel): string {
    return kernel.title;
  }

  private detail(kernel: IKernel): string {
    const { model, trans } = this.bitfusion;
    return shortChipText(kernel, model.now(), trans);
  }

  private details(kernel: IKernel): string {
    const { model, trans } = this.bitfusion;
    return chipDetails(kernel, model.pool, model.now(), trans);
  }

  private open(kernel: IKernel): void {
    if (kernel.path) {
      const args = { path: kernel.path };
      void this.bitfusion.app.commands.execute('docmanager:open', args);
    }
  }

  private readonly _runningChanged = new Signal<this, void>(this);
}
