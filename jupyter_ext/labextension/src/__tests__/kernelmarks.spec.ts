import { marks } from '../kernelmarks';
import { HELD, kernel, plain } from './samples';

test('a rule for each kernel that holds a GPU, and none for others', () => {
  const kernels = [kernel(), kernel({ ...HELD, id: 'k-2' })];
  expect(marks(kernels, plain)).toBe(
    '.jp-RunningSessions-itemLabel[title*="k-2"]::before{content:"\\bd  GPU"}'
  );
});

test('nothing of a kernel ends a string or the element', () => {
  const sly = kernel({ ...HELD, id: '"]{} </style>\\\n' });
  const rule = marks([sly], plain);
  expect(rule.match(/"/g)).toHaveLength(4);
  expect(rule).not.toContain('<');
  expect(rule).not.toContain('\n');
  document.head.innerHTML = `<style>${rule}</style>`;
  expect(document.styleSheets[0]?.cssRules).toHaveLength(1);
});
