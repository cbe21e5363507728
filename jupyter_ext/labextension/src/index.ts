import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  ICommandPalette,
  IToolbarWidgetRegistry,
  Notification
} from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { Actions } from './actions';
import { Api } from './api';
import { statusChip, toolbarChip } from './chip';
import { addCommands } from './commands';
import { markKernels } from './kernelmarks';
import { isBitfusion } from './kernelspecs';
import { addTiles } from './launcher';
import { Model } from './model';
import { Notices } from './notices';
import { PoolPanel } from './panel';
import { addLeases } from './running';
import { offerSavedSizes } from './savedsize';
import { IBitfusion } from './tokens';
import { ChangedEvent, EVENT_SCHEMA } from './types';
import { VERSION } from './version';
import { waitBoxFactory } from './waitbox';

const main: JupyterFrontEndPlugin<IBitfusion> = {
  id: 'kubeflow-bitfusion:plugin',
  description: 'Follows the GPU pool and the kernels that use it.',
  autoStart: true,
  provides: IBitfusion,
  requires: [INotebookTracker],
  optional: [
    ITranslator,
    ISettingRegistry,
    ICommandPalette,
    IToolbarWidgetRegistry,
    IRenderMimeRegistry
  ],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    translator: ITranslator | null,
    registry: ISettingRegistry | null,
    palette: ICommandPalette | null,
    toolbars: IToolbarWidgetRegistry | null,
    rendermime: IRenderMimeRegistry | null
  ): IBitfusion => {
    const { events, kernelspecs, serverSettings } = app.serviceManager;
    const trans = (translator ?? nullTranslator).load('kubeflow_bitfusion');
    const api = new Api(serverSettings);
    const model = new Model(api);
    const shared = {
      ...{ app, model, tracker, trans },
      actions: new Actions(api, model, trans),
      settings: null as ISettingRegistry.ISettings | null,
      kernelIdOf: (panel: NotebookPanel | null): string | null => {
        const kernel = panel?.sessionContext.session?.kernel;
        return kernel && isBitfusion(kernelspecs.specs, kernel.name) ? kernel.id : null;
      }
    };
    // notebooks that are restored find both there
    toolbars?.addFactory<NotebookPanel>('Notebook', 'bitfusion', panel =>
      toolbarChip(shared, panel)
    );
    rendermime?.addFactory(waitBoxFactory(shared));
    addCommands(shared, palette);
    void registry
      ?.load(main.id)
      .then(settings => {
        shared.settings = settings;
        settings.changed.connect(() => model.announce());
      })
      .catch(reason => console.warn(`${main.id}: no settings`, reason));

    const notices = new Notices(shared);
    events.stream.connect((_, event) => {
      if (event.schema_id === EVENT_SCHEMA) {
        const changed = event as unknown as ChangedEvent;
        model.take(changed);
        if (changed.what === 'notice') {
          notices.show(changed);
        }
      }
    });
    offerSavedSizes(shared);
    compareVersions(shared);
    return shared;
  }
};

/** Say once that front end and server are of different versions: then one of them is from an old install. */
function compareVersions({ model, trans }: IBitfusion): void {
  const compare = (): void => {
    const version = model.state?.version;
    if (!version) {
      return;
    }
    model.changed.disconnect(compare);
    if (version !== VERSION) {
      Notification.warning(
        trans.__(
          'kubeflow-bitfusion: this page has version %1, the server %2. Restart the Jupyter server and reload the page.',
          VERSION,
          version
        ),
        { autoClose: false }
      );
    }
  };
  model.changed.connect(compare);
}

const panel: JupyterFrontEndPlugin<void> = {
  id: 'kubeflow-bitfusion:panel',
  description: 'The GPU pool in a side panel.',
  autoStart: true,
  requires: [IBitfusion],
  optional: [ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    bitfusion: IBitfusion,
    restorer: ILayoutRestorer | null
  ) => {
    const widget = new PoolPanel(bitfusion);
    app.shell.add(widget, 'right', { rank: 700, type: 'GPU Pool' });
    restorer?.add(widget, widget.id);
  }
};

const status: JupyterFrontEndPlugin<void> = {
  id: 'kubeflow-bitfusion:status',
  description: 'The GPU of the notebook in front, in the status bar.',
  autoStart: true,
  requires: [IBitfusion],
  optional: [IStatusBar],
  activate: (_: JupyterFrontEnd, bitfusion: IBitfusion, bar: IStatusBar | null) => {
    const { model, tracker } = bitfusion;
    bar?.registerStatusItem('kubeflow-bitfusion:status', {
      item: statusChip(bitfusion),
      align: 'left',
      rank: 90,
      isActive: () =>
        model.state !== null &&
        bitfusion.settings?.get('statusBar').composite !== false &&
        bitfusion.kernelIdOf(tracker.currentWidget) !== null,
      activeStateChanged: model.changed as any
    });
  }
};

const running: JupyterFrontEndPlugin<void> = {
  id: 'kubeflow-bitfusion:running',
  description: 'Leases in the panel of running sessions.',
  autoStart: true,
  requires: [IBitfusion],
  optional: [IRunningSessionManagers],
  activate: (
    _: JupyterFrontEnd,
    bitfusion: IBitfusion,
    managers: IRunningSessionManagers | null
  ) => {
    if (managers) {
      addLeases(managers, bitfusion);
      markKernels(bitfusion.model, bitfusion.trans);
    }
  }
};

const launcher: JupyterFrontEndPlugin<void> = {
  id: 'kubeflow-bitfusion:launcher',
  description: 'Tiles of GPU notebooks.',
  autoStart: true,
  requires: [IBitfusion],
  optional: [ILauncher],
  activate: (_: JupyterFrontEnd, bitfusion: IBitfusion, launcher: ILauncher | null) => {
    if (launcher) {
      addTiles(launcher, bitfusion);
    }
  }
};

export default [main, panel, status, running, launcher];
