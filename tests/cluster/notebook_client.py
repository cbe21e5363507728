"""What a browser does with a notebook's server in Kubeflow: lists kernels, shows their logos, runs cells.

    server = NotebookServer("http://10.0.0.7:8888/notebook/team/mine")
    cell = server.run("bitfusion", ["print(6 * 7)"])[0]

`python -m tests.cluster.notebook_client URL KERNEL CODE …` prints the same as JSON, for servers that only a
process in another network namespace reaches.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import Any

import websocket

from tests.support.machine import scaled

_CELL_LIMIT_S = 120.0
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class RunCell:
    """What came back for a cell.

    Attributes:
        text: All it printed, and the plain text of what it displayed and returned.
        status: Of its reply: `ok`, `error`, `aborted`.
        error: The traceback without colours; empty where there is none.
    """

    text: str = ""
    status: str = ""
    error: str = ""


class NotebookServer:
    """A Jupyter server without a token, below the prefix that Kubeflow gives it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._cookies = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self._cookies)
        )

    def fetch(self, path: str, method: str = "GET", content: Any = None) -> bytes:
        """The body of an answer. Raises OSError, also for a status of 400 and more."""
        data = None if content is None else json.dumps(content).encode()
        # Cookies come by themselves.
        headers = {"Content-Type": "application/json", **self.headers()}
        headers.pop("Cookie", None)
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with self._opener.open(request, timeout=scaled(30)) as answer:
            body: bytes = answer.read()
        return body

    def headers(self) -> dict[str, str]:
        """By which the server takes a change for its own page's, once that page was asked for (`answers`)."""
        found = [cookie.value for cookie in self._cookies if cookie.name == "_xsrf" and cookie.value]
        return {"X-XSRFToken": found[0], "Cookie": f"_xsrf={found[0]}"} if found else {}

    def answers(self) -> bool:
        """Whether JupyterLab's page is there, which also sets the cookie that changes need."""
        try:
            return b"jupyter-config-data" in self.fetch("/lab")
        except OSError:
            return False

    def kernels(self) -> dict[str, dict[str, Any]]:
        """The kernels of its launcher, by name."""
        specs: dict[str, dict[str, Any]] = json.loads(self.fetch("/api/kernelspecs"))["kernelspecs"]
        return specs

    def logo(self, kernel: str) -> bytes:
        """The picture on a kernel's tile: the vector one that JupyterLab prefers."""
        path = self.kernels()[kernel]["resources"]["logo-svg"]
        return self.fetch(
            path.removeprefix("/" + self.url.split("/", 3)[3]) if self.url.count("/") > 2 else path
        )

    def run(self, kernel: str, cells: Sequence[str]) -> list[RunCell]:
        """Run cells in a new kernel, one after the other, and shut it down."""
        identifier = json.loads(self.fetch("/api/kernels", "POST", {"name": kernel}))["id"]
        try:
            address = self.url.replace("http", "ws", 1) + f"/api/kernels/{identifier}/channels"
            cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self._cookies)
            plug = websocket.create_connection(
                address, timeout=scaled(_CELL_LIMIT_S), cookie=cookies, http_no_proxy=["*"]
            )
            try:
                return [_run(plug, code) for code in cells]
            finally:
                plug.close()
        finally:
            self.fetch(f"/api/kernels/{identifier}", "DELETE")


def _run(plug: websocket.WebSocket, code: str) -> RunCell:
    identifier = uuid.uuid4().hex
    header = {"msg_id": identifier, "msg_type": "execute_request", "username": "", "session": identifier}
    header |= {"version": "5.3", "date": ""}
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
    content |= {"user_expressions": {}, "stop_on_error": True}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    plug.send(json.dumps({**message, "channel": "shell", "buffers": []}))
    cell, idle = RunCell(), False
    end = time.monotonic() + scaled(_CELL_LIMIT_S)
    while not (idle and cell.status):
        if time.monotonic() > end:
            raise TimeoutError(f"no end of {code!r}; so far: {cell}")
        got = json.loads(plug.recv())
        if got["parent_header"].get("msg_id") != identifier:
            continue
        kind, said = got["header"]["msg_type"], got["content"]
        if kind == "status":
            idle = idle or said["execution_state"] == "idle"
        elif kind == "execute_reply":
            cell.status = said["status"]
        elif kind == "stream":
            cell.text += said["text"]
        elif kind in ("execute_result", "display_data"):
            cell.text += said["data"].get("text/plain", "") + "\n"
        elif kind == "error":
            cell.error = _ANSI.sub("", "\n".join(said["traceback"]))
    return cell


def main() -> None:
    """See the head of this file; `LIST` for KERNEL asks for kernels and their logos only."""
    url, kernel, *cells = sys.argv[1:]
    server = NotebookServer(url)
    if not server.answers():
        sys.exit(f"nobody answers at {url}")
    specs = server.kernels()
    told: dict[str, Any] = {"kernels": {name: spec["spec"]["display_name"] for name, spec in specs.items()}}
    if kernel == "LIST":
        told["logos"] = {name: server.logo(name).decode() for name in specs}
    else:
        told["cells"] = [vars(cell) for cell in server.run(kernel, cells)]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
