import { ILauncher } from '@jupyterlab/launcher';
import { IDisposable } from '@lumino/disposable';

import { gpuIconUrl } from './icons';
import { chosenSpec } from './kernelspecs';
import { CommandIDs, IBitfusion } from './tokens';

const MOST_TILES = 4;

/** Tiles: "GPU Notebook…", and one for each size that is offered. */
export function addTiles(launcher: ILauncher, bitfusion: IBitfusion): void {
  const { app, model } = bitfusion;
  const { kernelspecs } = app.serviceManager;
  let dialogTile: IDisposable | null = null;
  let tiles: IDisposable[] = [];
  let shown = '';

  const showDialogTile = (): void => {
    const is = chosenSpec(kernelspecs.specs) !== null && !model.isMissing;
    if (is && !dialogTile) {
      dialogTile = launcher.add({
        command: CommandIDs.create,
        category: 'Notebook',
        kernelIconUrl: gpuIconUrl,
        rank: 100
      });
      // one question; sizes seldom change
      void model.refresh();
    } else if (!is) {
      dialogTile?.dispose();
      dialogTile = null;
    }
  };
  const showSizes = (): void => {
    showDialogTile();
    const sizes = dialogTile
      ? (model.state?.sizes ?? []).filter(size => size.possible)
      : [];
    const offered = sizes.slice(0, MOST_TILES);
    const now = JSON.stringify(offered.map(size => [size.words, size.label]));
    if (now === shown) {
      return;
    }
    shown = now;
    tiles.forEach(tile => tile.dispose());
    tiles = offered.map((size, index) => {
      const { gpus, partial, memory_mib, label } = size;
      return launcher.add({
        command: CommandIDs.create,
        category: 'Notebook',
        kernelIconUrl: gpuIconUrl,
        rank: 10 + index,
        args: { gpus, partial, memory_mib, label }
      });
    });
  };
  kernelspecs.specsChanged.connect(showDialogTile);
  model.changed.connect(showSizes);
  void kernelspecs.ready.then(showDialogTile);
}
