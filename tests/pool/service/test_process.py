"""`bitfusion-pool serve`: start, refusals to start, logs, metrics, the unit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import bitfusion_pool
from bitfusion_client.errors import ClientFailed
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.admin.cli import main
from bitfusion_pool.messages.from_client import Acquire, Look, Report
from bitfusion_pool.messages.from_service import PoolSnapshot, Refused
from bitfusion_pool.service import account_access
from bitfusion_pool.service.connections.listener import bind_socket
from bitfusion_pool.service.systemd_unit import unit_text
from tests.pool.service.running_service import RunningService
from tests.support.machine import scaled
from tests.support.ports import free_port, return_port
from tests.support.waiting import wait_until


def serve(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bitfusion_pool.admin.cli", *words],
        cwd=Path(bitfusion_pool.__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=scaled(20),
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(service: RunningService, number: int) -> None:
    assert service.end(number) == 0
    assert not os.path.lexists(service.socket)


def test_a_socket_that_a_killed_service_left_is_replaced(service: RunningService) -> None:
    service.end(signal.SIGKILL)
    assert os.path.lexists(service.socket)
    service.start()
    service.client().close()


def test_a_second_service_is_refused(service: RunningService, base: Path) -> None:
    done = serve("--dir", str(service.folder), "serve", "--socket", f"{base}/other")
    assert done.returncode == 1
    assert done.stderr == f"Error: another service runs with the pool in {service.folder}; end it first\n"
    done = serve("--dir", f"{base}/other", "serve", "--socket", service.socket)
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: cannot listen at {service.socket}: a service listens there already; "
        "end it, or choose another path\n"
    )
    service.client().close()


def test_a_socket_where_others_could_replace_it_is_refused(base: Path) -> None:
    (base / "open").mkdir()
    (base / "open").chmod(0o777)
    done = serve("--dir", f"{base}/pool", "serve", "--socket", f"{base}/open/socket")
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: cannot listen at {base}/open/socket: {base}/open can be changed by others (mode 0777); "
        "use a folder that root or the service's account owns, and nobody else can change\n"
    )
    done = serve("--dir", f"{base}/pool", "serve", "--socket", f"{base}/{'x' * 200}")
    assert "it has more than 96 bytes; choose a shorter path" in done.stderr
    (base / "file").touch()
    done = serve("--dir", f"{base}/pool", "serve", "--socket", f"{base}/file")
    assert "something that is not a socket has this name; move it away" in done.stderr
    done = serve("--dir", f"{base}/pool", "serve", "--socket", f"{base}/none/socket")
    assert f"{base}/none: No such file or directory" in done.stderr


def test_a_socket_has_its_name_only_once_clients_can_connect(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(base / "socket")
    names: list[list[str]] = []

    class Observed(socket.socket):
        def listen(self, *backlog: int) -> None:
            names.append(os.listdir(base))
            assert not os.path.lexists(path)
            super().listen(*backlog)

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Observed)
        listening = bind_socket(path)
    with listening, socket.socket(socket.AF_UNIX) as client:
        assert len(names) == 1
        client.connect(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o666
    assert os.listdir(base) == ["socket"]


def test_of_two_services_that_start_at_once_one_has_the_socket(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(base / "socket")
    others: list[socket.socket] = []

    class Slow(socket.socket):
        def listen(self, *backlog: int) -> None:
            other = socket.socket(socket.AF_UNIX)
            other.bind(path)
            others.append(other)
            super().listen(*backlog)

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Slow)
        with pytest.raises(ClientFailed, match=f"cannot listen at {path}: File exists"):
            bind_socket(path)
    others[0].close()
    assert os.listdir(base) == ["socket"]


def test_a_wrong_setting_is_one_line(base: Path) -> None:
    done = serve("--dir", f"{base}/pool", "serve", "--connections", "0")
    assert done.returncode == 2
    assert done.stderr == (
        'Error: wrong setting connections="0" (from --connections): must be a whole number, at least 1\n'
    )
    assert not (base / "pool").exists()


def test_a_damaged_ledger_is_told_and_a_request_then_is_refused_without_its_details(
    service: RunningService,
) -> None:
    with service.client() as client:
        shutil.rmtree(service.folder / "locks")
        (service.folder / "locks").write_text("")
        refused = client.ask(Acquire(GpuRequest()), Refused)
        assert refused.code == "unreadable"
        assert refused.message == "the service cannot use its own files"
        assert refused.next_step == (
            "tell the administrator of this pool; the service's log says what is wrong"
        )
        wait_until(lambda: any(line["message"] == "request failed" for line in service.log), "the log")
        (service.folder / "locks").unlink()
        (service.folder / "locks").mkdir(mode=0o700)
        client.acquire()


def test_it_logs_what_happens_as_json(service: RunningService) -> None:
    with service.client() as client:
        client.acquire(GpuRequest(1, 0.5))
    (started,) = [line for line in service.log if line["message"] == "service started"]
    assert (started["socket"], started["gpus"]) == (service.socket, 2)
    granted = wait_until(
        lambda: [line for line in service.log if line["message"] == "lease granted"], "the log"
    )
    assert (granted[0]["size"], granted[0]["server"]) == ("1 GPU × 50 %", "127.0.0.1:56001")


def test_metrics_count_leases_waiting_and_refusals(base: Path) -> None:
    from urllib.request import urlopen

    port = free_port()
    running = RunningService(base, "--metrics-port", str(port)).start()
    try:
        with running.client() as holder, running.client() as waiter:
            granted = holder.acquire(GpuRequest(2))
            holder.send(Report(granted.entry.entry_id, granted.secret, "idle", 5.0, 60.0, "secret.ipynb"))
            holder.ask(Look(), PoolSnapshot)
            waiter.wait(GpuRequest(1))
            waiter.send(Acquire(GpuRequest(1)))
            waiter.expect(Refused)
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=scaled(10)) as answer:
                text = answer.read().decode()
        assert "bitfusion_pool_leases 1.0" in text
        assert 'bitfusion_pool_holder_gpus{holder="(users)",namespace="",notebook=""} 2.0' in text
        assert 'bitfusion_pool_holder_idle_gpus{holder="(users)",namespace="",notebook=""} 2.0' in text
        assert "secret" not in text
        assert 'bitfusion_pool_free_gpus{server="127.0.0.1:56001"} 0.0' in text
        assert 'bitfusion_pool_refusals_total{code="bad_message"} 1.0' in text
        assert 'bitfusion_pool_wait_seconds_bucket{le="0.01"} 1.0' in text
    finally:
        running.end()
        return_port(port)


def test_metrics_are_served_before_anything_happens_at_the_address_that_is_named(base: Path) -> None:
    from urllib.request import urlopen

    port = free_port()
    running = RunningService(
        base, "--metrics-port", str(port), "--metrics-address", "127.0.0.2", "--metrics-holders", "all"
    ).start()
    try:

        def shown() -> str:
            with urlopen(f"http://127.0.0.2:{port}/metrics", timeout=scaled(10)) as answer:
                return str(answer.read().decode())

        wait_until(lambda: 'bitfusion_pool_gpus{server="127.0.0.1:56001"} 2.0' in shown(), "metrics")
    finally:
        running.end()
        return_port(port)


def test_an_address_that_is_not_the_machines_is_told(base: Path) -> None:
    port = free_port()
    done = serve(
        *("--dir", str(base / "pool"), "serve", "--socket", str(base / "socket")),
        *("--metrics-port", str(port), "--metrics-address", "203.0.113.1"),
    )
    return_port(port)
    assert (done.returncode, done.stderr) == (
        1,
        f"Error: cannot serve metrics at 203.0.113.1 port {port}: Cannot assign requested address\n",
    )


def test_the_unit_lets_the_service_open_nvidias_devices() -> None:
    lines = unit_text(sys.executable, None).splitlines()
    assert "DeviceAllow=char-nvidia* rw" in lines
    assert "DevicePolicy=closed" in lines
    assert not any(line.startswith("PrivateDevices") for line in lines)  # it would hide them
    # without the driver there is no such command, which is no reason not to start
    assert (
        "ExecStartPre=-+/usr/bin/nvidia-modprobe -u -c 255 -c 0 -c 1 -c 2 -c 3 -c 4 -c 5 -c 6 -c 7" in lines
    )


def test_the_unit_is_what_systemd_understands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Whether the account can read this Python is shown by `test_account_access` and `test_workstation_guide`.
    monkeypatch.setattr(account_access, "check_account", lambda account: None)
    assert main(["serve", "--print-unit", "--settings", "/etc/a b.toml"]) == 0
    text = capsys.readouterr().out
    assert text == unit_text(sys.executable, "/etc/a b.toml")
    assert "\nRuntimeDirectoryPreserve=yes\n" in text  # clients look for the folder
    assert (
        f"ExecStart={sys.executable} -I -m bitfusion_pool.admin.cli serve --settings '/etc/a b.toml'\n"
        in text
    )
    assert unit_text("/a/100%/$x/python", None).count("/a/100%%/$$x/python") == 1
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd here")
    unit = tmp_path / "bitfusion-pool.service"
    unit.write_text(text.replace("User=bitfusion-pool", "User=root"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert "bitfusion-pool.service" not in done.stderr, done.stderr
