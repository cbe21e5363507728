"""The supervisor with real wrappers that misbehave: what it reports, and that nothing survives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.supervisor_harness import (
    RELEASING,
    RUN_CHILD,
    SLEEP,
    SupervisorHarness,
    gone,
    running_supervisor,
)

# A fork of a process that has threads is what production avoids; pytest's helpers have some.
pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


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
    assert supervisor.until("started")["pid"] > 0
    assert supervisor.until("wrapper_exited") == {"event": "wrapper_exited", "number": 1, "status": status}


def test_a_command_that_cannot_be_executed_is_told_in_words(
    supervisor: SupervisorHarness, tmp_path: Path
) -> None:
    supervisor.start([str(tmp_path / "none")])
    said = supervisor.until("output")
    assert said["text"] == f"Error: cannot start {tmp_path}/none: No such file or directory"
    assert supervisor.until("wrapper_exited")["status"] == 127
    plain = tmp_path / "plain"
    plain.write_text("")
    supervisor.start([str(plain)])
    assert supervisor.until("output")["text"] == f"Error: cannot start {plain}: Permission denied"


def test_last_words_come_before_the_end_even_without_a_line_end(supervisor: SupervisorHarness) -> None:
    supervisor.start("import os; os.write(2, b'Error: one\\nError: \\xff two'); os._exit(1)")
    assert supervisor.until("output") == {"event": "output", "stream": "stderr", "text": "Error: one"}
    assert supervisor.until("output")["text"] == "Error: \N{REPLACEMENT CHARACTER} two"
    supervisor.until("wrapper_exited")


def test_a_flood_is_cut_into_lines_and_the_wrapper_is_not_held_up(supervisor: SupervisorHarness) -> None:
    supervisor.start("import os\nfor _ in range(40): os.write(1, b'x' * 50_000)\nos.write(1, b'\\nend\\n')")
    supervisor.until("started")
    end = supervisor.until("wrapper_exited")
    assert end["status"] == 0


def test_an_overlong_line_comes_in_pieces(supervisor: SupervisorHarness) -> None:
    supervisor.start(
        "import os, time\nos.write(1, b'x' * 20_000); time.sleep(0.3); os.write(1, b'y\\nend\\n')"
    )
    assert set(supervisor.until("output")["text"]) == {"x"}
    supervisor.until_said("end")


def test_output_nobody_reads_is_dropped_and_the_end_is_still_told(supervisor: SupervisorHarness) -> None:
    supervisor.start("import os\nfor _ in range(4000): os.write(1, b'x' * 2000 + b'\\n')")
    assert gone(supervisor.until("started")["pid"], 10)  # the test does not read meanwhile
    assert supervisor.until("wrapper_exited")["status"] == 0
    assert len(supervisor.said) < 4000


def test_stop_without_anything_running_is_answered(supervisor: SupervisorHarness) -> None:
    supervisor.stop()
    supervisor.until("stopped")


def test_a_queued_wrapper_is_ended_by_sigterm(supervisor: SupervisorHarness) -> None:
    supervisor.start(SLEEP)
    supervisor.until("started")
    supervisor.stop()
    assert supervisor.until("wrapper_exited")["status"] == -signal.SIGTERM
    supervisor.until("stopped")


def test_a_queued_wrapper_that_ignores_sigterm_is_killed(supervisor: SupervisorHarness) -> None:
    supervisor.start(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    supervisor.until_said("deaf")
    began = time.monotonic()
    supervisor.stop()
    assert supervisor.until("wrapper_exited")["status"] == -signal.SIGKILL
    assert time.monotonic() - began < 2


def test_the_kernels_end_is_told_before_the_wrappers(supervisor: SupervisorHarness) -> None:
    supervisor.start(RELEASING, "raise SystemExit(5)")
    launched = supervisor.until("launched")
    assert launched["environment"]["BF_TEST"] == "told"
    assert "OTHER_TEST" not in launched["environment"]
    assert supervisor.until("kernel_exited")["status"] == 5
    supervisor.until_said("released")
    assert supervisor.until("wrapper_exited")["status"] == 5


def test_a_killed_kernel_is_told_with_its_signal(supervisor: SupervisorHarness) -> None:
    supervisor.start(RELEASING, SLEEP)
    os.kill(supervisor.until("launched")["kernel"], signal.SIGKILL)
    assert supervisor.until("kernel_exited")["status"] == -9
    assert supervisor.until("wrapper_exited")["status"] == 137


def test_stop_ends_the_kernel_first_and_lets_the_wrapper_release(supervisor: SupervisorHarness) -> None:
    supervisor.start(RELEASING, "import signal, time; signal.signal(2, signal.SIG_IGN)\n" + SLEEP)
    kernel = supervisor.until("launched")["kernel"]
    supervisor.stop()
    supervisor.until("kernel_exited")
    supervisor.until_said("released")
    supervisor.until("stopped")
    assert gone(kernel)


def test_a_wrapper_that_becomes_its_program_works_too(supervisor: SupervisorHarness) -> None:
    supervisor.start("import os, sys; os.execv(sys.argv[1], sys.argv[1:])", "raise SystemExit(0)")
    supervisor.until("launched")
    assert supervisor.until("wrapper_exited")["status"] == 0


def test_a_wrapper_that_dies_of_sigterm_takes_the_kernel_with_it(supervisor: SupervisorHarness) -> None:
    supervisor.start(RUN_CHILD, SLEEP)
    wrapper = supervisor.until("started")["pid"]
    kernel = supervisor.until("launched")["kernel"]
    os.kill(wrapper, signal.SIGTERM)
    assert supervisor.until("wrapper_exited")["status"] == -signal.SIGTERM
    assert gone(kernel)


def test_a_grandchild_in_the_kernels_group_ends_with_the_kernel(supervisor: SupervisorHarness) -> None:
    supervisor.start(
        RELEASING,
        "import os, time\nif not os.fork():\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
        "time.sleep(0.3)",
    )
    grandchild = int(supervisor.until("output", lambda report: report["text"].isdigit())["text"])
    supervisor.until("wrapper_exited")
    assert gone(grandchild)


def test_a_launcher_that_is_killed_leaves_no_kernel(supervisor: SupervisorHarness) -> None:
    supervisor.start(RELEASING, SLEEP)
    launched = supervisor.until("launched")
    os.kill(launched["launcher"], signal.SIGKILL)
    supervisor.until("wrapper_exited")
    assert gone(launched["kernel"])


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
    end = supervisor.until("wrapper_exited")
    assert end["status"] in (137, -9)
    supervisor.until("stopped")


def test_one_wrapper_after_another(supervisor: SupervisorHarness) -> None:
    for number in (1, 2, 3):
        supervisor.start(RELEASING, "raise SystemExit(0)")
        assert supervisor.until("wrapper_exited")["number"] == number


@pytest.mark.parametrize("kernel", [None, SLEEP], ids=["queued", "running"])
@pytest.mark.parametrize("deaf", [False, True])
def test_when_the_proxy_is_gone_everything_ends(kernel: str | None, deaf: bool) -> None:
    with running_supervisor() as supervisor:
        ignore = "import signal; signal.signal(15, signal.SIG_IGN)\n" if deaf else ""
        supervisor.start(ignore + (RUN_CHILD if kernel else SLEEP), kernel)
        wrapper = supervisor.until("started")["pid"]
        launched = supervisor.until("launched") if kernel else None
        time.sleep(0.15)  # until a deaf one is deaf
        supervisor.leave()
        assert supervisor.wait_for_end() == 0
        assert gone(wrapper, 0)
        assert launched is None or gone(launched["kernel"], 0.5)
        assert not supervisor.folder.exists()


def test_the_supervisor_is_deaf_to_the_terminals_signals_and_leads_a_session(
    supervisor: SupervisorHarness,
) -> None:
    supervisor.stop()
    supervisor.until("stopped")
    assert os.getsid(supervisor.link.pid) == supervisor.link.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(supervisor.link.pid, number)
    supervisor.stop()
    supervisor.until("stopped")
