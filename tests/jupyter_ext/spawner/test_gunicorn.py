"""The hook where it lives: named in GUNICORN_CMD_ARGS of a real gunicorn that serves the form's backend."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gunicorn.config import KNOWN_SETTINGS

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_client.kubernetes.notebook_changes import apply_changes, notebook_changes
from jupyter_ext.spawner.hook_bundle import hook_file
from tests.jupyter_ext.spawner.form_backend import VERSIONS, BackendVersion, find_python, write_backend
from tests.support.machine import scaled
from tests.support.waiting import wait_until

BODIES = [
    {"name": "half", "image": "x", "gpus": {"vendor": "bitfusion.io/gpu-50", "num": "1"}},
    {"name": "whole", "image": "x", "gpus": {"vendor": "bitfusion.io/gpu-amount", "num": "2"}},
    {"name": "none", "image": "x", "gpus": {"num": "none"}},
    {"name": "other", "image": "x", "gpus": {"vendor": "nvidia.com/gpu", "num": "1"}},
]
WRONG = {"name": "wrong", "image": "x", "gpus": {"vendor": "bitfusion.io/gpu-101", "num": "1"}}


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the socket's path."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self.path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


class Form:
    """A gunicorn that serves the stand-in backend, started as its image starts it."""

    def __init__(self, python: str, folder: Path, arguments: str, preload: bool = False) -> None:
        self.socket = folder / "s"
        self.log = folder / "log"
        command = [python, "-B", "-m", "gunicorn", "-w", "2", "--bind", f"unix:{self.socket}"]
        command += ["--preload"] if preload else []
        environ = {**os.environ, "GUNICORN_CMD_ARGS": arguments}
        environ.pop("PYTHONPATH", None)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "entrypoint:app"], cwd=folder, env=environ, stdout=log, stderr=subprocess.STDOUT
            )

    def listens(self) -> bool:
        connection = UnixConnection(self.socket)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError):  # bound first, listened to a little later
            return False
        finally:
            connection.close()
        return True

    def wait(self) -> None:
        wait_until(lambda: self.listens() or self.process.poll() is not None, self.log.read_text, 30)
        assert self.process.poll() is None, self.log.read_text()

    def post(self, body: object) -> tuple[int, Any]:
        connection = UnixConnection(self.socket)
        try:
            connection.request("POST", "/api/notebooks", json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())[1]
        finally:
            connection.close()

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(scaled(20))
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


@contextlib.contextmanager
def form(python: str, folder: Path, hook: Path | None, preload: bool = False) -> Iterator[Form]:
    running = Form(python, folder, f"--config {hook}" if hook else "", preload)
    try:
        running.wait()
        yield running
    finally:
        running.end()


def has_gunicorn(python: str) -> bool:
    return subprocess.run([python, "-c", "import gunicorn"], capture_output=True).returncode == 0


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    path = tmp_path / "bitfusion_form_hook.py"
    path.write_text(hook_file(DEFAULT_RULES), encoding="utf-8")
    return path


def pythons() -> list[Any]:
    """This Python with each way to read the number; the backend's own where it has gunicorn."""
    wanted = [
        pytest.param(version, sys.executable, id=f"{version.kubeflow}-here") for version in VERSIONS[1:3]
    ]
    for version in VERSIONS:
        python = find_python(version.python)
        if python and has_gunicorn(python):
            wanted.append(pytest.param(version, python, id=f"{version.kubeflow}-{version.python}"))
    return wanted


@pytest.mark.parametrize(("version", "python"), pythons())
def test_the_served_form_makes_the_same_notebooks_as_the_webhook(
    tmp_path: Path, hook: Path, version: BackendVersion, python: str
) -> None:
    folder = write_backend(tmp_path / "src", version)
    with form(python, folder, None) as plain:
        posted = [plain.post(body) for body in BODIES]
    with form(python, folder, hook) as hooked:
        answers = [hooked.post(body) for body in BODIES]
        refused = hooked.post(WRONG)
        # one of the two may have answered all before the other has begun
        wait_until(lambda: hooked.log.read_text().count(" is on") == 2, hooked.log.read_text, 30)
    assert answers == [
        (200, apply_changes(notebook, notebook_changes(notebook, DEFAULT_RULES))) for _, notebook in posted
    ]
    assert answers[:2] != posted[:2]
    assert answers[2:] == posted[2:]
    assert refused[0] == 400
    assert refused[1].startswith("bitfusion.io/gpu-101 is not a Bitfusion size")
    log = hooked.log.read_text()
    assert log.count("bitfusion form hook") == log.count(" is on") == 2  # each worker says so once
    assert "Traceback" not in log


def test_workers_forked_from_a_loaded_backend_have_the_hook_too(tmp_path: Path, hook: Path) -> None:
    folder = write_backend(tmp_path / "src", VERSIONS[-1])
    with form(sys.executable, folder, hook, preload=True) as running:
        for _ in range(8):
            assert "bitfusion-client/os" in running.post(BODIES[0])[1]["metadata"]["annotations"]


def test_a_form_without_the_function_is_served_and_the_log_says_why(tmp_path: Path, hook: Path) -> None:
    folder = write_backend(tmp_path / "src", VERSIONS[-1])
    module = folder / "apps/common/form.py"
    module.write_text(module.read_text().replace("def set_notebook_gpus", "def set_gpus"))
    entry = folder / "entrypoint.py"
    entry.write_text(entry.read_text().replace("form.set_notebook_gpus", "form.set_gpus"))
    with form(sys.executable, folder, hook) as running:
        assert running.post(BODIES[0])[0] == 200
    assert "bitfusion form hook is off; the form works without it: AttributeError" in running.log.read_text()


def test_the_hook_sets_nothing_of_gunicorn_but_its_own_function() -> None:
    space: dict[str, Any] = {"__name__": "__config__"}
    exec(compile(hook_file(DEFAULT_RULES), "hook", "exec"), space)
    settings = {setting.name for setting in KNOWN_SETTINGS}
    assert settings & set(space) == {"post_worker_init"}
