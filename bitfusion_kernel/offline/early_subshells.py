"""Subshells that clients create before there is a kernel. Pure.

JupyterLab 4 creates one for widgets as soon as a notebook is opened, and waits for its id. Opening a notebook
takes no GPU, so the proxy gives the id itself; when the kernel has come, a subshell is created there for
each, and what is sent to the one goes to the other:

    create_subshell_request         an id of ours                  `create`
    the kernel has come             one request for each id        `asked`
    the kernel replies              the two ids belong together    `created`
    a request names our id          the kernel's id is sent        `to_kernel`
    the kernel lists its ids        ours are listed                `to_client`

The kernel's own replies and output name its own id as that of their parent; no client looks at it there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bitfusion_kernel.protocol.wire import DELIMITER, Wire

MOST = 100
"""A kernel makes a thread for each, and is asked for all in one go."""

_HEADER = 2
"""Parts of a message behind the delimiter: signature, header, parent header, metadata, content."""
_CONTENT = 5


class EarlySubshells:
    """The proxy has one: `OfflineReplies` fills it, `ControlRequests` hands it over to the kernel."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ids: list[str] = []
        self._asked: dict[str, str] = {}
        self._to_kernel: dict[bytes, bytes] = {}

    # -- without a kernel ------------------------------------------------------------------------

    @property
    def ids(self) -> list[str]:
        """Those that have been created and not deleted, oldest first."""
        return list(self._ids)

    def create(self) -> str | None:
        """The id of a new one, of the form that ipykernel gives; None if there are too many."""
        from uuid import uuid4

        if len(self._ids) >= MOST:
            return None
        self._ids.append(str(uuid4()))
        return self._ids[-1]

    def delete(self, subshell: Any) -> bool:
        """Forget one; False if there is none of this id, which may be anything that a client sent."""
        if subshell not in self._ids:
            return False
        self._ids.remove(subshell)
        return True

    # -- handover --------------------------------------------------------------------------------

    def asked(self, subshell: str, request_id: str) -> None:
        """The kernel has been sent the request `request_id` to create this one."""
        self._asked[request_id] = subshell

    def created(self, request_id: str, content: dict[str, Any]) -> bool:
        """The kernel has replied to a request of the proxy; whether it was one of these.

        Where the kernel refused, what is sent to the subshell is left to the kernel, as for any unknown id.
        """
        subshell = self._asked.pop(request_id, None)
        if subshell is None:
            return False
        real = content.get("subshell_id")
        if isinstance(real, str):
            self._to_kernel[_quoted(subshell)] = _quoted(real)
        return True

    @property
    def awaited(self) -> bool:
        """Whether the kernel has still to create some."""
        return bool(self._asked)

    def awaits(self, subshell: str | None) -> bool:
        """Whether requests to this subshell must wait until the kernel has created it."""
        return subshell in self._asked.values()

    # -- with a kernel ---------------------------------------------------------------------------

    def to_kernel(self, frames: list[bytes], *, deletes: bool = False) -> list[bytes]:
        """A request as the kernel must get it. `deletes`: it names a subshell in its content, too."""
        if not self._to_kernel:
            return frames
        parts = (_HEADER, _CONTENT) if deletes else (_HEADER,)
        return self._replaced(frames, parts, self._to_kernel.items())

    def to_client(self, frames: list[bytes]) -> list[bytes]:
        """A `list_subshell_reply` of the kernel as clients must get it."""
        return self._replaced(frames, (_CONTENT,), ((real, ours) for ours, real in self._to_kernel.items()))

    def _replaced(
        self, frames: list[bytes], parts: Iterable[int], pairs: Iterable[tuple[bytes, bytes]]
    ) -> list[bytes]:
        frames, start = list(frames), frames.index(DELIMITER)
        before = frames[start:]
        for old, new in pairs:
            for part in parts:
                frames[start + part] = frames[start + part].replace(old, new)
        if frames[start:] != before:
            frames[start + 1] = self._wire.sign(frames[start + _HEADER : start + _CONTENT + 1])
        return frames


def _quoted(subshell: str) -> bytes:
    return b'"' + subshell.encode() + b'"'
