"""Which kernels a Jupyter server runs, by its own managers, and to which notebooks they belong."""

from __future__ import annotations

import contextlib
from typing import Any

from bitfusion_client.one_line import one_line
from jupyter_ext.server.overview import Document, Documents

LONGEST_TITLE = 200


class JupyterKernels:
    """Asks the managers of a Jupyter server. `kernels` and `sessions` are its own."""

    def __init__(self, kernels: Any, sessions: Any) -> None:
        self._kernels = kernels
        self._sessions = sessions

    def connection_files(self) -> dict[str, str]:
        """By the id of each kernel that runs on this machine; those of a gateway have none here."""
        files = {}
        for kernel_id in list(self._kernels.list_kernel_ids()):
            with contextlib.suppress(KeyError, AttributeError):  # it has just ended
                file = self._kernels.get_kernel(kernel_id).connection_file
                if isinstance(file, str) and file:
                    files[str(kernel_id)] = file
        return files

    async def documents(self) -> Documents:
        """Paths and names by the ids of kernels."""
        try:
            sessions = await self._sessions.list_sessions()
        except (
            Exception
        ):  # of another manager's: without it a kernel is shown by the name that it knows itself
            return {}
        return {
            str(session["kernel"]["id"]): _document(session) for session in sessions if session.get("kernel")
        }


def _document(session: Any) -> Document:
    path, name = str(session.get("path") or ""), str(session.get("name") or "")
    if session.get("type") == "notebook":
        return Document(path or None, one_line(name or path.rpartition("/")[2], LONGEST_TITLE))
    return Document(None, one_line(name or path, LONGEST_TITLE))
