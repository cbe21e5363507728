"""A pod's container and a pool's service: the token of its Secret, and how others see what it holds."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import client_text, read_authority, servers_text
from tests.bitfusion_device_plugin.injector.pod_client.container import Container, write_identity
from tests.pool.service.tls_client import HOST, NetworkService
from tests.support.machine import scaled

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root makes roots for other users")


@pytest.fixture(scope="module")
def service() -> Iterator[NetworkService]:
    base = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))
    running = NetworkService(base)
    running.start()
    yield running
    running.end()
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def secret(service: NetworkService, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Secret of a namespace that has a token."""
    files = {
        "servers.conf": servers_text([Address(HOST, service.port)]),
        "client.yaml": client_text(service.token("team-a")),
        "ca.crt": read_authority(service.authority),
    }
    return write_identity(tmp_path_factory.mktemp("secret"), files)


@pytest.fixture
def pod(container: Container, secret: Path) -> Container:
    """A container in that namespace."""
    container.add_python("/usr/bin/python3")
    container.identity = secret
    return container


@pytest.mark.parametrize(
    ("user", "home"),
    [
        pytest.param("1000:100", "/home/jovyan", marks=pytest.mark.long, id="jovyan"),
        pytest.param("12345:12345", "/", id="uid 12345"),
    ],
)
def test_a_program_runs_with_a_lease_that_names_namespace_and_notebook(
    pod: Container, service: NetworkService, user: str, home: str
) -> None:
    pod.user, pod.home = user, home
    words = ["bitfusion", "run", "-n", "1", "-p", "0.5", "--", "/image/busybox", "sleep", "600"]
    process = pod.start(*words, env={"JPY_SESSION_NAME": "/home/jovyan/digits.ipynb"})
    try:
        [held] = service.until_entries(1)
        holder = held.holder
        assert (holder.label, holder.host, holder.user) == (
            "team-a/mnist: digits.ipynb",
            "team-a/mnist",
            "team-a",
        )
        status, stdout, _ = pod.do("bitfusion", "smi")
        assert status == 0
        assert "team-a/mnist: digits.ipynb" in stdout
    finally:
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=scaled(30))
    assert "Released GPUs on 1 servers" in stderr
    assert service.entries() == []


def test_health_says_that_the_secrets_files_are_used(pod: Container, service: NetworkService) -> None:
    _, stdout, _ = pod.do("bitfusion", "health")
    assert (
        f"[PASS    ] Check pool in use: the service at {HOST}:{service.port}; "
        "/bitfusion/identity/servers.conf and /bitfusion/identity/client.yaml name it\n"
    ) in stdout
    assert "Check pool token: accepted" in stdout


def test_a_read_only_root_has_shared_memory(pod: Container, service: NetworkService) -> None:
    pod.read_only = True
    words = "bitfusion", "run", "-n", "1", "--", "/image/busybox", "true"
    status, _, stderr = pod.do(*words)
    assert (status, stderr.splitlines()[-1]) == (
        1,
        "Error: pool cannot write an allocation file in /tmp: Read-only file system. What to do: set "
        "TMPDIR to a folder that you can write to",
    )
    (pod.root / "dev" / "shm").mkdir()  # as every container has it
    status, _, stderr = pod.do(*words)
    assert status == 0
    assert "configuration saved to '/dev/shm/bitfusion" in stderr
    assert service.entries() == []


def test_a_pod_without_identity_says_it_in_one_line(pod: Container) -> None:
    pod.identity = None
    assert pod.do("bitfusion", "run", "-n", "1", "--", "/image/busybox", "true") == (
        1,
        "",
        "Error: pool configuration is missing: namespace team-a has no Secret bitfusion-client, or it has "
        "not reached this pod. What to do: ask your administrator to give the namespace a token of the "
        "pool; a running pod has it two minutes later; for "
        "simulated GPUs of your own set BITFUSION_POOL=own\n",
    )
    assert (
        pod.do("bitfusion", "run", "-n", "1", "--", "/image/busybox", "true", env={"BITFUSION_POOL": "own"})[
            0
        ]
        == 0
    )
