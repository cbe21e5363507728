import { Model } from './model';
import { IKernel } from './types';
import { IWords, holds, sizeText } from './words';

/**
 * Marks the kernels that hold a GPU in JupyterLab's own list of running kernels, which has no place
 * for it: by style rules for the title of an entry, which has the kernel's id.
 */
export function markKernels(model: Model, trans: IWords): void {
  const style = document.createElement('style');
  document.head.appendChild(style);
  model.changed.connect(() => {
    const rules = marks(model.kernels, trans);
    if (rules !== style.textContent) {
      style.textContent = rules;
    }
  });
}

/** Pure: one rule for each that holds. */
export function marks(kernels: IKernel[], trans: IWords): string {
  return kernels
    .filter(holds)
    .map(kernel => {
      const text = kernel.request ? sizeText(kernel.request, trans) : trans.__('GPU');
      return `.jp-RunningSessions-itemLabel[title*="${escaped(kernel.id)}"]::before{content:"${escaped(text)}"}`;
    })
    .join('\n');
}

/** Nothing ends a string of CSS, or the element in which it stands. */
function escaped(text: string): string {
  return text.replace(
    /[^\w -]/gu,
    sign => `\\${(sign.codePointAt(0) ?? 0).toString(16)} `
  );
}
