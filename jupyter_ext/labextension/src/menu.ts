import { MenuSvg } from '@jupyterlab/ui-components';
import { ElementARIAAttrs, h, VirtualElement } from '@lumino/virtualdom';
import { Menu } from '@lumino/widgets';

import { offeredSize, sameSize } from './sizes';
import { CommandIDs, IBitfusion } from './tokens';
import { IKernel, IOfferedSize, ISize } from './types';
import { costOfChange, holds, sizeText } from './words';

/** Beside each entry its caption: what is free now. */
class Renderer extends MenuSvg.Renderer {
  override renderShortcut(data: Menu.IRenderData): VirtualElement {
    return h.div({ className: 'lm-Menu-itemShortcut bf-Menu-note' }, data.item.caption);
  }

  /** A screen reader says an entry's caption, and what it costs. */
  override createItemARIA(data: Menu.IRenderData): ElementARIAAttrs {
    const { args, caption, label, type } = data.item;
    const cost = typeof args.cost === 'string' ? args.cost : '';
    const name = [label, caption, cost].filter(Boolean).join(', ');
    const aria = super.createItemARIA(data);
    return type === 'separator' ? aria : { ...aria, 'aria-label': name };
  }
}

/** The menu of a kernel, opened below an element. */
export function openMenu(
  bitfusion: IBitfusion,
  kernelId: string,
  anchor: HTMLElement,
  metadata: unknown = null
): Menu {
  const { app, model, trans } = bitfusion;
  const menu = new MenuSvg({
    commands: app.commands,
    renderer: new Renderer()
  });
  menu.addClass('bf-Menu');
  menu.node.setAttribute('aria-label', trans.__('GPU of this notebook'));
  fill(menu, bitfusion, kernelId, metadata);
  // only what each entry says changes: Lumino closes a menu whose entries change
  const renew = () => menu.update();
  const shown = model.show();
  model.changed.connect(renew);
  menu.aboutToClose.connect(() => {
    model.changed.disconnect(renew);
    shown.dispose();
    anchor.setAttribute('aria-expanded', 'false');
    if (menu.node.contains(document.activeElement)) {
      anchor.focus();
      // the first time a toolbar of JupyterLab may give it to the button that had it last
      anchor.focus();
    }
    // its entries are executed after it has closed
    window.setTimeout(() => menu.dispose(), 1000);
  });
  const { left, bottom, top } = anchor.getBoundingClientRect();
  anchor.setAttribute('aria-expanded', 'true');
  // Lumino itself opens upwards where there is no room below
  menu.open(left, bottom > window.innerHeight - 60 ? top : bottom);
  return menu;
}

function fill(
  menu: Menu,
  bitfusion: IBitfusion,
  kernelId: string,
  metadata: unknown
): void {
  const { model, trans } = bitfusion;
  const kernel = model.kernel(kernelId);
  menu.clearItems();
  const args = { kernelId };
  if (bitfusion.actions.grace.pending(kernelId)) {
    menu.addItem({ command: CommandIDs.undo, args });
    menu.addItem({ type: 'separator' });
  }
  const saved = offeredSize(metadata, kernel);
  if (saved) {
    addSize(menu, kernelId, kernel, {
      ...saved,
      label: sizeText(saved, trans),
      fixedNote: trans.__('saved in this notebook')
    });
    menu.addItem({ type: 'separator' });
  }
  const cost = costOfChange(kernel, trans);
  for (const size of model.state?.sizes ?? []) {
    addSize(menu, kernelId, kernel, size, cost);
  }
  menu.addItem({ command: CommandIDs.choose, args });
  if (cost) {
    menu.addItem({ command: CommandIDs.hint, args: { note: cost } });
  }
  menu.addItem({ type: 'separator' });
  if (kernel?.state === 'waiting') {
    menu.addItem({ command: CommandIDs.cancel, args });
  } else if (kernel && holds(kernel)) {
    menu.addItem({ command: CommandIDs.release, args });
    if (kernel.idle_release_at) {
      menu.addItem({ command: CommandIDs.keep, args });
    }
  } else {
    menu.addItem({ command: CommandIDs.acquire, args });
  }
  menu.addItem({ type: 'separator' });
  menu.addItem({ command: CommandIDs.details });
}

type Offer = ISize & { label: string; fixedNote?: string };

function addSize(
  menu: Menu,
  kernelId: string,
  kernel: IKernel | null,
  size: Offer,
  cost = ''
): void {
  const { gpus, partial, memory_mib, label, fixedNote } = size;
  menu.addItem({
    command: CommandIDs.request,
    args: {
      ...{ kernelId, gpus, partial, memory_mib, label },
      ...(fixedNote ? { note: fixedNote } : {}),
      ...(cost ? { cost } : {}),
      current: sameSize(size, kernel?.request ?? null)
    }
  });
}

/** What is free of a size; the server's own words where it has some. */
export function noteOf(size: IOfferedSize, bitfusion: IBitfusion): string {
  const { trans } = bitfusion;
  if (size.note === 'free now' || (!size.note && size.free_now)) {
    return size.free_now ? trans.__('%1 free now', size.free_now) : trans.__('free now');
  }
  return size.note;
}
