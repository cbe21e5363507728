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
from bitfusion_kernel.gpu import kept_lease
from bitfusion_kernel.gpu.kernel_starter import KernelStarter
from bitfusion_kernel.processes import kernel_start
from bitfusion_kernel.processes.messages import JoinedEvent, KernelCommand, LaunchedEvent, StartCommand
from bitfusion_kernel.protocol import connection_file
from bitfusion_kernel.protocol.arguments import ProxyArguments
from bitfusion_kernel.protocol.connection_file import CHANNELS, ConnectionInfo
from bitfusion_kernel.wrapped_kernel import WrappedKernel

EMBEDDED = Path(bitfusion_pool.__file__).parent / "bin" / "bitfusion"


class FakeSupervisor:
    """Keeps the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.pid = 4711
        self.commands: list[StartCommand] = []
        self.kernels: list[KernelCommand] = []
        self.stopped = 0

    def start(self, command: StartCommand) -> None:
        """Keep one."""
        self.commands.append(command)

    def run_kernel(self, command: KernelCommand) -> None:
        """Keep one."""
        self.kernels.append(command)

    def stop(self) -> None:
        """Counted."""
        self.stopped += 1


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

    def __init__(
        self, folder: Path, *options: str, language: str = "python", argv: str = "kernel", **env: str
    ) -> None:
        fields: dict[str, Any] = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
        self.supervisor = FakeSupervisor(folder)
        wrapped = WrappedKernel([*argv.split(), "-f", "{connection_file}"], env, language, {})
        self.starter = KernelStarter(
            ProxyArguments("/run/kernel-5e.json", list(options), ["--HistoryManager.hist_file=:memory:"]),
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
        str(tmp_path / "kernel-5e.json"),
        "--HistoryManager.hist_file=:memory:",
    ]


@pytest.mark.parametrize("module", ["ipykernel", "ipykernel_launcher"])
def test_ipykernel_is_started_with_the_magic_and_nothing_else_is(
    tmp_path: Path, client: Path, module: str
) -> None:
    argv = f"python -Xfrozen_modules=off -m {module}"
    started = Made(tmp_path, argv=argv).start().argv
    index = started.index("-Xfrozen_modules=off")
    assert started[index + 1 : index + 4] == [kernel_start.FILE, "-m", module]
    for other in (Made(tmp_path, language="R", argv=argv), Made(tmp_path, argv="python -m another_kernel")):
        assert kernel_start.FILE not in other.start().argv


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
    assert environment["BITFUSION_KERNEL_FILES_PREFIX"].endswith("ipykernel_4711")


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


def test_a_kernel_that_a_cell_starts_has_a_name_of_its_own(
    tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/outer.ipynb")
    for name, value in Made(tmp_path).start().environment.items():
        monkeypatch.setenv(name, value)
    assert Made(tmp_path).start().environment["BITFUSION_LABEL"] == "a kernel started in outer.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/ada/inner.ipynb")
    assert Made(tmp_path).start().environment["BITFUSION_LABEL"] == "inner.ipynb"


def test_the_kernel_starts_in_the_folder_that_jupyter_chose(
    tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = Made(tmp_path)
    monkeypatch.chdir("/")
    assert made.start().folder == str(tmp_path)


# -- what a restart has kept ---------------------------------------------------------------------------


def kept_for(request: GpuRequest, **fields: Any) -> JoinedEvent:
    """What the supervisor has kept of a proxy that asked for this."""
    note = kept_lease.note(request, in_pod=False, takes_what_is_left=False)
    said = ("e[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: position 2 of 3; held by ada: x.ipynb",)
    given: dict[str, Any] = {
        "number": 3,
        "pid": 7,
        "note": note,
        "asked_at": 5.0,
        "kernels": 4,
        "lines": said,
    }
    return JoinedEvent(**given | fields)


def test_what_a_restart_has_kept_goes_on_with_a_kernel_of_the_new_proxys(
    tmp_path: Path, client: Path
) -> None:
    made = Made(tmp_path, "--bitfusion-partial=0.5", OMP_NUM_THREADS="4")
    acquisition, wanted = made.starter.go_on_with(kept_for(GpuRequest(1, 0.5)))
    assert (wanted, made.supervisor.stopped, made.starter.told) == (True, 0, [])
    assert (acquisition.number, acquisition.request, acquisition.asked_at) == (3, GpuRequest(1, 0.5), 5.0)
    assert acquisition.queue is not None
    assert acquisition.queue.queue_position == 2
    (kernel,) = made.supervisor.kernels
    assert (kernel.number, kernel.folder) == (5, os.getcwd())  # the next after those of the proxies before
    assert kernel.argv[:3] == ["kernel", "-f", str(tmp_path / "kernel-5e.json")]
    assert kernel.environment["OMP_NUM_THREADS"] == "4"
    assert acquisition.kernel_connection is not None
    assert made.start().number == 6


def test_a_lease_that_is_kept_is_held_since_its_grant(tmp_path: Path, client: Path) -> None:
    acquisition, _ = Made(tmp_path).starter.go_on_with(kept_for(GpuRequest(), granted_at=6.0))
    assert (acquisition.granted, acquisition.held_since) == (False, 6.0)
    acquisition.on_launched(LaunchedEvent(2, 3, {}), 60.0)
    assert (acquisition.granted, acquisition.held_since) == (True, 6.0)


def test_what_is_prepared_at_a_restart_is_what_the_next_proxy_asks_for(
    tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Made(tmp_path, OMP_NUM_THREADS="4")
    acquisition = first.starter.start()
    assert first.starter.kernel_after(acquisition) is None  # it waits, and its wrapper has the kernel's argv
    acquisition.on_launched(LaunchedEvent(2, 3, {}), 0.0)
    prepared = first.starter.kernel_after(acquisition)
    written = (tmp_path / "kernel-5e.json").stat()
    kept = kept_for(GpuRequest(), number=1, kernels=1, granted_at=6.0)
    second = Made(tmp_path, OMP_NUM_THREADS="4")
    monkeypatch.setattr(os, "getpid", lambda: 999)
    assert second.starter.go_on_with(kept)[1] is True
    assert second.supervisor.kernels == [prepared]
    after = (tmp_path / "kernel-5e.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)  # it may be being read


def test_a_full_disk_prepares_nothing_and_the_restart_goes_on(
    tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    made = Made(tmp_path)
    acquisition = made.starter.start()
    acquisition.on_launched(LaunchedEvent(2, 3, {}), 0.0)
    monkeypatch.setattr(connection_file, "write_private", full)
    assert made.starter.kernel_after(acquisition) is None


def test_what_another_size_was_chosen_for_is_not_prepared(tmp_path: Path, client: Path) -> None:
    made = Made(tmp_path)
    acquisition = made.starter.start()
    acquisition.on_launched(LaunchedEvent(2, 3, {}), 0.0)
    made.starter.choose(GpuRequest(2))
    assert made.starter.kernel_after(acquisition) is None


@pytest.mark.parametrize(
    ("option", "fields", "told"),
    [
        ("--bitfusion-partial=0.25", {}, 0),
        ("--bitfusion-partial=0.5", {"stopping": True}, 0),
        ("--bitfusion-partial=much", {}, 0),
        *(
            ("--bitfusion-partial=0.5", {"note": note}, 1)
            for note in ("", "[]", "{", '{"request": {"gpus": 0}, "what_is_left": null}', '{"request": 1}')
        ),
    ],
    ids=["another size", "just given back", "wrong setting", "no note", "list", "damaged", "rules", "kind"],
)
def test_what_is_wanted_no_more_or_not_known_is_given_back(
    tmp_path: Path, client: Path, option: str, fields: dict[str, Any], told: int
) -> None:
    made = Made(tmp_path, option)
    acquisition, wanted = made.starter.go_on_with(kept_for(GpuRequest(1, 0.5), **fields))
    assert (wanted, acquisition.number) == (False, 3)
    assert (made.supervisor.stopped, made.supervisor.kernels, len(made.starter.told)) == (1, [], told)


def test_what_no_kernel_can_be_started_on_is_given_back_and_the_first_cell_tells_why(
    tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    made = Made(tmp_path)
    monkeypatch.setattr(connection_file, "write_private", full)
    assert made.starter.go_on_with(kept_for(GpuRequest()))[1] is False
    assert made.supervisor.stopped == 1
    with pytest.raises(BitfusionError, match="No space left on device"):
        made.start()
