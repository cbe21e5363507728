"""The controller as a process: starts that cannot work, an apiserver that is away, an orderly end."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.bitfusion_cluster.certificates.pairs import pair, serial, trusted
from tests.notebook_controller_patch.controller_process import COMMAND, ControllerProcess
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.waiting import wait_until

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: secret}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


def kubeconfig(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(KUBECONFIG.format(server=server))
    return str(path)


def away(folder: Path) -> str:
    """A kubeconfig whose apiserver is not there."""
    return kubeconfig(folder, f"https://127.0.0.1:{free_port()}")


def refused(folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and all it said of a controller that cannot start."""
    environment = {name: text for name, text in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    environment.update(HOME=str(folder), KUBECONFIG=str(folder / "nothing here"))
    done = subprocess.run(
        [*COMMAND, "--namespace=kubeflow", *options],
        capture_output=True,
        text=True,
        timeout=scaled(30),
        env=environment,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.fixture
def stalled() -> Iterator[str]:
    """An apiserver that takes connections and never says a word."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def take() -> None:
        while True:
            try:
                taken.append(listener.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for connection in taken:
        connection.close()


@pytest.mark.parametrize(
    ("option", "other"), [("--port", "--monitoring-port"), ("--monitoring-port", "--port")]
)
def test_a_port_in_use_is_one_line_with_what_to_do(tmp_path: Path, option: str, other: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = refused(
            tmp_path,
            f"--kubeconfig={away(tmp_path)}",
            "--bind=127.0.0.1",
            f"{option}={port}",
            f"{other}=0",
        )
    assert status == 1
    assert said == (
        f"bitfusion-notebook-controller: Port {port} of 127.0.0.1 is in use. What to do: "
        f"stop the program that uses it, or choose another port with {option}.\n"
    )


def test_an_address_of_another_machine_is_told(tmp_path: Path) -> None:
    status, said = refused(tmp_path, f"--kubeconfig={away(tmp_path)}", "--bind=192.0.2.1")
    assert status == 1
    assert said.startswith(
        "bitfusion-notebook-controller: Port 8080 of 192.0.2.1 cannot be opened: Cannot assign "
    )


def test_without_any_cluster_it_says_how_to_name_one(tmp_path: Path) -> None:
    status, said = refused(tmp_path)
    assert status == 1
    assert said.startswith("bitfusion-notebook-controller: No credentials for a cluster were found: ")
    assert said.endswith("What to do: run it in a pod, or name a file with credentials with --kubeconfig.\n")
    assert said.count("\n") == 1


def test_a_kubeconfig_that_cannot_be_read_is_a_wrong_setting(tmp_path: Path) -> None:
    status, said = refused(tmp_path, f"--kubeconfig={tmp_path}/none")
    assert status == 2
    assert said.startswith(f'bitfusion-notebook-controller: Wrong setting kubeconfig="{tmp_path}/none": ')
    assert said.count("\n") == 1


def test_an_empty_certificate_folder_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    status, said = refused(tmp_path, f"--kubeconfig={away(tmp_path)}", f"--certificate-folder={tmp_path}")
    assert status == 1
    assert said == (
        f"bitfusion-notebook-controller: No usable certificate in --certificate-folder: {tmp_path}/tls.crt: "
        "No such file or directory. What to do: it must hold tls.crt and tls.key, unencrypted; with "
        "cert-manager look at the Certificate's conditions, without it, omit the option.\n"
    )


def test_broken_image_rules_are_a_wrong_setting(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("- image: a\n")
    status, said = refused(tmp_path, f"--kubeconfig={away(tmp_path)}", f"--images={file}")
    assert status == 2
    assert said.startswith('bitfusion-notebook-controller: Wrong setting images[0]="')
    assert str(file) in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_without_its_apiserver_it_lives_says_what_is_missing_and_ends(tmp_path: Path, number: int) -> None:
    with ControllerProcess(
        tmp_path, [f"--kubeconfig={away(tmp_path)}", "--namespace=kubeflow", "--drain=0"]
    ) as controller:
        assert controller.ask("/healthz") == (200, "ok\n")
        status, text = controller.ask("/readyz")
        assert status == 503
        assert text == (
            "not ready: a serving certificate, the CA in caBundle of bitfusion-notebook-admission, "
            "the list of all Notebooks\n"
        )
        assert "bitfusion_certificate_expiry_timestamp_seconds 0.0" in controller.ask("/metrics")[1]
        wait_until(lambda: any("refused" in str(line).lower() for line in controller.lines()))
        exit_status, seconds = controller.end(number)
    assert exit_status == 0
    assert seconds < scaled(20)
    assert [line["message"] for line in controller.lines()][-1] == "ended"


def test_what_does_not_stop_is_ended_by_force(tmp_path: Path) -> None:
    prepare = (
        "import time, notebook_controller_patch.controller as c; "
        "import bitfusion_cluster.webhooks.serving_process as p; "
        "p.LONGEST_END_S = 1.5; c.ReconcileService.stop = lambda *_: time.sleep(60)"
    )
    with ControllerProcess(
        tmp_path, [f"--kubeconfig={away(tmp_path)}", "--namespace=kubeflow"], prepare=prepare
    ) as controller:
        assert controller.serving
        exit_status, seconds = controller.end()
    assert exit_status == 0
    assert seconds < scaled(20)
    assert controller.lines()[-1]["message"] == "ended by force: something did not stop in time"


@pytest.mark.slow
def test_a_stalled_apiserver_does_not_hold_up_the_end(tmp_path: Path, stalled: str) -> None:
    with ControllerProcess(
        tmp_path, [f"--kubeconfig={kubeconfig(tmp_path, stalled)}", "--namespace=kubeflow", "--drain=10"]
    ) as controller:
        assert controller.serving
        controller.process.send_signal(signal.SIGTERM)
        wait_until(lambda: controller.logged("ending: not ready any more"))
        assert "not shutting down" in controller.ask("/readyz")[1]
        # the second signal ends the wait for other replicas to be found
        exit_status, seconds = controller.end()
    assert exit_status == 0
    assert seconds < scaled(20)


def test_certificate_files_are_read_again_while_it_runs(tmp_path: Path) -> None:
    first, second = pair("ECDSA"), pair("RSA")
    mount = MountedSecret(tmp_path / "tls", first)
    with ControllerProcess(
        tmp_path,
        [f"--kubeconfig={away(tmp_path)}", "--namespace=kubeflow", f"--certificate-folder={mount.folder}"],
    ) as controller:
        assert _shown(controller.port) == serial(first.certificate)
        assert controller.ask("/readyz") == (503, "not ready: the list of all Notebooks\n")
        told = "the apiserver may refuse this certificate: it is not for bitfusion-notebook-controller."
        assert len([line for line in controller.lines() if line["message"].startswith(told)]) == 1
        assert controller.metric("bitfusion_certificate_expiry_timestamp_seconds") > 1e9
        mount.exchange(second)
        wait_until(lambda: _shown(controller.port) == serial(second.certificate))
        wait_until(lambda: controller.logged("certificate renewed"))


def test_a_variable_that_is_no_setting_is_told(tmp_path: Path) -> None:
    with ControllerProcess(
        tmp_path,
        [f"--kubeconfig={away(tmp_path)}", "--namespace=kubeflow"],
        {"BITFUSION_CONTROLLER_PROT": "1"},
    ) as controller:
        assert controller.serving
        (line,) = controller.logged("this variable is not a setting and is ignored")
        assert line["variable"] == "BITFUSION_CONTROLLER_PROT"


def _shown(port: int) -> int:
    context = ssl.create_default_context(cadata=trusted())
    connection = http.client.HTTPSConnection("localhost", port, timeout=scaled(5), context=context)
    try:
        connection.connect()
        certificate = connection.sock.getpeercert(binary_form=True)
    finally:
        connection.close()
    return serial(certificate or b"")
