"""A real Jupyter server with the extension, and a page of it; every answer is checked by `openapi.yaml`."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from jsonschema import Draft202012Validator

import jupyter_ext.server
from tests.jupyter.jupyter_server import ServerProcess
from tests.support.machine import scaled

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
API = "/bitfusion/api"
OPENAPI: Json = yaml.safe_load((Path(jupyter_ext.server.__file__).parent / "openapi.yaml").read_text("utf-8"))

KUBEFLOW = ("--ServerApp.token=", "--ServerApp.password=", "--ServerApp.allow_origin=*")
"""As Kubeflow's images start a server: without a token, for pages of any origin, with XSRF's check."""

VERBS = [
    (method.upper(), path)
    for path, item in OPENAPI["paths"].items()
    for method in item
    if method in ("get", "post", "put", "patch", "delete")
]
"""All that `openapi.yaml` has, with ``{kernel_id}`` in the path."""

_EXTENSIONS = dict.fromkeys(
    ("jupyterlab", "jupyter_lsp", "notebook_shim", "jupyter_server_terminals"), False
) | {"jupyter_ext.server": True}
_XSRF = "0123456789abcdef0123456789abcdef"


@cache
def validator(name: str) -> Draft202012Validator:
    """Of a schema of `openapi.yaml`."""
    whole = {"$ref": f"#/components/schemas/{name}", "components": OPENAPI["components"]}
    return Draft202012Validator(whole)


def check(path: str, status: int, answer: Any) -> None:
    """Raise ValidationError unless it is what `openapi.yaml` says of this address."""
    if status != 200:
        validator("Error").validate(answer)
    elif path.count("/") == 1:
        validator(path[1:].capitalize()).validate(answer)
    else:
        validator("Done").validate(answer)


class ExtensionServer(ServerProcess):
    """One on a free port.

    Args:
        folder: Its root, and for its log.
        options: Beside those that every server here gets.
        headers: Of every request, besides those of a page.
        environment: Beside the test's own.
    """

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = KUBEFLOW,
        headers: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.headers = {"Cookie": f"_xsrf={_XSRF}", "X-XSRFToken": _XSRF, **(headers or {})}
        self._connection: http.client.HTTPConnection | None = None
        super().__init__(
            "jupyter_server",
            folder,
            [
                f"--ServerApp.root_dir={folder}",
                f"--ServerApp.jpserver_extensions={_EXTENSIONS}",
                *options,
            ],
            {"PYTHONPATH": str(ROOT), "JUPYTER_RUNTIME_DIR": str(folder / "runtime"), **(environment or {})},
        )

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of an answer, over one connection; `headers` in place of those of a page."""
        if self._connection is None:
            host = urlsplit(self.address).netloc
            self._connection = http.client.HTTPConnection(host, timeout=scaled(20))
        sent = self.headers if headers is None else headers
        try:
            self._connection.request(method, path, body, dict(sent))
            reply = self._connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        """The answer to a request of Jupyter's own."""
        body = None if content is None else json.dumps(content).encode()
        status, text = self.send(method, path, body)
        if status >= 400:
            raise OSError(status, text)
        return json.loads(text) if text else None

    def api(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        """Status and answer of the extension, as its contract says."""
        body = None if content is None else json.dumps(content).encode()
        status, text = self.send(method, API + path, body)
        answer = json.loads(text)
        check(path, status, answer)
        return status, answer

    def get(self, path: str) -> Any:
        """What is told."""
        status, answer = self.api("GET", path)
        assert status == 200, answer
        return answer

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        super().stop()
