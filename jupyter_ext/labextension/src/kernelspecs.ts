import { KernelSpec } from '@jupyterlab/services';

/** The key in a kernelspec's metadata by which `bitfusion-kernel install` marks its own. */
const MARK = 'bitfusion';

type Specs = KernelSpec.ISpecModels | null;

export function isBitfusion(specs: Specs, name: string | null | undefined): boolean {
  const mark = name ? specs?.kernelspecs[name]?.metadata?.[MARK] : undefined;
  return typeof mark === 'object' && mark !== null;
}

/** The kernel of a new GPU notebook: the server's default if that is one, else the first by name. */
export function chosenSpec(specs: Specs): string | null {
  if (!specs) {
    return null;
  }
  if (isBitfusion(specs, specs.default)) {
    return specs.default;
  }
  const names = Object.keys(specs.kernelspecs).sort();
  // a Python kernel before others that are wrapped
  return (
    names.find(
      name => isBitfusion(specs, name) && specs.kernelspecs[name]?.language === 'python'
    ) ??
    names.find(name => isBitfusion(specs, name)) ??
    null
  );
}
