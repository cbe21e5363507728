import { errorOf } from '../errors';

test('an error of the extension says what to do', () => {
  const answer = { code: 'refused', message: 'No.', next_step: 'Ask for less.' };
  const error = errorOf(409, answer);
  expect([error.code, error.text]).toEqual(['refused', 'No. Ask for less.']);
});

test.each([
  [404, null, 'missing', 'HTTP 404'],
  [404, { message: 'Not Found' }, 'missing', 'Not Found'],
  [502, null, 'internal', 'HTTP 502'],
  [403, { message: 'Forbidden' }, 'internal', 'Forbidden']
])('status %d with %j', (status, answer, code, text) => {
  const error = errorOf(status, answer);
  expect([error.code, error.text]).toEqual([code, text]);
});
