"""Whether this process runs in a pod with an injected client, and what the pod's files say of it.

For our clients and the kernel, which run inside. The files are written once, by the init container, and are
mounted read-only; an ordinary machine has none of them.
"""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import dataclass
from bitfusion_client.pod import pod_contract as pod

_MOST_BYTES = 4096  # a name has 253 characters at most, a request a few dozen


@dataclass(frozen=True, slots=True)
class ThisPod:
    """What the files say; a file that is missing or unreadable counts as empty.

    Attributes:
        name: Of the pod.
        namespace: Its namespace.
        notebook: The Notebook it belongs to; empty for other pods.
        container: The container in which we run.
        request: Its budget in options, ``-n 2 -p 0.5``.
        client: The kind of client, one of `pod_contract.KINDS`.
        uid: Of the pod.
        units: Its budget in percent × amount.
    """

    name: str
    namespace: str
    notebook: str
    container: str
    request: str
    client: str
    uid: str = ""
    units: str = ""

    @property
    def place(self) -> str:
        """``team-a/mnist``: how others see who holds GPUs here."""
        return f"{self.namespace}/{self.notebook or self.name}"

    def describe(self) -> str:
        """``team-a/digits-0, container digits``, for a person."""
        from bitfusion_client.one_line import one_line

        return one_line(f"{self.namespace}/{self.name}, container {self.container}")


def is_injected(folder: str = pod.CLIENT_FOLDER) -> bool:
    """Whether a client was injected into this container."""
    return os.path.lexists(f"{folder}/{pod.POD_FOLDER}")


def this_pod(folder: str = pod.CLIENT_FOLDER) -> ThisPod | None:
    """What the pod's files say; None where no client was injected."""
    if not is_injected(folder):
        return None
    files = (
        pod.NAME_FILE,
        pod.NAMESPACE_FILE,
        pod.NOTEBOOK_FILE,
        pod.CONTAINER_FILE,
        pod.REQUEST_FILE,
        pod.CLIENT_FILE,
        pod.UID_FILE,
        pod.UNITS_FILE,
    )
    return ThisPod(*(_read(f"{folder}/{pod.POD_FOLDER}/{name}") for name in files))


def _read(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, _MOST_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(fd)
