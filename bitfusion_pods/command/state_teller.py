"""Says in an annotation of the GPU pod what the kernel in it does, for everybody who may see the pod.

A thread of its own, with a connection of its own: however slowly the API answers, the stream goes on, and the
command's end, which is `os._exit`, waits for nobody. Trouble is passed over: what is shown is then older.
"""

from __future__ import annotations

import json
import signal
import threading
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.activity_file import ActivityFile, read_activity
from bitfusion_client.pod.pod_contract import ANNOTATION_STATE
from bitfusion_pods.api.client import Api, ApiError, pods

if TYPE_CHECKING:
    from typing import Any

    from bitfusion_client.kernel_state.activity import KernelActivity
    from bitfusion_pods.api.account import Account

TELL_S = 5.0
"""Seconds from one PATCH to the next at least."""
LOOK_S = 1.0
_TRY_AGAIN = (409, 429)
"""Refusals that may pass, besides the server's own errors; after any other there is no more to be told."""


class StateTeller:
    """Of one pod.

    Args:
        path: The file in which the kernel says what it does, from `FILE_VARIABLE`.
        account: Whose rights it has.
        namespace: Of the pod.
        name: Of the pod.
    """

    def __init__(self, path: str, account: Account, namespace: str, name: str) -> None:
        self._file = ActivityFile(path, read_activity, TELL_S)
        self._account = account
        self._way = pods(namespace, name)

    def start(self) -> None:
        """Begin; it goes on until the process ends, or nobody may or can be told any more."""
        thread = threading.Thread(target=self._run, name="state", daemon=True)
        # signals are for the main thread, whose waits they end
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            thread.start()
        except RuntimeError:  # a pod with a limit on processes
            pass
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _run(self) -> None:
        api = Api(self._account)
        while self._look(api):
            time.sleep(LOOK_S)
        api.close()

    def _look(self, api: Api) -> bool:
        """Once; False where it was the last time."""
        activity = self._file.look(time.monotonic())
        if activity is None:
            return True
        try:
            api.merge(self._way, patch(activity))
        except ApiError as error:
            self._file.failed(time.monotonic())
            return error.status >= 500 or error.status in _TRY_AGAIN
        except Exception:  # whatever it is, a program's stderr is no place to tell it
            self._file.failed(time.monotonic())
        else:
            self._file.told(activity, time.monotonic())
        return True


def patch(activity: KernelActivity) -> dict[str, Any]:
    """A merge patch of the pod; it takes the annotation away where nothing is known any more."""
    told = {name: getattr(activity, name) for name in ("state", "since", "idle_since")}
    return {"metadata": {"annotations": {ANNOTATION_STATE: json.dumps(told) if activity.state else None}}}
