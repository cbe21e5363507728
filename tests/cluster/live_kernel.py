"""A kernel of a Jupyter server elsewhere whose cells are looked at while they run, as a person does."""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import Any

import websocket

from tests.cluster.notebook_client import _ANSI
from tests.cluster.served_notebook import JupyterServer
from tests.support.machine import scaled
from tests.support.waiting import wait_until


class LiveCell:
    """One cell that was sent.

    Attributes:
        text: All that it has printed and shown so far; what is shown anew stands behind the old.
        status: `ok` or `error` once it has ended, else empty.
        error: The traceback without colours; empty where there is none.
        seconds: From its sending to its end.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self.text = ""
        self.status = ""
        self.error = ""
        self.seconds = 0.0
        self._sent = time.monotonic()
        self._reply = ""
        self._idle = False

    @property
    def all(self) -> str:
        """What a person reads below it."""
        return self.text + self.error

    def until_shown(self, words: str, limit_s: float = 60) -> str:
        """Until these words stand below it."""
        wait_until(lambda: words in self.all, lambda: f"{words!r} below {self.code!r}: {self.all}", limit_s)
        return self.all

    def finish(self, limit_s: float = 120) -> LiveCell:
        """Until it has ended."""
        wait_until(lambda: self.status, lambda: f"the end of {self.code!r}: {self.all}", limit_s)
        return self

    def until_lost(self, limit_s: float = 60) -> LiveCell:
        """Until it says that its kernel is gone; Jupyter sends nothing more of such a cell."""
        wait_until(lambda: self.error, lambda: f"an error below {self.code!r}: {self.all}", limit_s)
        return self

    def take(self, message: dict[str, Any]) -> None:
        """One message about it."""
        kind, said = message["header"]["msg_type"], message["content"]
        if kind == "stream":
            self.text += said["text"]
        elif kind in ("execute_result", "display_data", "update_display_data"):
            self.text += said["data"].get("text/plain", "") + "\n"
        elif kind == "error":
            self.error = _ANSI.sub("", "\n".join(said["traceback"]))
        elif kind == "status":
            self._idle = self._idle or said["execution_state"] == "idle"
        elif kind == "execute_reply":
            self._reply = said["status"]
        if self._reply and self._idle and not self.status:
            self.seconds = time.monotonic() - self._sent
            self.status = self._reply


class LiveKernel:
    """A kernel that was started for it; a context manager, which ends it."""

    def __init__(self, server: JupyterServer, name: str = "bitfusion", path: str = "work.ipynb") -> None:
        self._server = server
        asked = {"path": path, "name": path, "type": "notebook", "kernel": {"name": name}}
        self._session: dict[str, Any] = server.ask("POST", "/api/sessions", asked)
        self.id = str(self._session["kernel"]["id"])
        self._cells: dict[str, LiveCell] = {}
        self._restarts = 0
        address = f"{server.url.replace('http', 'ws', 1)}/api/kernels/{self.id}/channels"
        self._plug = websocket.create_connection(
            address, timeout=scaled(30), cookie=server.headers().get("Cookie"), http_no_proxy=["*"]
        )
        self._plug.settimeout(None)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> LiveKernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, code: str) -> LiveCell:
        """Send a cell."""
        identifier = uuid.uuid4().hex
        cell = self._cells[identifier] = LiveCell(code)
        header = {"msg_id": identifier, "msg_type": "execute_request", "username": "", "session": self.id}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        content |= {"user_expressions": {}, "stop_on_error": True}
        message = {"header": {**header, "version": "5.3", "date": ""}, "parent_header": {}, "metadata": {}}
        self._plug.send(json.dumps({**message, "content": content, "channel": "shell", "buffers": []}))
        return cell

    def run(self, code: str, limit_s: float = 120) -> LiveCell:
        """Send a cell and wait for its end."""
        return self.start(code).finish(limit_s)

    @property
    def restarts(self) -> int:
        """How often Jupyter has started it anew, because it had died."""
        return self._restarts

    def wait_restarted(self, before: int, limit_s: float = 30) -> None:
        """Until it was started anew once more: what is sent to a dead one is lost."""
        wait_until(lambda: self._restarts > before, "the kernel is started anew", limit_s)

    def interrupt(self) -> None:
        """JupyterLab's stop button."""
        self._server.ask("POST", f"/api/kernels/{self.id}/interrupt")

    def end(self) -> None:
        """Shut it down."""
        try:
            self._server.ask("DELETE", f"/api/sessions/{self._session['id']}")
        except OSError:
            pass  # its server is gone
        self._plug.close()
        self._reader.join(scaled(10))

    def _read(self) -> None:
        while True:
            try:
                text = self._plug.recv()
            except (OSError, websocket.WebSocketException):
                return
            if not text:
                return
            message = json.loads(text)
            if message["content"].get("execution_state") in ("restarting", "autorestarting"):
                self._restarts += 1
            cell = self._cells.get(message["parent_header"].get("msg_id", ""))
            if cell is not None:
                cell.take(message)
