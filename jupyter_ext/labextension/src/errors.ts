import { IErrorAnswer } from './types';

/** An answer other than success. `missing`: this server has no such extension. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly nextStep = ''
  ) {
    super(message);
    this.name = 'ApiError';
  }

  /** For a person: what is wrong, then what to do. */
  get text(): string {
    return [this.message, this.nextStep].filter(Boolean).join(' ');
  }
}

/** The typed error of an answer; proxies and Jupyter itself answer in forms of their own. */
export function errorOf(status: number, answer: unknown): ApiError {
  const told = (answer ?? {}) as Partial<IErrorAnswer>;
  if (typeof told.code === 'string') {
    return new ApiError(told.code, told.message ?? told.code, told.next_step);
  }
  const message = told.message ?? `HTTP ${status}`;
  return new ApiError(status === 404 ? 'missing' : 'internal', message);
}
