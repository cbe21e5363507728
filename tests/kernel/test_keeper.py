"""The keeper with real wrappers that misbehave: what it reports, and that nothing survives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.keeper_harness import (
    RELEASING,
    RUN_CHILD,
    SLEEP,
    KeeperHarness,
    gone,
    running_keeper,
)

# A fork of a process that has threads is what production avoids; pytest's helpers have some.
pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


@pytest.fixture
def keeper() -> Iterator[KeeperHarness]:
    with running_keeper() as harness:
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
    keeper: KeeperHarness, script: str, status: int
) -> None:
    keeper.start("import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + script)
    assert keeper.until("started")["pid"] > 0
    assert keeper.until("wrapper_exited") == {"event": "wrapper_exited", "number": 1, "status": status}


def test_a_command_that_cannot_be_executed_is_told_in_words(keeper: KeeperHarness, tmp_path: Path) -> None:
    keeper.start([str(tmp_path / "none")])
    said = keeper.until("output")
    assert said["text"] == f"Error: cannot start {tmp_path}/none: No such file or directory"
    assert keeper.until("wrapper_exited")["status"] == 127
    plain = tmp_path / "plain"
    plain.write_text("")
    keeper.start([str(plain)])
    assert keeper.until("output")["text"] == f"Error: cannot start {plain}: Permission denied"


def test_last_words_come_before_the_end_even_without_a_line_end(keeper: KeeperHarness) -> None:
    keeper.start("import os; os.write(2, b'Error: one\\nError: \\xff two'); os._exit(1)")
    assert keeper.until("output") == {"event": "output", "stream": "stderr", "text": "Error: one"}
    assert keeper.until("output")["text"] == "Error: \N{REPLACEMENT CHARACTER} two"
    keeper.until("wrapper_exited")


def test_a_flood_is_cut_into_lines_and_the_wrapper_is_not_held_up(keeper: KeeperHarness) -> None:
    keeper.start("import os\nfor _ in range(40): os.write(1, b'x' * 50_000)\nos.write(1, b'\\nend\\n')")
    keeper.until("started")
    end = keeper.until("wrapper_exited")
    assert end["status"] == 0


def test_an_overlong_line_comes_in_pieces(keeper: KeeperHarness) -> None:
    keeper.start("import os, time\nos.write(1, b'x' * 20_000); time.sleep(0.3); os.write(1, b'y\\nend\\n')")
    assert set(keeper.until("output")["text"]) == {"x"}
    keeper.until_said("end")


def test_output_nobody_reads_is_dropped_and_the_end_is_still_told(keeper: KeeperHarness) -> None:
    keeper.start("import os\nfor _ in range(4000): os.write(1, b'x' * 2000 + b'\\n')")
    assert gone(keeper.until("started")["pid"], 10)  # the test does not read meanwhile
    assert keeper.until("wrapper_exited")["status"] == 0
    assert len(keeper.said) < 4000


def test_stop_without_anything_running_is_answered(keeper: KeeperHarness) -> None:
    keeper.stop()
    keeper.until("stopped")


def test_a_queued_wrapper_is_ended_by_sigterm(keeper: KeeperHarness) -> None:
    keeper.start(SLEEP)
    keeper.until("started")
    keeper.stop()
    assert keeper.until("wrapper_exited")["status"] == -signal.SIGTERM
    keeper.until("stopped")


def test_a_queued_wrapper_that_ignores_sigterm_is_killed(keeper: KeeperHarness) -> None:
    keeper.start(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    keeper.until_said("deaf")
    began = time.monotonic()
    keeper.stop()
    assert keeper.until("wrapper_exited")["status"] == -signal.SIGKILL
    assert time.monotonic() - began < 2


def test_the_kernels_end_is_told_before_the_wrappers(keeper: KeeperHarness) -> None:
    keeper.start(RELEASING, "raise SystemExit(5)")
    launched = keeper.until("launched")
    assert launched["environment"]["BF_TEST"] == "told"
    assert "OTHER_TEST" not in launched["environment"]
    assert keeper.until("kernel_exited")["status"] == 5
    keeper.until_said("released")
    assert keeper.until("wrapper_exited")["status"] == 5


def test_a_killed_kernel_is_told_with_its_signal(keeper: KeeperHarness) -> None:
    keeper.start(RELEASING, SLEEP)
    os.kill(keeper.until("launched")["kernel"], signal.SIGKILL)
    assert keeper.until("kernel_exited")["status"] == -9
    assert keeper.until("wrapper_exited")["status"] == 137


def test_stop_ends_the_kernel_first_and_lets_the_wrapper_release(keeper: KeeperHarness) -> None:
    keeper.start(RELEASING, "import signal, time; signal.signal(2, signal.SIG_IGN)\n" + SLEEP)
    kernel = keeper.until("launched")["kernel"]
    keeper.stop()
    keeper.until("kernel_exited")
    keeper.until_said("released")
    keeper.until("stopped")
    assert gone(kernel)


def test_a_wrapper_that_becomes_its_program_works_too(keeper: KeeperHarness) -> None:
    keeper.start("import os, sys; os.execv(sys.argv[1], sys.argv[1:])", "raise SystemExit(0)")
    keeper.until("launched")
    assert keeper.until("wrapper_exited")["status"] == 0


def test_a_wrapper_that_dies_of_sigterm_takes_the_kernel_with_it(keeper: KeeperHarness) -> None:
    keeper.start(RUN_CHILD, SLEEP)
    wrapper = keeper.until("started")["pid"]
    kernel = keeper.until("launched")["kernel"]
    os.kill(wrapper, signal.SIGTERM)
    assert keeper.until("wrapper_exited")["status"] == -signal.SIGTERM
    assert gone(kernel)


def test_a_grandchild_in_the_kernels_group_ends_with_the_kernel(keeper: KeeperHarness) -> None:
    keeper.start(
        RELEASING,
        "import os, time\nif not os.fork():\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n"
        "time.sleep(0.3)",
    )
    grandchild = int(keeper.until("output", lambda report: report["text"].isdigit())["text"])
    keeper.until("wrapper_exited")
    assert gone(grandchild)


def test_a_launcher_that_is_killed_leaves_no_kernel(keeper: KeeperHarness) -> None:
    keeper.start(RELEASING, SLEEP)
    launched = keeper.until("launched")
    os.kill(launched["launcher"], signal.SIGKILL)
    keeper.until("wrapper_exited")
    assert gone(launched["kernel"])


def test_a_grant_in_the_moment_of_the_cancel_is_given_back(keeper: KeeperHarness) -> None:
    wrapper = (
        "import signal, subprocess, sys, time\n"
        "def grant(*_): sys.exit(subprocess.run(sys.argv[1:]).returncode)\n"
        "signal.signal(15, grant)\n"
        "print('queued', flush=True)\n" + SLEEP
    )
    keeper.start(wrapper, SLEEP)
    keeper.until_said("queued")
    keeper.stop()
    end = keeper.until("wrapper_exited")
    assert end["status"] in (137, -9)
    keeper.until("stopped")


def test_one_wrapper_after_another(keeper: KeeperHarness) -> None:
    for number in (1, 2, 3):
        keeper.start(RELEASING, "raise SystemExit(0)")
        assert keeper.until("wrapper_exited")["number"] == number


@pytest.mark.parametrize("kernel", [None, SLEEP], ids=["queued", "running"])
@pytest.mark.parametrize("deaf", [False, True])
def test_when_the_front_is_gone_everything_ends(kernel: str | None, deaf: bool) -> None:
    with running_keeper() as keeper:
        ignore = "import signal; signal.signal(15, signal.SIG_IGN)\n" if deaf else ""
        keeper.start(ignore + (RUN_CHILD if kernel else SLEEP), kernel)
        wrapper = keeper.until("started")["pid"]
        launched = keeper.until("launched") if kernel else None
        time.sleep(0.15)  # until a deaf one is deaf
        keeper.leave()
        assert keeper.wait_for_end() == 0
        assert gone(wrapper, 0)
        assert launched is None or gone(launched["kernel"], 0.5)
        assert not keeper.folder.exists()


def test_the_keeper_is_deaf_to_the_terminals_signals_and_leads_a_session(keeper: KeeperHarness) -> None:
    keeper.stop()
    keeper.until("stopped")
    assert os.getsid(keeper.link.pid) == keeper.link.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(keeper.link.pid, number)
    keeper.stop()
    keeper.until("stopped")
