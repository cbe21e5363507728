"""How other users of the pool see this command: label, user, pid and host of a lease."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER
from bitfusion_client.pod.this_pod import this_pod
from bitfusion_pool.ledger.entries import Holder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_LENGTH = 60


def this_holder(program: Sequence[str], environ: Mapping[str, str], folder: str = CLIENT_FOLDER) -> Holder:
    """The holder of a lease that this process takes.

    Its label is BITFUSION_LABEL, else the notebook's name, else the first words of the program. In a pod the
    namespace and the Notebook stand before it, and for the host: a pod's own name says nothing to others.
    `folder` is that of an injected client.
    """
    import pwd

    label = environ.get("BITFUSION_LABEL") or os.path.basename(environ.get("JPY_SESSION_NAME", ""))
    if not label:
        label = " ".join([os.path.basename(program[0]), *program[1:3]]) if program else "request_gpus"
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    host = os.uname().nodename
    pod = this_pod(folder)
    if pod is not None:
        label, host = f"{pod.place}: {label}", pod.place
    return Holder(short_label(label), user, os.getpid(), host, os.getuid())


def short_label(label: str) -> str:
    """At most 60 characters, in one line, without the ``;`` that separates entries in the waiting line."""
    printable = "".join(letter if letter.isprintable() else " " for letter in label)
    flat = " ".join(printable.replace(";", ",").split())
    return flat if len(flat) <= _MAX_LENGTH else flat[: _MAX_LENGTH - 1] + "…"
