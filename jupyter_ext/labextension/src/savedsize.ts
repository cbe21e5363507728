import { Notification } from '@jupyterlab/apputils';
import { NotebookPanel } from '@jupyterlab/notebook';

import { METADATA_KEY, offeredSize } from './sizes';
import { IBitfusion } from './tokens';
import { ISize } from './types';
import { sizeText } from './words';

/** Remember a size in the notebook's file; a notebook that cannot be changed forgets it. */
export function rememberSize(panel: NotebookPanel | null, size: ISize): void {
  const model = panel?.content.model;
  if (!model || panel.context.contentsModel?.writable === false) {
    return;
  }
  const { gpus, partial, memory_mib } = size;
  model.setMetadata(METADATA_KEY, {
    gpus,
    ...(partial === null ? {} : { partial }),
    ...(memory_mib === null ? {} : { memory_mib })
  });
}

/** Offer the size that a notebook remembers, once for each time that it is opened. */
export function offerSavedSizes(bitfusion: IBitfusion): void {
  const { actions, model, settings, tracker, trans } = bitfusion;
  const seen = new WeakSet<NotebookPanel>();

  const look = (panel: NotebookPanel): void => {
    const id = bitfusion.kernelIdOf(panel);
    const kernel = model.kernel(id);
    if (!id || !kernel || seen.has(panel) || panel.isDisposed) {
      return;
    }
    seen.add(panel);
    const size = offeredSize(panel.content.model?.getMetadata(METADATA_KEY), kernel);
    if (
      !size ||
      !model.canChange ||
      settings?.get('offerSavedSize').composite === false
    ) {
      return;
    }
    const text = sizeText(size, trans);
    Notification.info(trans.__('%1 was last used with %2.', panel.title.label, text), {
      autoClose: 15000,
      actions: [
        {
          label: trans.__('Use %1', text),
          displayType: 'accent',
          callback: () => void actions.request(id, size)
        }
      ]
    });
  };

  model.changed.connect(() => tracker.forEach(look));
}
