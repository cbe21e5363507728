"""Ten thousand connections to the ports of a program of ours: others are answered, memory has a bound.

The injector stands for all of them: controller, identity, queue and health check serve with the same class.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_cluster.program.http_connections import FEW, MANY
from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.bitfusion_cluster.certificates.pairs import pair
from tests.bitfusion_device_plugin.injector.pods import container, pod
from tests.notebook_controller_patch.admission.reviews import body
from tests.notebook_controller_patch.controller_process import INJECTOR, ControllerProcess
from tests.notebook_controller_patch.test_controller import away
from tests.support.flood import HEADER, HELLO, SILENT, TLS_HEADER, Flood, answers_during, peak_mib
from tests.support.machine import scaled
from tests.support.rounds import rounds
from tests.support.waiting import wait_until

CROWD, OTHER = "127.0.0.1", "127.0.0.2"  # where the flood comes from, and where another client does
LONGEST_S = 2.0
HIGHEST_PEAK = 200  # MiB; the container may have 256
REQUEST = {
    "uid": "1",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "namespace": "ann",
    "operation": "CREATE",
    "object": pod(container({"bitfusion.io/gpu-50": "1"})),
}
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": REQUEST}
FEW_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"


def started(folder: Path, prepare: str = "") -> ControllerProcess:
    mount = MountedSecret(folder / "tls", pair("ECDSA"))
    options = [f"--kubeconfig={away(folder)}", "--namespace=kubeflow", f"--certificate-folder={mount.folder}"]
    return ControllerProcess(folder, options, prepare=prepare, module=INJECTOR)


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    with started(tmp_path_factory.mktemp("injector")) as process:
        yield process


class Asker:
    """Another client: over a connection that it keeps, and over new ones."""

    def __init__(self, injector: ControllerProcess, port: int, over_tls: bool) -> None:
        self._injector = injector
        self._port = port
        self._over_tls = over_tls
        # from where the crowd comes from, as behind a NAT: it has asked, which keeps it
        self._kept = self._connection(CROWD)
        self._ask(self._kept)
        self._kept.auto_open = 0  # it is never opened anew

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def ask(self) -> None:
        self._ask(self._kept)
        new = self._connection(OTHER)
        self._ask(new)
        new.close()

    def _connection(self, source: str) -> http.client.HTTPConnection:
        where, limit = ("127.0.0.1", self._port), scaled(10)
        if not self._over_tls:
            return http.client.HTTPConnection(*where, timeout=limit, source_address=(source, 0))
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(
            *where, timeout=limit, source_address=(source, 0), context=trusting
        )

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        if self._over_tls:
            connection.request("POST", "/admit/pods", body(REVIEW), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert json.loads(answer.read())["response"]["allowed"] is True
        else:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"ok\n")


def open_files(injector: ControllerProcess) -> int:
    return len(os.listdir(f"/proc/{injector.process.pid}/fd"))


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("say", "count"),
    [
        (SILENT, 10_000),
        (TLS_HEADER, 1_200),
        pytest.param(HELLO, rounds(3_000, 10_000), marks=pytest.mark.long),
        pytest.param(TLS_HEADER, rounds(3_000, 10_000), marks=pytest.mark.long),
    ],
)
def test_the_webhooks_answer_beside_a_crowd_of_connections(
    injector: ControllerProcess, say: str, count: int
) -> None:
    with Asker(injector, injector.port, over_tls=True) as another:
        before = open_files(injector)
        with Flood((CROWD, injector.port), count, say) as flood:
            slowest = answers_during(flood, another.ask)
            assert open_files(injector) - before <= MANY.silent + MANY.served + MANY.kept
    looked_at(injector, slowest)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("say", [SILENT, pytest.param(HEADER, marks=pytest.mark.long)])
def test_probes_are_answered_beside_a_crowd_of_connections(injector: ControllerProcess, say: str) -> None:
    port = injector.serving["monitoring_port"]
    with Asker(injector, port, over_tls=False) as another:
        before = open_files(injector)
        with Flood((CROWD, port), 10_000, say) as flood:
            slowest = answers_during(flood, another.ask)
            assert open_files(injector) - before <= FEW.silent + FEW.served + FEW.kept
    looked_at(injector, slowest)
    assert injector.metric("bitfusion_monitoring_connections_closed_total", reason="too_many") > 0


def looked_at(injector: ControllerProcess, slowest: float) -> None:
    peak = peak_mib(injector.process.pid)
    print(f"memory of a replica: at most {peak:.0f} MiB")
    assert injector.process.poll() is None
    assert slowest < scaled(LONGEST_S)
    assert peak < HIGHEST_PEAK
    assert len(injector.logged("connection rejected")) < 50, "no line for each"


@pytest.mark.timeout(120)
def test_where_descriptors_run_out_others_are_answered_and_no_core_is_taken(tmp_path: Path) -> None:
    """A listening socket with somebody waiting stays readable: accept failed some 20,000 times a second."""
    with started(tmp_path, FEW_FILES) as injector:
        pid, port = injector.process.pid, injector.port
        with Asker(injector, port, over_tls=True) as another, Flood((CROWD, port), 300) as flood:
            wait_until(lambda: flood.has_opened_all, "the crowd", 30)
            another.ask()
            assert open_files(injector) <= 100
            before = cpu_seconds(pid)
            time.sleep(1)
            assert cpu_seconds(pid) - before < 0.3
        assert injector.process.poll() is None


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
