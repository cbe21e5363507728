import { Notification } from '@jupyterlab/apputils';

import { CommandIDs, IBitfusion } from './tokens';
import { ChangedEvent, NoticeKind } from './types';

type Notice = Extract<ChangedEvent, { what: 'notice' }>;

const TYPES: Record<NoticeKind, Notification.TypeOptions> = {
  someone_waits: 'warning',
  idle_release_soon: 'warning',
  granted: 'success',
  lease_ended: 'info',
  pool_lost: 'error',
  pool_back: 'success'
};

const STAYS: NoticeKind[] = ['someone_waits', 'idle_release_soon', 'pool_lost'];

/** JupyterLab's notifications of what the server tells; a newer one of a kind takes the place of the last. */
export class Notices {
  constructor(private readonly bitfusion: IBitfusion) {}

  show(notice: Notice): void {
    const { settings } = this.bitfusion;
    const type = TYPES[notice.kind];
    if (!type || settings?.get('notifications').composite === false) {
      return;
    }
    this.dismissOthers(notice);
    const { kind, kernel_id } = notice;
    if (kind === 'lease_ended' && this.bitfusion.actions.hasJustReleased(kernel_id)) {
      return;
    }
    const key = keyOf(notice.kind, notice.kernel_id);
    const id = Notification.emit(this.withTitle(notice), type, {
      autoClose: STAYS.includes(notice.kind) ? false : 8000,
      actions: this.actionsOf(notice)
    });
    this._shown.set(key, id);
  }

  /** What a notice asked about is over. */
  private dismissOthers({ kind, kernel_id }: Notice): void {
    const over: NoticeKind[] = [kind];
    if (kind === 'lease_ended') {
      over.push('someone_waits', 'idle_release_soon', 'granted');
    } else if (kind === 'pool_back') {
      over.push('pool_lost');
    }
    for (const each of over) {
      this.dismiss(keyOf(each, kernel_id));
    }
  }

  private dismiss(key: string): void {
    const id = this._shown.get(key);
    if (id) {
      Notification.dismiss(id);
      this._shown.delete(key);
    }
  }

  private withTitle({ kernel_id, message }: Notice): string {
    const title = this.bitfusion.model.kernel(kernel_id)?.title;
    return title && !message.includes(title) ? `${title}: ${message}` : message;
  }

  private actionsOf({ kind, kernel_id }: Notice): Notification.IAction[] {
    const { actions, app, model, trans } = this.bitfusion;
    const details: Notification.IAction = {
      label: trans.__('Details'),
      callback: () => void app.commands.execute(CommandIDs.details)
    };
    if (kind === 'pool_lost') {
      return [details];
    }
    const asks = kind === 'someone_waits' || kind === 'idle_release_soon';
    if (!asks || !kernel_id || !model.canChange) {
      return [];
    }
    return [
      {
        label: trans.__('Release'),
        displayType: 'warn',
        callback: () => void actions.release(kernel_id)
      },
      {
        label: trans.__('Keep'),
        displayType: 'accent',
        callback: () => void actions.keep(kernel_id)
      }
    ];
  }

  private readonly _shown = new Map<string, string>();
}

function keyOf(kind: NoticeKind, kernelId: string | null): string {
  return `${kind} ${kernelId ?? ''}`;
}
