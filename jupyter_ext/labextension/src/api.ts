import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { ApiError, errorOf } from './errors';
import { ISize, IState, IVerbAnswer, Verb } from './types';

export class Api {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  state(): Promise<IState> {
    return this.ask<IState>('state');
  }

  tell(kernelId: string, verb: Verb, body: object = {}): Promise<IVerbAnswer> {
    const path = `kernels/${encodeURIComponent(kernelId)}/${verb}`;
    return this.ask<IVerbAnswer>(path, {
      method: 'POST',
      keepalive: true, // also from a page that is being left
      body: JSON.stringify(body)
    });
  }

  request(kernelId: string, size: ISize, now: boolean): Promise<IVerbAnswer> {
    const { gpus, partial, memory_mib } = size;
    return this.tell(kernelId, 'request', { gpus, partial, memory_mib, now });
  }

  private async ask<T>(path: string, init: RequestInit = {}): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, 'bitfusion', 'api', path);
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this.settings);
    } catch (error) {
      throw new ApiError('out_of_reach', String(error));
    }
    const text = await response.text();
    const answer = parsed(text);
    if (response.ok && answer !== null) {
      return answer as T;
    }
    throw errorOf(response.status, answer);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
