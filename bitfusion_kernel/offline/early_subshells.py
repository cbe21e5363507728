"""Subshells that clients create before there is a kernel. Pure.

JupyterLab 4 creates one for widgets as soon as a notebook is opened, and waits for its id. Opening a notebook
takes no GPU, so the proxy gives the id itself; before the kernel is sent anything else it is asked to create
a subshell for each, under the same id:

    create_subshell_request         an id of ours                                  `create`
    the kernel answers              it is asked until it has what clients have     `requests`, `on_reply`

ipykernel takes our id, with the help of `magic.subshell_ids`. For a kernel that takes one of its own, what is
sent to it and what comes from it is translated: `renamed`, `to_kernel`, `to_client`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bitfusion_kernel.protocol.wire import DELIMITER, Message, Wire, is_type

MOST = 100
"""A kernel makes a thread for each, and is asked for all in one go."""

_HEADER, _PARENT_HEADER, _CONTENT = 2, 3, 5
"""Parts of a message behind the delimiter: signature, header, parent header, metadata, content."""


class EarlySubshells:
    """The proxy has one: `OfflineReplies` fills it, `KernelLink` hands it over to the kernel."""

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

    def begin(self) -> None:
        """Another kernel comes, which has none of them."""
        self._asked.clear()
        self._to_kernel.clear()

    def requests(self) -> list[list[bytes]]:
        """What the kernel has still to be asked, to have the subshells that clients have now.

        Called again when it has answered all of these: clients go on meanwhile.
        """
        if not self._ids and not self._asked:
            return []
        from bitfusion_kernel.magic.subshell_ids import SUBSHELL_ID

        requests = []
        for subshell in self._ids:
            if subshell not in self._asked:
                requests.append(self._wire.build("create_subshell_request", {SUBSHELL_ID: subshell}))
                self._asked[subshell] = self._wire.read(requests[-1]).id
        for subshell in [asked for asked in self._asked if asked not in self._ids]:
            del self._asked[subshell]
            delete = self._wire.build("delete_subshell_request", {"subshell_id": subshell})
            requests.append(self.to_kernel(delete))
        return requests

    def on_reply(self, reply: Message) -> None:
        """The kernel has replied to a request of the proxy, be it one of these or another.

        Where the kernel refused, what is sent to the subshell is left to the kernel, as for any unknown id.
        """
        request, real = reply.parent_header.get("msg_id"), reply.content.get("subshell_id")
        for subshell, asked in self._asked.items():
            if asked == request and isinstance(real, str) and real != subshell:
                self._to_kernel[_quoted(subshell)] = _quoted(real)

    # -- with a kernel ---------------------------------------------------------------------------

    @property
    def renamed(self) -> bool:
        """Whether the kernel calls some otherwise than clients do."""
        return bool(self._to_kernel)

    def to_kernel(self, frames: list[bytes]) -> list[bytes]:
        """A request as the kernel must get it."""
        if not self._to_kernel:
            return frames
        deletes = is_type(frames, b"delete_subshell_request")
        parts = (_HEADER, _CONTENT) if deletes else (_HEADER,)
        return self._replaced(frames, parts, self._to_kernel.items())

    def to_client(self, frames: list[bytes]) -> list[bytes]:
        """A reply or output of the kernel as clients must get it."""
        lists = is_type(frames, b"list_subshell_reply")
        parts = (_PARENT_HEADER, _CONTENT) if lists else (_PARENT_HEADER,)
        return self._replaced(frames, parts, ((real, ours) for ours, real in self._to_kernel.items()))

    def _replaced(
        self, frames: list[bytes], parts: Iterable[int], pairs: Iterable[tuple[bytes, bytes]]
    ) -> list[bytes]:
        start = frames.index(DELIMITER) if DELIMITER in frames else len(frames)
        if len(frames) <= start + _CONTENT:
            return frames  # no message
        changed = list(frames)
        for old, new in pairs:
            for part in parts:
                changed[start + part] = changed[start + part].replace(old, new)
        if changed == frames:
            return frames
        changed[start + 1] = self._wire.sign(changed[start + _HEADER : start + _CONTENT + 1])
        return changed


def _quoted(subshell: str) -> bytes:
    return b'"' + subshell.encode() + b'"'
