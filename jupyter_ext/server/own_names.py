"""By which names the pool knows the user of this server, so that a page can tell mine from others'.

It is for showing only: nobody may do more for being called so.
"""

from __future__ import annotations

import os
import pwd

from bitfusion_client.pod.pod_contract import CLIENT_FOLDER
from bitfusion_client.pod.this_pod import this_pod


def own_names(folder: str = CLIENT_FOLDER) -> tuple[str, ...]:
    """The beginnings of what the client prints for a holder or waiter that is this user.

    In a pod everybody may be the same user, so its Notebook is looked for. `folder` is that of an injected
    client.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    pod = this_pod(folder)
    if pod is None:
        return (f"{user}: ",)
    return (f"{user}: {pod.place}: ", f"{pod.namespace}: {pod.place}: ", f"{pod.place}: ", f"{pod.name}-")
