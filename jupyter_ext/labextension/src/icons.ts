import { LabIcon } from '@jupyterlab/ui-components';

const box = (inside: string): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">${inside}</svg>`;

const card =
  'M1 2h1.5v1.5H14A1 1 0 0 1 15 4.5v6a1 1 0 0 1-1 1h-2V13H5v-1.5H2.5V14H1zM2.5 5v5h11V5zM6 5.6a1.9 1.9 0 1 1 0 3.8 1.9 1.9 0 0 1 0-3.8m0 1.2a.7.7 0 1 0 0 1.4.7.7 0 0 0 0-1.4M9.2 6H12v1.2H9.2zm0 1.9H12v1.2H9.2z';

/** A graphics card: of the panel and the Running panel. */
export const gpuIcon = new LabIcon({
  name: 'kubeflow-bitfusion:gpu',
  svgstr: box(
    `<path class="jp-icon3 jp-icon-selectable" fill="#616161" fill-rule="evenodd" d="${card}"/>`
  )
});

/** The same as a picture: tiles beside those of kernels have one. */
export const gpuIconUrl = `data:image/svg+xml,${encodeURIComponent(
  box(`<path fill="#1e88e5" fill-rule="evenodd" d="${card}"/>`)
)}`;

const phase = (name: string, inside: string): LabIcon =>
  new LabIcon({
    name: `kubeflow-bitfusion:${name}`,
    svgstr: box(inside)
  });

const ring =
  '<circle class="jp-icon3" stroke="none" fill="#616161" cx="8" cy="8" r="5.5"/>';
const hole = (inside: string): string =>
  `<path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="M8 2.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11m0 1.4a4.1 4.1 0 1 0 0 8.2 4.1 4.1 0 0 0 0-8.2"/>${inside}`;

/** States differ in shape, not in colour alone: an empty ring, a clock, a full disc, a half one. */
export const noneIcon = phase('none', hole(''));
export const waitingIcon = phase(
  'waiting',
  hole('<path class="jp-icon3" fill="#616161" d="M7.4 5h1.2v2.8l1.9 1.3-.7 1-2.4-1.6z"/>')
);
export const heldIcon = phase('held', ring);
export const idleIcon = phase(
  'idle',
  hole('<path class="jp-icon3" fill="#616161" d="M8 3.4a4.6 4.6 0 0 1 0 9.2z"/>')
);
