"""Whether gates are written: what the administrator wants, and what the API server knows."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import jsonpatch
import pytest
from prometheus_client import CollectorRegistry

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_device_plugin.injector import gates as gates_module
from bitfusion_device_plugin.injector.gates import Gates
from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.bitfusion_cluster.certificates.pairs import pair
from tests.bitfusion_cluster.fake_api import FakeApi, fake_api
from tests.bitfusion_cluster.faults import Fault, answered, reset, status
from tests.bitfusion_cluster.log_fields import fields
from tests.bitfusion_device_plugin.injector.pods import container, pod
from tests.bitfusion_device_plugin.injector.test_process import HALF, ask
from tests.notebook_controller_patch.controller_process import INJECTOR, ControllerProcess
from tests.notebook_controller_patch.test_controller import away, kubeconfig
from tests.support.waiting import wait_until

OLD = answered({"major": "1", "minor": "26"})
NEW = answered({"major": "1", "minor": "27+"})
UNPROTECTED = (
    "pods get no scheduling gate, so the pool is not protected against overselling: Kubernetes has gates "
    "since 1.27"
)


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with fake_api() as made:
        yield made


@pytest.fixture
def api(server: FakeApi) -> Iterator[KubernetesApi]:
    client = server.client()
    yield client
    client.close()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked at every refresh."""
    monkeypatch.setattr(gates_module, "AGAIN_S", 0.0)
    monkeypatch.setattr(gates_module, "UNKNOWN_AGAIN_S", 0.0)


def test_who_wants_no_gates_asks_nobody(
    server: FakeApi, api: KubernetesApi, registry: CollectorRegistry
) -> None:
    gates = Gates(api, False, registry)
    assert (gates.refresh(), gates.on) == (False, False)
    assert server.requests == []
    assert registry.get_sample_value("bitfusion_injector_gates") == 0


@pytest.mark.parametrize("fault", [NEW, answered({}), status(403), status(500), reset])
def test_gates_are_written_unless_the_server_is_known_to_have_none(
    server: FakeApi, api: KubernetesApi, registry: CollectorRegistry, fault: Fault
) -> None:
    gates = Gates(api, True, registry)
    assert gates.on  # before anybody was asked
    server.misbehave(fault)
    assert (gates.refresh(), gates.on) == (False, True)
    assert registry.get_sample_value("bitfusion_injector_gates") == 1


@pytest.mark.usefixtures("at_once")
def test_an_old_server_is_told_of_until_it_is_upgraded(
    server: FakeApi, api: KubernetesApi, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    gates = Gates(api, True, registry)
    server.misbehave(OLD)
    with caplog.at_level(logging.INFO):
        assert (gates.refresh(), gates.on) == (True, False)
        assert registry.get_sample_value("bitfusion_injector_gates") == 0
        server.misbehave(OLD)
        assert gates.refresh() is False  # said once
        server.misbehave(reset)
        assert (gates.refresh(), gates.on) == (False, False)  # what is known stays
        server.misbehave(NEW)
        assert (gates.refresh(), gates.on) == (True, True)
    warned, back = [each for each in caplog.records if each.levelno >= logging.INFO]
    assert (warned.levelname, warned.message, *fields(warned, "server")) == ("WARNING", UNPROTECTED, "1.26")
    assert back.message == "pods wait in the queue again: the API server knows scheduling gates"


def test_a_server_is_asked_seldom(server: FakeApi, api: KubernetesApi, registry: CollectorRegistry) -> None:
    gates = Gates(api, True, registry)
    server.misbehave(NEW)
    for _ in range(100):
        gates.refresh()
    assert [request.path for request in server.requests] == ["/version"]


def test_pods_of_the_running_process_get_the_gate(tmp_path: Path) -> None:
    mount = MountedSecret(tmp_path / "tls", pair())
    with ControllerProcess(
        tmp_path,
        [
            f"--kubeconfig={away(tmp_path)}",
            "--namespace=kubeflow",
            f"--certificate-folder={mount.folder}",
            "--gates=on",
        ],
        module=INJECTOR,
    ) as injector:
        made = pod(container(HALF))
        patch = json.loads(base64.b64decode(ask(injector.port, made)["patch"]))
        assert jsonpatch.apply_patch(made, patch)["spec"]["schedulingGates"] == [
            {"name": "bitfusion.io/queue"}
        ]
        assert injector.metric("bitfusion_injector_gates") == 1


def test_a_process_beside_an_old_server_says_that_the_pool_is_not_protected(
    server: FakeApi, tmp_path: Path
) -> None:
    server.misbehave(OLD, path="/version", times=1000)
    mount = MountedSecret(tmp_path / "tls", pair())
    with ControllerProcess(
        tmp_path,
        [
            f"--kubeconfig={kubeconfig(tmp_path, f'http://127.0.0.1:{server.port}')}",
            "--namespace=kubeflow",
            f"--certificate-folder={mount.folder}",
            "--gates=on",
        ],
        module=INJECTOR,
    ) as injector:
        wait_until(lambda: injector.logged(UNPROTECTED), "the warning", 20)
        wait_until(lambda: injector.metric("bitfusion_injector_gates") == 0, "the metric")
        made = pod(container(HALF))
        patch = json.loads(base64.b64decode(ask(injector.port, made)["patch"]))
        assert "schedulingGates" not in jsonpatch.apply_patch(made, patch)["spec"]
