"""The registry's API: digests, sizes, credentials. The real one is Debian's, in test_images_made.py."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tools.images import registry
from tools.images.registry import Pushed, RegistryFailed

DIGEST = "sha256:" + "0" * 64
INDEX = {
    "manifests": [
        {"digest": "sha256:a", "platform": {"os": "linux", "architecture": "amd64"}},
        {"digest": "sha256:b", "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": "sha256:c", "platform": {"os": "unknown", "architecture": "unknown"}},
    ]
}
CONFIG = {"os": "linux", "config": {"User": "65532:65532", "Labels": {"a": "b"}}}
FILES: dict[str, Any] = {
    "/v2/team/pool/manifests/1": INDEX,
    "/v2/team/pool/manifests/sha256:a": {"config": {"digest": "x"}, "layers": [{"size": 10}, {"size": 2}]},
    "/v2/team/pool/manifests/sha256:b": {"config": {"digest": "y"}, "layers": [{"size": 11}]},
    "/v2/team/pool/blobs/x": {**CONFIG, "architecture": "amd64"},
    "/v2/team/pool/blobs/y": {"os": "linux", "architecture": "arm64"},
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Wants a token for `ada`, as Docker Hub does, or the password itself."""

    scheme = ""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        given = self.headers.get("Authorization", "")
        ada = f"Basic {base64.b64encode(b'ada:secret').decode()}"
        if path == "/token":
            assert query == "service=here&scope=repository%3Ateam%2Fpool%3Apull"
            return self.answer(200 if given == ada else 401, {"token": "t"})
        if given != {"": "", "Basic": ada, "Bearer": "Bearer t"}[self.scheme]:
            realm = f'realm="http://{self.headers["Host"]}/token",service="here",scope="repository:team/pool:pull"'
            return self.answer(401, {}, {"WWW-Authenticate": f"{self.scheme} {realm}"})
        return self.answer(200 if path in FILES else 404, FILES.get(path, {}))

    def answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Docker-Content-Digest", DIGEST)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server(scheme: str = "") -> Iterator[str]:
    own = type("Own", (Handler,), {"scheme": scheme})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), own) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{found.server_port}"
        finally:
            found.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _nobodys_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_CONFIG", "XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_the_images_of_a_list_with_their_sizes() -> None:
    with server() as host:
        assert registry.images(f"{host}/team/pool:1", insecure=True) == [
            Pushed("linux/amd64", (10, 2), "65532:65532", {"a": "b"}),
            Pushed("linux/arm64", (11,), "", {}),
        ]
        assert registry.digest(f"{host}/team/pool:1", insecure=True) == DIGEST


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_passwords_are_those_that_a_login_has_left(scheme: str, tmp_path: Path) -> None:
    with server(scheme) as host:
        told = {"auths": {host: {"auth": base64.b64encode(b"ada:secret").decode()}}}
        (tmp_path / "config.json").write_text(json.dumps(told))
        assert len(registry.images(f"{host}/team/pool:1", insecure=True)) == 2
        told["auths"][host]["auth"] = base64.b64encode(b"ada:wrong").decode()
        (tmp_path / "config.json").write_text(json.dumps(told))
        with pytest.raises(RegistryFailed, match="answers 401 Unauthorized"):
            registry.images(f"{host}/team/pool:1", insecure=True)


def test_a_helper_is_asked_for_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-mine"
    helper.write_text('#!/bin/sh\ncat > "$HOME/asked"\necho \'{"Username": "ada", "Secret": "secret"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "config.json").write_text('{"credsStore": "mine"}')
    with server("Basic") as host:
        assert registry.digest(f"{host}/team/pool:1", insecure=True) == DIGEST
        assert (tmp_path / "asked").read_text() == host


def test_the_longest_name_counts() -> None:
    told = {"auths": {"a.b": {"auth": "1"}, "https://a.b/c/": {"auth": "2"}, "a.b/c/d": {"auth": "3"}}}
    for repository, found in (("a.b/x", "1"), ("a.b/c/x", "2"), ("a.b/c/d", "3"), ("a.bc/x", "")):
        assert registry.credentials(told, repository) == found
    hub = {"auths": {"https://index.docker.io/v1/": {"auth": "4"}}}
    assert registry.credentials(hub, "docker.io/library/python") == "4"


@pytest.mark.parametrize(
    "answer", [[], "page", {"manifests": [{}]}, {"manifests": 1}, {"config": {}}, {"config": {"digest": "z"}}]
)
def test_an_answer_that_is_no_registrys_is_an_error_in_words(
    answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, "/v2/team/pool/manifests/1", answer)
    monkeypatch.setitem(FILES, "/v2/team/pool/blobs/z", {"config": 1})
    with server() as host, pytest.raises(RegistryFailed, match=f"^{host}/team/pool:1: .* no registry"):
        registry.images(f"{host}/team/pool:1", insecure=True)


@pytest.mark.parametrize("told", ["[]", '{"auths": []}', '{"auths": {"HOST": null}}', '{"credHelpers": 1}'])
def test_a_file_of_passwords_of_another_shape_has_none(told: str, tmp_path: Path) -> None:
    with server("Basic") as host:
        (tmp_path / "config.json").write_text(told.replace("HOST", host))
        with pytest.raises(RegistryFailed, match="answers 401 Unauthorized"):
            registry.digest(f"{host}/team/pool:1", insecure=True)


def test_what_cannot_be_told_is_an_error_in_words() -> None:
    with server() as host:
        with pytest.raises(RegistryFailed, match=f"{host}/team/none: {host} answers 404"):
            registry.digest(f"{host}/team/none:1", insecure=True)
        with pytest.raises(RegistryFailed, match=rf"{host}/team/pool: {host} does not answer: .*SSL"):
            registry.digest(f"{host}/team/pool:1")
    with pytest.raises(RegistryFailed, match=r"does not answer: .*refused"):
        registry.digest(f"{host}/team/pool:1", insecure=True)
