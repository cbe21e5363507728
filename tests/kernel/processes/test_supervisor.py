"""The supervisor with real wrappers that misbehave: what it reports, and that nothing survives it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_kernel.processes import private_folder
from bitfusion_kernel.processes.messages import (
    KernelExitedEvent,
    LaunchedEvent,
    OutputEvent,
    StartedEvent,
    StoppedEvent,
    WrapperExitedEvent,
)
from tests.kernel.supervisor_harness import (
    RELEASING,
    RUN_CHILD,
    SLEEP,
    SupervisorHarness,
    gone,
    running_supervisor,
)
from tests.support.processes import wait_until_gone


@pytest.fixture
def supervisor() -> Iterator[SupervisorHarness]:
    with running_supervisor() as harness:
        yield harness


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGPIPE)", -13),
    ],
)
def test_a_wrapper_that_dies_at_once_is_reaped_with_its_status(
    supervisor: SupervisorHarness, script: str, status: int
) -> None:
    supervisor.start("import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + script)
    assert supervisor.until(StartedEvent).pid > 0
    assert supervisor.until(WrapperExitedEvent) == WrapperExitedEvent(1, status)


def test_a_command_that_cannot_be_executed_is_told_in_words(
    supervisor: SupervisorHarness, tmp_path: Path
) -> None:
    supervisor.start([str(tmp_path / "none")])
    said = supervisor.until(OutputEvent)
    assert said.text == f"Error: cannot start {tmp_path}/none: No such file or directory"
    assert supervisor.until(WrapperExitedEvent).status == 127
    plain = tmp_path / "plain"
    plain.write_text("")
    supervisor.start([str(plain)])
    assert supervisor.until(OutputEvent).text == f"Error: cannot start {plain}: Permission denied"


def test_a_folder_without_room_for_the_launchers_socket_is_told_in_words(
    supervisor: SupervisorHarness,
) -> None:
    shutil.rmtree(supervisor.folder)
    supervisor.start("print('never')")
    said = supervisor.until(OutputEvent)
    assert (
        said.text
        == f"Error: cannot make the socket {supervisor.folder}/launcher-1: No such file or directory"
    )
    assert supervisor.until(WrapperExitedEvent).status == 127


def test_a_command_that_is_larger_than_a_sockets_buffer_is_sent_whole(supervisor: SupervisorHarness) -> None:
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(6)}
    supervisor.start("import os; print(len(os.environ['LARGE_5']))", **large)
    supervisor.until_said("100000")


def test_last_words_come_before_the_end_even_without_a_line_end(supervisor: SupervisorHarness) -> None:
    supervisor.start("import os; os.write(2, b'Error: one\\nError: \\xff two'); os._exit(1)")
    assert supervisor.until(OutputEvent) == OutputEvent("stderr", "Error: one")
    assert supervisor.until(OutputEvent).text == "Error: \N{REPLACEMENT CHARACTER} two"
    supervisor.until(WrapperExitedEvent)


def test_a_flood_is_cut_into_lines_and_the_wrapper_is_not_held_up(supervisor: SupervisorHarness) -> None:
    supervisor.start("import os\nfor _ in range(40): os.write(1, b'x' * 50_000)\nos.write(1, b'\\nend\\n')")
    supervisor.until(StartedEvent)
    end = supervisor.until(WrapperExitedEvent)
    assert end.status == 0


def test_output_nobody_reads_is_dropped_and_the_end_is_still_told(supervisor: SupervisorHarness) -> None:
    supervisor.start("import os\nfor _ in range(4000): os.write(1, b'x' * 2000 + b'\\n')")
    assert gone(supervisor.until(StartedEvent).pid, 10)  # the test does not read meanwhile
    assert supervisor.until(WrapperExitedEvent).status == 0
    assert len(supervisor.said) < 4000


def test_stop_without_anything_running_is_answered(supervisor: SupervisorHarness) -> None:
    supervisor.stop()
    supervisor.until(StoppedEvent)


def test_a_queued_wrapper_is_ended_by_sigterm(supervisor: SupervisorHarness) -> None:
    supervisor.start(SLEEP)
    supervisor.until(StartedEvent)
    supervisor.stop()
    assert supervisor.until(WrapperExitedEvent).status == -signal.SIGTERM
    supervisor.until(StoppedEvent)


def test_a_queued_wrapper_that_ignores_sigterm_is_killed(supervisor: SupervisorHarness) -> None:
    supervisor.start(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    supervisor.until_said("deaf")
    supervisor.stop()
    assert supervisor.until(WrapperExitedEvent).status == -signal.SIGKILL


GRANTED_WHILE_CANCELLED = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        os.symlink(str(os.getpid()), os.environ["BF_KERNEL"])
    time.sleep(60)
    os._exit(0)
while not os.path.lexists(os.environ["BF_KERNEL"]):
    time.sleep(0.01)
print("waits", flush=True)
while True:
    time.sleep(60)
"""
"""Its launcher has started the kernel, and is killed before it can tell of it."""


def test_a_kernel_that_nobody_was_told_of_ends_with_its_wrapper(
    supervisor: SupervisorHarness, tmp_path: Path
) -> None:
    supervisor.start(GRANTED_WHILE_CANCELLED, BF_KERNEL=str(tmp_path / "kernel"))
    supervisor.until_said("waits")
    supervisor.stop()
    assert supervisor.until(WrapperExitedEvent).status == -signal.SIGKILL
    wait_until_gone(int((tmp_path / "kernel").readlink().name))


def test_the_kernels_end_is_told_before_the_wrappers(supervisor: SupervisorHarness) -> None:
    supervisor.start(RELEASING, "raise SystemExit(5)")
    launched = supervisor.until(LaunchedEvent)
    assert launched.environment["BF_TEST"] == "told"
    assert "OTHER_TEST" not in launched.environment
    assert supervisor.until(KernelExitedEvent).status == 5
    supervisor.stop()
    supervisor.until_said("released")
    assert supervisor.until(WrapperExitedEvent).status == 5


def test_a_killed_kernel_is_told_with_its_signal(supervisor: SupervisorHarness) -> None:
    supervisor.start(RELEASING, SLEEP)
    os.kill(supervisor.until(LaunchedEvent).kernel_pid, signal.SIGKILL)
    assert supervisor.until(KernelExitedEvent).status == -9
    supervisor.stop()
    assert supervisor.until(WrapperExitedEvent).status == 137


def test_stop_ends_the_kernel_first_and_lets_the_wrapper_release(supervisor: SupervisorHarness) -> None:
    supervisor.start(RELEASING, "import signal, time; signal.signal(2, signal.SIG_IGN)\n" + SLEEP)
    kernel = supervisor.until(LaunchedEvent).kernel_pid
    supervisor.stop()
    supervisor.until(KernelExitedEvent)
    supervisor.until_said("released")
    supervisor.until(StoppedEvent)
    assert gone(kernel)


def test_a_wrapper_that_becomes_its_program_works_too(supervisor: SupervisorHarness) -> None:
    supervisor.start("import os, sys; os.execv(sys.argv[1], sys.argv[1:])", "raise SystemExit(0)")
    supervisor.until(KernelExitedEvent)
    supervisor.stop()
    assert supervisor.until(WrapperExitedEvent).status == 0


def test_a_wrapper_that_dies_of_sigterm_takes_the_kernel_with_it(supervisor: SupervisorHarness) -> None:
    supervisor.start(RUN_CHILD, SLEEP)
    wrapper = supervisor.until(StartedEvent).pid
    kernel = supervisor.until(LaunchedEvent).kernel_pid
    os.kill(wrapper, signal.SIGTERM)
    assert supervisor.until(WrapperExitedEvent).status == -signal.SIGTERM
    assert gone(kernel)


def test_a_grandchild_in_the_kernels_group_ends_with_the_kernel(supervisor: SupervisorHarness) -> None:
    supervisor.start(
        RELEASING,
        "import os, time\ntold, tell = os.pipe()\n"
        "if not os.fork():\n    print(os.getpid(), flush=True)\n"
        "    os.write(tell, b'x')\n    time.sleep(60)\n"
        "os.read(told, 1)",
    )
    grandchild = int(supervisor.until(OutputEvent, lambda line: line.text.isdigit()).text)
    supervisor.until(KernelExitedEvent)
    assert gone(grandchild, 0)


def test_a_launcher_that_is_killed_leaves_no_kernel(supervisor: SupervisorHarness) -> None:
    supervisor.start(RELEASING, SLEEP)
    launched = supervisor.until(LaunchedEvent)
    os.kill(launched.launcher_pid, signal.SIGKILL)
    supervisor.until(WrapperExitedEvent)
    assert gone(launched.kernel_pid)


def test_a_grant_in_the_moment_of_the_cancel_is_given_back(supervisor: SupervisorHarness) -> None:
    wrapper = (
        "import signal, subprocess, sys, time\n"
        "def grant(*_): sys.exit(subprocess.run(sys.argv[1:]).returncode)\n"
        "signal.signal(15, grant)\n"
        "print('queued', flush=True)\n" + SLEEP
    )
    supervisor.start(wrapper, SLEEP)
    supervisor.until_said("queued")
    supervisor.stop()
    end = supervisor.until(WrapperExitedEvent)
    assert end.status in (137, -9)
    supervisor.until(StoppedEvent)


def test_one_wrapper_after_another(supervisor: SupervisorHarness) -> None:
    for number in (1, 2, 3):
        supervisor.start(RELEASING, "raise SystemExit(0)")
        supervisor.until(KernelExitedEvent)
        supervisor.stop()
        assert supervisor.until(WrapperExitedEvent).number == number


@pytest.mark.parametrize("kernel", [None, SLEEP], ids=["queued", "running"])
@pytest.mark.parametrize("deaf", [False, True])
def test_when_the_proxy_is_gone_everything_ends(kernel: str | None, deaf: bool) -> None:
    with running_supervisor() as supervisor:
        ignore = "import signal; signal.signal(15, signal.SIG_IGN)\n" if deaf else ""
        ignore += "print('ready', flush=True)\n"
        supervisor.start(ignore + (RUN_CHILD if kernel else SLEEP), kernel)
        wrapper = supervisor.until(StartedEvent).pid
        launched = supervisor.until(LaunchedEvent) if kernel else None
        supervisor.until_said("ready")
        supervisor.leave()
        assert supervisor.wait_for_end() == 0
        assert gone(wrapper, 0)
        assert launched is None or gone(launched.kernel_pid, 0.5)
        assert not supervisor.folder.exists()


def test_the_supervisor_is_deaf_to_the_terminals_signals_and_leads_a_session(
    supervisor: SupervisorHarness,
) -> None:
    supervisor.stop()
    supervisor.until(StoppedEvent)
    assert os.getsid(supervisor.pid) == supervisor.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(supervisor.pid, number)
    supervisor.stop()
    supervisor.until(StoppedEvent)


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_file_is_held_from_before_the_wrapper_to_its_end(
    supervisor: SupervisorHarness, tmp_path: Path
) -> None:
    path = tmp_path / "account" / "entry"
    supervisor.held_file = str(path)
    supervisor.start(f"import os, time; print(os.path.exists({str(path)!r}), flush=True); time.sleep(60)")
    supervisor.until_said("True")
    assert is_locked(path)
    supervisor.stop()
    supervisor.until(StoppedEvent)
    assert not path.parent.exists()


def test_a_wrapper_that_cannot_be_started_holds_nothing(
    supervisor: SupervisorHarness, tmp_path: Path
) -> None:
    supervisor.held_file = str(tmp_path / "account" / "entry")
    supervisor.start([str(tmp_path / "none")])
    assert supervisor.until(WrapperExitedEvent).status == 127
    assert not (tmp_path / "account").exists()


def test_a_file_that_cannot_be_made_does_not_keep_the_wrapper_from_its_start(
    supervisor: SupervisorHarness, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    supervisor.held_file = str(tmp_path / "file" / "entry")
    supervisor.start("print('runs', flush=True)")
    supervisor.until_said("runs")
    assert supervisor.until(WrapperExitedEvent).status == 0


def test_a_supervisor_that_is_killed_holds_nothing(supervisor: SupervisorHarness, tmp_path: Path) -> None:
    path = tmp_path / "account" / "entry"
    supervisor.held_file = str(path)
    supervisor.start(SLEEP)
    pid = supervisor.until(StartedEvent).pid
    assert is_locked(path)
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.wait_for_end()
    assert not is_locked(path), "whatever becomes of the wrapper"
    os.kill(pid, signal.SIGKILL)
    private_folder.remove(str(supervisor.folder))


def test_the_next_wrapper_has_a_file_of_its_own(supervisor: SupervisorHarness, tmp_path: Path) -> None:
    first, second = tmp_path / "account" / "first", tmp_path / "account" / "second"
    supervisor.held_file = str(first)
    supervisor.start("raise SystemExit(0)")
    supervisor.until(WrapperExitedEvent)
    assert not first.exists()
    supervisor.held_file = str(second)
    supervisor.start(SLEEP)
    supervisor.until(StartedEvent)
    assert is_locked(second)
