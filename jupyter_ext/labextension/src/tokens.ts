import { JupyterFrontEnd } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Token } from '@lumino/coreutils';

import { Actions } from './actions';
import { Model } from './model';

/** What the views share. */
export interface IBitfusion {
  readonly app: JupyterFrontEnd;
  readonly model: Model;
  readonly actions: Actions;
  readonly tracker: INotebookTracker;
  readonly trans: IRenderMime.TranslationBundle;
  readonly settings: ISettingRegistry.ISettings | null;
  /** The id of a notebook's kernel if that is a Bitfusion kernel, else null. */
  kernelIdOf(panel: NotebookPanel | null): string | null;
}

export const IBitfusion = new Token<IBitfusion>(
  'kubeflow-bitfusion:IBitfusion',
  'The state of the GPU pool and of the kernels that use it.'
);

export namespace CommandIDs {
  export const request = 'bitfusion:request';
  export const choose = 'bitfusion:choose-size';
  export const acquire = 'bitfusion:acquire';
  export const release = 'bitfusion:release';
  export const cancel = 'bitfusion:cancel';
  export const keep = 'bitfusion:keep';
  export const undo = 'bitfusion:undo';
  export const hint = 'bitfusion:hint';
  export const details = 'bitfusion:show-pool';
  export const create = 'bitfusion:create-notebook';
  export const menu = 'bitfusion:open-menu';
}
