"""The start command: request, client, kernel and environment; and the settings about starting."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest

import bitfusion_pool
from bitfusion_client.errors import BitfusionError, ClientNotFound, WaitCancelled, WrongSetting
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.kernel_starter import MAGIC_EXTENSION, KernelStarter
from bitfusion_kernel.processes.messages import StartCommand
from bitfusion_kernel.protocol.arguments import ProxyArguments
from bitfusion_kernel.protocol.connection_file import CHANNELS, ConnectionInfo
from bitfusion_kernel.wrapped_kernel import WrappedKernel

EMBEDDED = Path(bitfusion_pool.__file__).parent / "bin" / "bitfusion"


class FakeSupervisor:
    """Keeps the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.commands: list[StartCommand] = []

    def start(self, command: StartCommand) -> None:
        """Keep one."""
        self.commands.append(command)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client that can be found."""
    path = tmp_path / "client" / "bitfusion"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("BITFUSION_CLIENT", str(path))
    return path


@pytest.fixture(autouse=True)
def nothing_chosen_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All starters here have the same key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Made:
    """A starter with its supervisor."""

    def __init__(self, folder: Path, *options: str, language: str = "python", **env: str) -> None:
        fields: dict[str, Any] = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
        self.supervisor = FakeSupervisor(folder)
        wrapped = WrappedKernel(["kernel", "-f", "{connection_file}"], env, language, {})
        self.starter = KernelStarter(
            ProxyArguments("c.json", list(options), ["--HistoryManager.hist_file=:memory:"]),
            wrapped,
            ConnectionInfo(fields | {"key": "secret"}),
            cast(Any, self.supervisor),
        )

    def start(self) -> StartCommand:
        """The command of one start."""
        self.starter.start()
        return self.supervisor.commands[-1]


def test_the_command_line_is_client_request_launcher_and_kernel(tmp_path: Path, client: Path) -> None:
    made = Made(tmp_path, "--bitfusion-gpus=2", "--bitfusion-partial=0.5")
    command = made.start()
    run, program = command.argv[: command.argv.index("--")], command.argv[command.argv.index("--") + 1 :]
    assert run[:2] == [str(client), "run"]
    assert {"2", "0.5"} <= set(run)
    assert program[0] == sys.executable
    kernel = program[program.index("--") + 1 :]
    assert kernel == [
        "kernel",
        "-f",
        str(tmp_path / "kernel-1.json"),
        "--HistoryManager.hist_file=:memory:",
        MAGIC_EXTENSION,
    ]


def test_kernels_of_other_languages_get_no_extension(tmp_path: Path, client: Path) -> None:
    assert MAGIC_EXTENSION not in Made(tmp_path, language="R").start().argv


def test_the_environment_is_the_proxys_with_the_client_the_kernels_own_and_the_sockets(
    tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/digits.ipynb")
    monkeypatch.setenv("PATH", "/usr/bin")
    environment = Made(tmp_path, OMP_NUM_THREADS="4").start().environment
    assert environment["PATH"] == f"/usr/bin{os.pathsep}{client.parent}"
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["BITFUSION_LABEL"] == "digits.ipynb"
    assert environment["BITFUSION_KERNEL_SOCKET"] == str(tmp_path / "proxy")
    assert environment["BITFUSION_KERNEL_FILES_PREFIX"].endswith(f"ipykernel_{os.getpid()}")


def test_the_embedded_pools_client_is_known_before_any_setting_is_read(
    tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = f"--bitfusion-client={EMBEDDED}"

    def uses_it(*, settings_read: bool = False) -> list[bool]:
        """Without and with the option."""
        starters = [Made(tmp_path).starter, Made(tmp_path, option).starter]
        if settings_read:
            assert all(starter.settings for starter in starters)
        return [starter.uses_embedded_pool for starter in starters]

    for settings_read in (False, True):
        monkeypatch.setenv("BITFUSION_CLIENT", str(client))
        assert uses_it(settings_read=settings_read) == [False, False], "the environment wins"
        monkeypatch.setenv("BITFUSION_CLIENT", "/no/such/client")
        assert uses_it(settings_read=settings_read) == [False, False]
        monkeypatch.delenv("BITFUSION_CLIENT")
        monkeypatch.setenv("PATH", str(client.parent))
        assert uses_it(settings_read=settings_read) == [False, True]
        monkeypatch.setenv("PATH", "/usr/bin")
        assert uses_it(settings_read=settings_read) == [True, True]


def test_each_start_has_its_own_number_and_connection(tmp_path: Path, client: Path) -> None:
    made = Made(tmp_path)
    first, second = made.starter.start(), made.starter.start()
    assert (first.number, second.number) == (1, 2)
    addresses = {
        attempt.kernel_connection.address("shell")
        for attempt in (first, second)
        if attempt.kernel_connection is not None
    }
    assert len(addresses) == 2
    assert [command.number for command in made.supervisor.commands] == [1, 2]


def test_a_chosen_request_wins_over_the_settings(tmp_path: Path, client: Path) -> None:
    made = Made(tmp_path, "--bitfusion-gpus=2")
    assert made.starter.request == GpuRequest(gpus=2)
    made.starter.choose(GpuRequest(gpus=3))
    assert made.starter.start().request == GpuRequest(gpus=3)
    made.starter.forget_choice()
    assert made.starter.request == GpuRequest(gpus=2)


def test_the_next_starter_of_this_kernel_asks_for_what_was_chosen(tmp_path: Path, client: Path) -> None:
    Made(tmp_path).starter.choose(GpuRequest(gpus=3))
    assert Made(tmp_path).starter.request == GpuRequest(gpus=3)
    Made(tmp_path).starter.forget_choice()
    assert Made(tmp_path).starter.request == GpuRequest()


def test_what_was_chosen_before_a_lock_is_told_once_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Made(tmp_path).starter.choose(GpuRequest(gpus=3))
    file = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "jupyter_bitfusion_config.json"
    file.write_text('{"BitfusionKernel": {"gpus": 2, "locked": ["gpus"]}}')
    try:
        starter = Made(tmp_path).starter
        with pytest.raises(WrongSetting, match='gpus="3": is locked by your administrator; it stays 2 GPUs'):
            _ = starter.request
        assert starter.request == GpuRequest(gpus=2)
        assert Made(tmp_path).starter.request == GpuRequest(gpus=2)
        with pytest.raises(WrongSetting):
            starter.choose(GpuRequest(gpus=3))
        assert starter.request == GpuRequest(gpus=2)
    finally:
        file.unlink()


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [
        ((), None, False),
        ((), "first_cell", False),
        ((), "start", True),
        ((), " start ", True),
        ((), "start_and_wait", True),
        ((), "restart", False),
        ((), "started", False),
        (("--bitfusion-acquire=start",), None, True),
        (("--bitfusion-acquire=start",), "manual", False),
        (("--bitfusion-acquire=start", "--bitfusion-gpus=none"), None, False),
    ],
)
def test_whether_the_gpu_is_asked_for_at_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    variable: str | None,
    expected: bool,
) -> None:
    if variable is not None:
        monkeypatch.setenv("BITFUSION_ACQUIRE", variable)
    assert bool(Made(tmp_path, *options).starter.acquire_at_start) is expected


@pytest.mark.parametrize(
    ("option", "variable", "expected"),
    [
        ("first_cell", None, False),
        ("start", None, False),
        ("start_and_wait", None, True),
        ("start_and_wait", "start", False),
        ("first_cell", "start_and_wait", True),
        ("manual", "start_and_wait?", False),
    ],
)
def test_whether_the_kernel_is_ready_only_with_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, variable: str | None, expected: bool
) -> None:
    if variable is not None:
        monkeypatch.setenv("BITFUSION_ACQUIRE", variable)
    starter = Made(tmp_path, f"--bitfusion-acquire={option}").starter
    assert (starter.acquire_at_start == "start_and_wait") is expected


def test_a_config_file_may_ask_for_the_gpu_at_start(tmp_path: Path) -> None:
    file = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "jupyter_bitfusion_config.json"
    file.write_text('{"BitfusionKernel": {"acquire": "start"}}')
    try:
        assert Made(tmp_path).starter.acquire_at_start == "start"
    finally:
        file.unlink()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), None),
        (("--bitfusion-acquire=start",), None),
        (("--bitfusion-acquire=manual",), WaitCancelled),
        (("--bitfusion-gpus=none",), WrongSetting),
    ],
)
def test_whether_a_cell_may_ask_for_the_gpu(
    tmp_path: Path, options: tuple[str, ...], error: type[BitfusionError] | None
) -> None:
    starter = Made(tmp_path, *options).starter
    if error is None:
        starter.check_acquire()
    else:
        with pytest.raises(error):
            starter.check_acquire()


def test_silent_cells_wait_as_set_and_by_the_default_while_a_setting_is_wrong(tmp_path: Path) -> None:
    assert Made(tmp_path, "--bitfusion-silent-wait=0.5").starter.silent_wait == 0.5
    assert Made(tmp_path, "--bitfusion-silent-wait=soon").starter.silent_wait == 5.0


def test_a_client_that_is_not_there_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITFUSION_CLIENT", "/no/such/bitfusion")
    made = Made(tmp_path)
    with pytest.raises(ClientNotFound):
        made.starter.start()
    assert not made.supervisor.commands
