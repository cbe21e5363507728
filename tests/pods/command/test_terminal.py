"""`bitfusion run` typed in a terminal: the program in the pod has one like it, and this one is given back."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pods.command.in_terminal import CTRL_C, CTRL_D, CTRL_Z, InTerminal, run_in_terminal
from tests.pods.command.pods import Pods, pods_in
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(90)

Run = Callable[..., InTerminal]


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with pods_in(tmp_path) as made:
        yield made


@pytest.fixture
def run(pods: Pods) -> Iterator[Run]:
    made: list[InTerminal] = []

    def start(*program: str, is_read: bool = True, others: dict[str, int] | None = None) -> InTerminal:
        made.append(run_in_terminal(pods, *program, is_read=is_read, others=others))
        return made[-1]

    yield start
    for each in made:
        each.close()


def ended(terminal: InTerminal, status: int) -> None:
    """It has ended so, and the terminal is as it was."""
    assert terminal.end() == status, terminal.text
    assert terminal.modes() == terminal.before


def test_the_program_has_a_terminal_of_the_same_kind_and_size(run: Run) -> None:
    terminal = run("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM && exit 7")
    terminal.wait_for("30 100\nxterm\n")
    ended(terminal, 7)


def test_the_programs_terminal_has_the_modes_and_characters_of_the_one_here(run: Run, pods: Pods) -> None:
    show = "stty -a | head -20"
    here = InTerminal(["sh", "-c", show], {})
    assert here.end() == 0
    there = run("sh", "-c", show)
    there.wait_for("-flusho")
    assert there.end() == 0
    assert here.text.split(";")[1:] == there.text.split(";")[1:]
    here.close()


def test_the_program_hears_of_another_size_of_the_window(run: Run) -> None:
    terminal = run(
        "sh", "-c", "trap 'stty size; tput cols; exit 0' WINCH; echo runs; while :; do sleep 0.05; done"
    )
    terminal.wait_for("runs\n")
    terminal.resize(41, 132)
    terminal.wait_for("41 132\n132\n")
    ended(terminal, 0)


def test_ctrl_c_is_the_programs(run: Run) -> None:
    terminal = run("sh", "-c", "echo runs; exec sleep 60")
    terminal.wait_for("runs\n")
    assert terminal.is_raw
    terminal.type(CTRL_C)
    ended(terminal, 128 + signal.SIGINT)
    assert "^C" in terminal.text, "as the terminal there shows it"


def test_a_line_is_edited_and_ended_as_in_any_terminal(run: Run) -> None:
    terminal = run("sh", "-c", "echo runs; exec cat")
    terminal.wait_for("runs\n")
    terminal.type("wrö\x7fong\r")
    terminal.wait_for("\nwrong\n")
    terminal.type(CTRL_D)
    ended(terminal, 0)


def test_python_is_interactive_and_has_its_history(run: Run) -> None:
    terminal = run("env", "PYTHON_BASIC_REPL=1", sys.executable, "-q")  # without colours in its words
    terminal.wait_for(">>> ")
    terminal.type("6 * 7\r")
    terminal.wait_for("\n42\n")
    terminal.wait_for(">>> ")
    terminal.type("\x1b[A + 1\r")
    terminal.wait_for("\n43\n")
    terminal.type("import time; time.sleep(60)\r")
    terminal.wait_for("sleep(60)")
    time.sleep(0.3)
    terminal.type(CTRL_C)
    terminal.wait_for("KeyboardInterrupt")
    terminal.type("import os; os._exit(5)\r")  # a new Python's `exit` says 130 after an interrupt
    ended(terminal, 5)


def test_a_program_that_reads_single_keys_gets_them_as_they_are(run: Run) -> None:
    terminal = run("sh", "-c", "stty raw -echo; echo runs; dd bs=1 count=5 2>/dev/null | od -An -tx1")
    terminal.wait_for("runs")
    terminal.type("\r\x03\x1a\x13\x11")
    terminal.wait_for("0d 03 1a 13 11")
    ended(terminal, 0)


def test_jobs_of_a_shell_there_are_stopped_and_go_on(run: Run) -> None:
    terminal = run("bash", "--norc", "-i")
    terminal.wait_for("$ ")
    terminal.type("sleep 61\r")
    wait_until(sleeps_in_front, lambda: terminal.text)
    terminal.type(CTRL_Z)
    terminal.wait_for("Stopped")
    terminal.type("sleep 0.2 & wait $!; jobs; fg\r")
    wait_until(sleeps_in_front, lambda: terminal.text)
    terminal.type(CTRL_C)
    terminal.wait_for("^C")
    terminal.wait_for("$ ")
    terminal.type("kill %1; exit 9\r")
    ended(terminal, 9)


def sleeps_in_front() -> bool:
    """Whether `sleep 61` runs as the foreground job of its terminal: keys that are signals reach it."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and (process / "cmdline").read_bytes() == b"sleep\x0061\0":
                state, _, group, _, _, front, *_ = (process / "stat").read_text().rpartition(")")[2].split()
                return state == "S" and group == front
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_still_reach_the_program(run: Run, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    terminal = run(
        "sh", "-c", f"trap 'echo heard {name}; exit 3' {name}; echo runs; while :; do sleep 0.02; done"
    )
    terminal.wait_for("runs\n")
    os.kill(client_of(terminal), number)
    terminal.wait_for(f"heard {name}\n")
    ended(terminal, 3)


def client_of(terminal: InTerminal) -> int:
    """The process of `bitfusion run`: setsid has become it, or has it as a child."""
    children = Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children").read_text().split()
    command = Path(f"/proc/{terminal.process.pid}/cmdline").read_bytes()
    return int(children[0]) if command.startswith(b"setsid") else terminal.process.pid


# -- what is no terminal here is none there ----------------------------------------------------------

TELL = "for n in 0 1 2; do test -t $n && echo $n >&2; done; echo told >&2; exit 0"


@pytest.mark.parametrize("name", ["stdin", "stdout"])
def test_there_is_none_where_not_both_are_one(run: Run, name: str) -> None:
    with open("/dev/null", "r+b") as nothing:
        terminal = run("sh", "-c", TELL, others={name: nothing.fileno()})
    assert terminal.wait_for("told\n") == "told\n"
    ended(terminal, 0)


def test_stderr_that_is_a_file_stays_apart(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "errors"
    with file.open("wb") as errors:
        terminal = run("sh", "-c", f"stty size; {TELL}", others={"stderr": errors.fileno()})
        terminal.wait_for("30 100\n")
    ended(terminal, 0)
    assert file.read_text() == "0\n1\ntold\n"


# -- the terminal here is given back ----------------------------------------------------------------


def test_it_is_given_back_when_the_pod_is_over(run: Run, pods: Pods) -> None:
    terminal = run("sh", "-c", "echo runs; exec sleep 60")
    terminal.wait_for("runs\n")
    pods.relay.stop_listening()
    pods.relay.cut()
    terminal.wait_for("Error: PodOver")
    ended(terminal, 137)


def test_it_is_given_back_while_the_pod_is_out_of_reach_and_ctrl_c_ends_the_command(
    run: Run, pods: Pods
) -> None:
    terminal = run("sh", "-c", "echo runs; exec sleep 60")
    terminal.wait_for("runs\n")
    pods.relay.refuse = "reset"
    pods.relay.cut()
    wait_until(pods.heard, "the loss", 10)
    wait_until(lambda: not terminal.is_raw, "its own modes")
    terminal.type(CTRL_C)
    ended(terminal, 130)


def test_keys_go_to_the_program_again_when_the_pod_is_back(run: Run, pods: Pods) -> None:
    terminal = run("sh", "-c", "echo runs; exec cat")
    terminal.wait_for("runs\n")
    pods.relay.refuse = "reset"
    pods.relay.cut()
    wait_until(pods.heard, "the loss", 10)
    pods.relay.refuse = ""
    wait_until(lambda: "back" in pods.heard() and terminal.is_raw, "the connection", 15)
    terminal.type("again\r")
    terminal.wait_for("again\nagain\n")
    terminal.type(CTRL_D)
    ended(terminal, 0)


def test_a_window_that_is_closed_ends_the_program(run: Run, pods: Pods, tmp_path: Path) -> None:
    file = tmp_path / "said"
    terminal = run(
        "sh", "-c", f"trap 'echo hangup > {file}; exit 1' HUP; echo runs; while :; do sleep 0.05; done"
    )
    terminal.wait_for("runs\n")
    terminal.hang_up()
    wait_until(lambda: file.exists() and file.read_text(), lambda: pods.log())
    terminal.process.wait(scaled(10))
    assert file.read_text() == "hangup\n"


def test_a_window_that_nobody_reads_stops_the_program_and_a_signal_ends_it(run: Run, pods: Pods) -> None:
    terminal = run("yes", is_read=False)
    wait_until(lambda: terminal.is_raw, lambda: pods.log(), 15)
    time.sleep(2)
    client = client_of(terminal)
    status = Path(f"/proc/{client}/status").read_text()
    resident = int(status.partition("VmRSS:")[2].split()[0])
    assert resident < 60_000, "KiB, with what tests import"
    before = Path(f"/proc/{client}/stat").read_text().split()[13]
    time.sleep(0.5)
    assert int(Path(f"/proc/{client}/stat").read_text().split()[13]) - int(before) < 10, "hundredths"
    os.kill(client, signal.SIGTERM)
    assert terminal.process.wait(scaled(10)) == 128 + signal.SIGTERM
    assert terminal.modes() == terminal.before


# -- in front and behind -----------------------------------------------------------------------------


@pytest.fixture
def shell(pods: Pods) -> Iterator[InTerminal]:
    made = InTerminal(["bash", "--norc", "-i"], pods.environment)
    made.wait_for("$ ")
    yield made
    made.type("exit\r")
    made.end()
    made.close()


def test_a_command_that_was_stopped_takes_the_keys_again(shell: InTerminal, pods: Pods) -> None:
    shell.type(shlex.join(pods.command("sh", "-c", "echo runs; exec cat")) + "\r")
    shell.wait_for("exec cat'\n")
    shell.wait_for("runs\n")
    wait_until(lambda: shell.is_raw, "the keys")
    (client,) = Path(f"/proc/{bash(shell)}/task/{bash(shell)}/children").read_text().split()
    os.kill(int(client), signal.SIGSTOP)
    shell.wait_for("Stopped")
    shell.wait_for("$ ")
    shell.type("fg\r")
    shell.wait_for("\n")
    wait_until(lambda: not shell.modes()[1] & 1, "the keys: no output is processed here")
    shell.type("typed\r")
    shell.wait_for("typed\ntyped\n")
    shell.type(CTRL_D)
    shell.wait_for("$ ")


def bash(shell: InTerminal) -> int:
    return client_of(shell)


def test_a_command_in_the_background_runs_without_a_terminal(shell: InTerminal, pods: Pods) -> None:
    shell.type(
        shlex.join(pods.command("sh", "-c", "sleep 1; test -t 0 || echo ran; exit 4"))
        + " & wait $!; echo $?\r"
    )
    shell.wait_for("\nran\n")
    shell.wait_for("\n4\n")


def test_a_killed_command_leaves_what_reset_cures_and_the_pod_ends(run: Run, pods: Pods) -> None:
    """As with ssh: nobody is left to give the terminal back."""
    terminal = run("sh", "-c", "echo runs; exec sleep 60")
    terminal.wait_for("runs\n")
    os.kill(client_of(terminal), signal.SIGKILL)
    terminal.process.wait(scaled(10))
    assert terminal.is_raw
    wait_until(lambda: "the client is gone" in pods.log(), lambda: pods.log(), 15)
    subprocess.run(["stty", "sane"], stdin=terminal._its_side, check=True)
    assert not terminal.is_raw
