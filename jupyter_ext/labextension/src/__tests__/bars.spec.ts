import { heldShare, historyPath, partsOf } from '../bars';
import { IGpu } from '../types';

const gpu: IGpu = {
  index: 0,
  name: 'Tesla V100',
  simulated: false,
  free_mib: 4000,
  total_mib: 16000,
  holders: [
    { text: 'grace', mine: false, mib: 4000 },
    { text: 'ada', mine: true, mib: 8000 }
  ],
  notes: []
};

test('mine stands first, and each is as long as what it holds', () => {
  const parts = partsOf(gpu).map(({ kind, share }) => [kind, share]);
  expect(parts).toEqual([
    ['mine', 0.5],
    ['others', 0.25]
  ]);
  expect(heldShare(gpu)).toBe(0.75);
});

test('who holds an unknown part gets what is left', () => {
  const holders = [{ text: 'grace', mine: false, mib: null }];
  expect(partsOf({ ...gpu, holders })[0]?.share).toBe(0.75);
});

test('what is held by nobody in particular is held by others', () => {
  expect(partsOf({ ...gpu, holders: [] })).toEqual([
    { kind: 'others', share: 0.75, text: '' }
  ]);
});

test('a GPU without figures is held or free', () => {
  const unknown = { ...gpu, free_mib: null, total_mib: null };
  expect(heldShare(unknown)).toBe(1);
  expect(heldShare({ ...unknown, holders: [] })).toBe(0);
});

test('the history is drawn in steps', () => {
  const moments = [
    { at: 0, held: 0, total: 2, waiting: 0 },
    { at: 50, held: 1, total: 2, waiting: 0 },
    { at: 100, held: 2, total: 2, waiting: 1 }
  ];
  expect(historyPath(moments, 200, 40)).toBe('M0,40H100V20H200V0');
  expect(historyPath(moments.slice(0, 1), 200, 40)).toBe('');
  expect(historyPath([], 200, 40)).toBe('');
});
