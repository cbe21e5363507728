import { ICommandPalette } from '@jupyterlab/apputils';
import { NotebookPanel } from '@jupyterlab/notebook';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { gpuIcon } from './icons';
import { chosenSpec } from './kernelspecs';
import { noteOf, openMenu } from './menu';
import { rememberSize } from './savedsize';
import { askSize } from './sizedialog';
import { METADATA_KEY, sameSize, savedSize } from './sizes';
import { CommandIDs, IBitfusion } from './tokens';
import { IKernel, IOfferedSize, ISize } from './types';
import { costSentence, holds } from './words';

type Args = ReadonlyPartialJSONObject;

/** All that can be done by a command: menus, palette, launcher and keyboard shortcuts use these. */
export function addCommands(
  bitfusion: IBitfusion,
  palette: ICommandPalette | null
): void {
  const { actions, app, model, tracker, trans } = bitfusion;
  const { commands } = app;

  /** The kernel that is meant: named, or of the notebook in front. */
  const idOf = (args: Args): string | null =>
    typeof args.kernelId === 'string'
      ? args.kernelId
      : bitfusion.kernelIdOf(tracker.currentWidget);
  const kernelOf = (args: Args): IKernel | null => model.kernel(idOf(args));
  const panelOf = (kernelId: string): NotebookPanel | null =>
    tracker.find(panel => bitfusion.kernelIdOf(panel) === kernelId) ?? null;
  const isOurs = (args: Args): boolean => idOf(args) !== null;

  const request = async (kernelId: string, size: ISize): Promise<void> => {
    if (await actions.request(kernelId, size)) {
      rememberSize(panelOf(kernelId), size);
    }
  };

  const offeredFor = (args: Args): IOfferedSize | undefined => {
    const size = savedSize(args);
    return model.state?.sizes.find(each => sameSize(each, size));
  };

  commands.addCommand(CommandIDs.request, {
    label: args => textOf(args.label, trans.__('Request a Size')),
    caption: args => {
      const offered = offeredFor(args);
      return textOf(args.note, offered ? noteOf(offered, bitfusion) : '');
    },
    isToggleable: true,
    isToggled: args => args.current === true,
    isEnabled: args =>
      model.canChange && isOurs(args) && offeredFor(args)?.possible !== false,
    execute: async args => {
      const id = idOf(args);
      const size = savedSize(args);
      if (id && size) {
        await request(id, size);
      }
    }
  });
  commands.addCommand(CommandIDs.choose, {
    label: trans.__('Another Size…'),
    isEnabled: args => model.canChange && isOurs(args),
    isVisible: isOurs,
    execute: async args => {
      const id = idOf(args);
      if (!id) {
        return;
      }
      const asked = kernelOf(args)?.request;
      const size = await askSize(
        bitfusion,
        trans.__('Size of this notebook’s GPU'),
        trans.__('Use'),
        asked
          ? {
              gpus: asked.gpus,
              partial: asked.partial ?? null,
              memory_mib: asked.memory_mib ?? null
            }
          : null,
        costSentence(kernelOf(args), trans)
      );
      if (size) {
        await request(id, size);
      }
    }
  });

  const simple = (
    command: string,
    label: string,
    caption: string | ((args: Args) => string),
    fits: (kernel: IKernel) => boolean,
    act: (kernelId: string) => Promise<unknown>
  ) =>
    commands.addCommand(command, {
      label,
      caption,
      isEnabled: args => {
        const kernel = kernelOf(args);
        return model.canChange && kernel !== null && fits(kernel);
      },
      isVisible: isOurs,
      execute: async args => {
        const id = idOf(args);
        if (id) {
          await act(id);
        }
      }
    });
  simple(
    CommandIDs.acquire,
    trans.__('Take a GPU Now'),
    '',
    kernel => kernel.state === 'none',
    id => actions.acquire(id)
  );
  simple(
    CommandIDs.release,
    trans.__('Release'),
    args =>
      kernelOf(args)?.state === 'running'
        ? trans.__('after this cell; variables are lost')
        : trans.__('variables are lost'),
    kernel => holds(kernel) && kernel.state !== 'releasing',
    id => actions.release(id)
  );
  simple(
    CommandIDs.cancel,
    trans.__('Cancel the Wait'),
    '',
    kernel => kernel.state === 'waiting',
    id => actions.cancel(id)
  );
  simple(
    CommandIDs.keep,
    trans.__('Keep the GPU'),
    trans.__('postpones the idle release'),
    holds,
    id => actions.keep(id)
  );

  simple(
    CommandIDs.undo,
    trans.__('Undo'),
    args => actions.grace.pending(idOf(args)) ?? '',
    kernel => actions.grace.pending(kernel.id) !== null,
    id => Promise.resolve(actions.grace.takeBack(id))
  );
  // a line of the menu that only says something
  commands.addCommand(CommandIDs.hint, {
    label: trans.__('Changing the size'),
    caption: args => textOf(args.note, ''),
    isEnabled: () => false,
    execute: () => undefined
  });
  // for the keyboard: Notebook 7.2's toolbar cannot be walked through with it
  commands.addCommand(CommandIDs.menu, {
    label: trans.__('GPU of This Notebook'),
    isEnabled: isOurs,
    execute: args => {
      const id = idOf(args);
      const panel = id ? panelOf(id) : null;
      if (id && panel) {
        const chip = panel.node.querySelector<HTMLElement>('.bf-Chip');
        const metadata = panel.content.model?.getMetadata(METADATA_KEY);
        // the palette gives back the focus that it took, when it is closed
        window.setTimeout(() =>
          openMenu(bitfusion, id, chip ?? panel.toolbar.node, metadata)
        );
      }
    }
  });
  commands.addCommand(CommandIDs.details, {
    label: trans.__('Show the GPU Pool'),
    icon: gpuIcon,
    execute: () => app.shell.activateById('bitfusion-pool')
  });
  commands.addCommand(CommandIDs.create, {
    label: args => textOf(args.label, trans.__('GPU Notebook…')),
    caption: args => textOf(args.note, trans.__('A notebook on a GPU from the pool')),
    icon: gpuIcon,
    isVisible: () => chosenSpec(app.serviceManager.kernelspecs.specs) !== null,
    execute: args => createNotebook(bitfusion, args)
  });

  if (palette) {
    const category = trans.__('GPU');
    for (const command of [
      CommandIDs.create,
      CommandIDs.menu,
      CommandIDs.choose,
      CommandIDs.acquire,
      CommandIDs.release,
      CommandIDs.cancel,
      CommandIDs.keep,
      CommandIDs.undo,
      CommandIDs.details
    ]) {
      palette.addItem({ command, category, args: {} });
    }
  }
}

/** A new notebook in a Bitfusion kernel, of the size in `args` or of one that is asked for. */
async function createNotebook(
  bitfusion: IBitfusion,
  args: Args
): Promise<NotebookPanel | null> {
  const { actions, app, model, trans } = bitfusion;
  const kernelName = chosenSpec(app.serviceManager.kernelspecs.specs);
  const size =
    savedSize(args) ??
    (await askSize(bitfusion, trans.__('GPU Notebook'), trans.__('Create'), null));
  if (!size || !kernelName) {
    return null;
  }
  const { cwd } = args;
  const panel: NotebookPanel = await app.commands.execute('notebook:create-new', {
    kernelName,
    ...(typeof cwd === 'string' ? { cwd } : {})
  });
  await panel.context.ready;
  await panel.sessionContext.ready;
  const id = panel.sessionContext.session?.kernel?.id;
  if (id) {
    await model.refresh();
    if (await actions.request(id, size)) {
      rememberSize(panel, size);
    }
  }
  return panel;
}

function textOf(value: unknown, otherwise: string): string {
  return typeof value === 'string' ? value : otherwise;
}
