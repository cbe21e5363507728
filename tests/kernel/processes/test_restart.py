"""A restart: what the supervisor keeps for the next proxy, how long, and what runs on the lease meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from bitfusion_client.kernel_state import states
from bitfusion_kernel.processes import meeting_point, private_folder, supervisor
from bitfusion_kernel.processes.kernel_process import environment_on_lease
from bitfusion_kernel.processes.meeting_point import Gone, Refused, Silent
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    VERSION,
    JoinCommand,
    JoinedEvent,
    KernelCommand,
    KernelExitedEvent,
    LaunchedEvent,
    OutputEvent,
    RefusedEvent,
    StoppedEvent,
    WrapperExitedEvent,
)
from bitfusion_kernel.processes.process_watch import ProcessWatch, pids, stat
from bitfusion_kernel.processes.supervisor_link import join_supervisor
from tests.kernel.supervisor_harness import (
    PYTHON,
    RELEASING,
    SLEEP,
    SupervisorHarness,
    gone,
    running_supervisor,
)
from tests.support.machine import scaled
from tests.support.processes import wait_until_asleep
from tests.support.waiting import wait_until

QUEUED = "print('place 2 of 3', flush=True)\n" + SLEEP
LATER = 60.0


def granted_with(file: Path) -> str:
    """A wrapper that runs its program once this file is there."""
    return (
        f"import os, subprocess, sys, time\nwhile not os.path.exists({str(file)!r}): time.sleep(0.01)\n"
        "sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    )


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Iterator[SupervisorHarness]:
    """The first proxy of a kernel; what it leaves is kept however long the machine stands still."""
    monkeypatch.setattr(supervisor, "KEPT_FOR_RESTARTER", LATER)
    with running_supervisor(os.getpid()) as harness:
        yield harness


@contextmanager
def next_proxy(first: SupervisorHarness) -> Iterator[SupervisorHarness]:
    """The proxy after it, which joined; it tries again, as `predecessor` does, while the last one leaves."""
    link = wait_until(lambda: join_supervisor(str(first.folder), os.getpid()), "it is let in", errors=(Gone,))
    harness = SupervisorHarness(link)
    try:
        yield harness
    finally:
        harness.leave()


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is told to end has the time to start before, too."""
    monkeypatch.setattr(supervisor, "KERNEL_END_PATIENCE", LATER)


def run(harness: SupervisorHarness, number: int, program: str, **variables: str) -> None:
    """Have a proxy ask for a kernel on its lease."""
    harness.link.run_kernel(kernel(number, program, **variables))


def kernel(number: int, program: str, folder: str = "", **variables: str) -> KernelCommand:
    return KernelCommand(number, [*PYTHON, program], dict(os.environ, **variables), {}, folder)


def test_a_restart_keeps_the_lease_and_the_next_kernel_runs_on_it(first: SupervisorHarness) -> None:
    first.start(RELEASING, SLEEP)
    before = first.until(LaunchedEvent)
    granted_by = time.monotonic()
    first.link.park(LATER)
    assert first.until(KernelExitedEvent).status == -signal.SIGKILL  # it did not end by itself in time
    first.leave()
    with next_proxy(first) as second:
        kept = second.link.kept
        assert (kept.number, kept.stopping, kept.kernels) == (1, False, 1)
        assert granted_by >= kept.granted_at > 0
        run(second, 2, "print('again', flush=True)\n" + SLEEP)
        launched = second.until(LaunchedEvent)
        assert launched.launcher_pid == before.launcher_pid
        assert launched.kernel_pid != before.kernel_pid
        second.until_said("again")
        assert "released" not in second.said
        second.stop()
        second.until(StoppedEvent)
        assert gone(launched.kernel_pid, 0)


def told_pid(file: Path) -> str:
    """A kernel that says where it may be found."""
    return (
        f"import os; open({str(file)!r} + '.new', 'w').write(str(os.getpid())); "
        f"os.rename({str(file)!r} + '.new', {str(file)!r}); print('ready', flush=True)\n{SLEEP}"
    )


def pid_in(file: Path) -> int:
    return int(wait_until(lambda: file.exists() and file.read_text(), "a kernel that is prepared"))


@pytest.mark.usefixtures("patience")
def test_the_next_kernel_starts_before_its_proxy_comes_and_is_taken_by_it(
    first: SupervisorHarness, tmp_path: Path
) -> None:
    first.start(RELEASING, f"import time; time.sleep(0.3); open({str(tmp_path / 'ended')!r}, 'w')")
    before = first.until(LaunchedEvent)
    first.link.park(LATER, kernel(2, told_pid(tmp_path / "pid")))
    assert first.until(KernelExitedEvent).status == 0
    first.leave()
    prepared = pid_in(tmp_path / "pid")
    assert (tmp_path / "ended").exists()  # it had its time
    with next_proxy(first) as second:
        kept = second.link.kept
        assert (kept.granted_at > 0, kept.kernels, kept.supervisor) == (True, 1, first.pid)
        second.link.run_kernel(kernel(2, told_pid(tmp_path / "pid")))
        launched = second.until(LaunchedEvent)
        assert (launched.launcher_pid, launched.kernel_pid) == (before.launcher_pid, prepared)
        second.until_said("ready")
        os.kill(prepared, signal.SIGTERM)
        assert second.until(KernelExitedEvent).status == -signal.SIGTERM


@pytest.mark.parametrize("other", ["its program", "its variables", "its folder"])
def test_what_was_prepared_and_is_not_what_the_proxy_wants_makes_place_for_that(
    first: SupervisorHarness, tmp_path: Path, other: str
) -> None:
    first.start(RELEASING, "pass")
    first.until(LaunchedEvent)
    first.link.park(LATER, kernel(2, told_pid(tmp_path / "pid")))
    first.leave()
    prepared = pid_in(tmp_path / "pid")
    with next_proxy(first) as second:
        wanted = {
            "its program": kernel(2, told_pid(tmp_path / "other")),
            "its variables": kernel(2, told_pid(tmp_path / "pid"), BF_OTHER="1"),
            "its folder": kernel(2, told_pid(tmp_path / "pid"), folder=str(tmp_path)),
        }
        second.link.run_kernel(wanted[other])
        launched = second.until(LaunchedEvent)
        assert launched.kernel_pid != prepared
        assert gone(prepared, 0)
        assert ProcessWatch(launched.kernel_pid).alive


def test_what_was_prepared_and_has_died_is_started_again_for_its_proxy(
    first: SupervisorHarness, tmp_path: Path
) -> None:
    first.start(RELEASING, "pass")
    launcher = first.until(LaunchedEvent).launcher_pid
    first.link.park(LATER, kernel(2, told_pid(tmp_path / "pid")))
    first.leave()
    os.kill(prepared := pid_in(tmp_path / "pid"), signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{prepared}").exists())  # its launcher knows
    wait_until_asleep(launcher, first.pid)  # and has told the supervisor
    with next_proxy(first) as second:
        second.link.run_kernel(kernel(2, told_pid(tmp_path / "pid")))
        assert second.until(LaunchedEvent).kernel_pid != prepared


def test_what_was_prepared_ends_with_the_lease_if_no_proxy_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "KEPT_WITHOUT_RESTARTER", 0.1)
    with subprocess.Popen(["sleep", "600"]) as restarter, running_supervisor(restarter.pid) as first:
        first.start(RELEASING, "pass")
        first.until(LaunchedEvent)
        first.link.park(LATER, kernel(2, told_pid(tmp_path / "pid")))
        first.leave()
        prepared = pid_in(tmp_path / "pid")
        restarter.kill()
        restarter.wait()
        first.wait_for_end()
        assert gone(prepared, 0)


def test_a_proxy_that_comes_before_the_kernel_has_ended_ends_it(
    first: SupervisorHarness, tmp_path: Path
) -> None:
    first.start(RELEASING, SLEEP)
    before = first.until(LaunchedEvent)
    first.link.park(LATER, kernel(2, told_pid(tmp_path / "pid")))
    first.leave()
    with next_proxy(first) as second:
        second.link.run_kernel(kernel(2, told_pid(tmp_path / "pid")))
        launched = second.until(LaunchedEvent)
        assert gone(before.kernel_pid, 0)
        assert launched.kernel_pid == pid_in(tmp_path / "pid")


@pytest.mark.usefixtures("patience")
def test_a_kernel_that_is_told_to_end_may_finish_what_it_does_at_its_end(first: SupervisorHarness) -> None:
    first.start(
        RELEASING, "import time; print('begun', flush=True); time.sleep(0.5); print('done', flush=True)"
    )
    first.until(LaunchedEvent)
    first.until_said("begun")
    first.link.park(LATER)
    assert first.until(KernelExitedEvent).status == 0
    first.until_said("done")


def test_a_restart_while_waiting_keeps_the_place(first: SupervisorHarness) -> None:
    first.start(QUEUED)
    first.until_said("place 2 of 3")
    first.link.park(LATER)
    first.leave()
    with next_proxy(first) as second:
        kept = second.link.kept
        assert (kept.number, kept.granted_at, kept.lines) == (1, 0, ("oplace 2 of 3",))
        assert ProcessWatch(kept.pid).alive
        assert 0 <= time.monotonic() - kept.asked_at < scaled(20)


def test_a_wait_that_is_granted_after_a_restart_runs_the_new_proxys_kernel(
    first: SupervisorHarness, tmp_path: Path
) -> None:
    grant = tmp_path / "grant"
    first.start(
        granted_with(grant),
        "print('old', flush=True)\n" + SLEEP,
    )
    first.link.park(LATER)
    first.leave()
    with next_proxy(first) as second:
        run(second, 2, "print('new', flush=True)\n" + SLEEP)
        grant.touch()
        assert second.until(LaunchedEvent).kernel == 2
        second.until_said("new")


def test_a_wait_that_is_granted_between_two_proxies_has_no_kernel(
    first: SupervisorHarness, tmp_path: Path
) -> None:
    grant = tmp_path / "grant"
    first.start(
        granted_with(grant),
        SLEEP,
    )
    first.link.park(LATER)
    first.leave()
    grant.touch()
    granted_at = 0.0
    while not granted_at:
        with next_proxy(first) as second:
            granted_at = second.link.kept.granted_at
            second.link.park(LATER)
    wait_until(lambda: not _children_of(_children_of(second.link.kept.pid)[0]), "no kernel")
    with next_proxy(first) as third:
        third.stop()


def _children_of(pid: int) -> list[int]:
    found = {each: stat(each) for each in pids()}
    return [each for each, fields in found.items() if fields and fields[2] == str(pid) and fields[1] != "Z"]


@pytest.mark.parametrize(
    "how",
    ["parked", "parked, nobody to restart", "without a word", "without a word, nobody to restart"],
)
def test_what_nobody_fetches_in_time_is_given_back(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, other = scaled(0.5), 60.0
    monkeypatch.setattr(supervisor, "KEPT_FOR_RESTARTER", other if how.endswith("restart") else limit)
    monkeypatch.setattr(supervisor, "KEPT_WITHOUT_RESTARTER", limit if how.endswith("restart") else other)
    restarter = 0 if how.endswith("restart") else os.getpid()
    with running_supervisor(restarter) as first:
        first.start(RELEASING, SLEEP)
        kernel = first.until(LaunchedEvent).kernel_pid
        began = time.monotonic()
        if how.startswith("parked"):
            first.link.park(other if restarter == 0 else limit)
        first.leave()
        assert first.wait_for_end() == 0
        assert limit * 0.9 <= time.monotonic() - began < limit + scaled(5)
        assert gone(kernel, 0)
        assert not first.folder.exists()


@pytest.mark.parametrize("parked", [True, False])
def test_while_no_proxy_is_there_the_supervisor_tells_the_state(
    first: SupervisorHarness, parked: bool
) -> None:
    file = str(first.folder / states.FILE_NAME)
    states.write(str(first.folder), {"version": 1, "state": "idle", "notebook": "x.ipynb"})
    first.start(RELEASING, "import signal; signal.signal(15, signal.SIG_IGN)\n" + SLEEP)
    first.until(LaunchedEvent)
    if parked:
        first.link.park(LATER)
    began = time.time()
    first.leave()
    told = wait_until(lambda: (told := states.read(file) or {})["state"] == "parked" and told, "it is told")
    assert began - 0.01 <= told["since"] <= time.time()
    assert (told["notebook"], told["idle_since"]) == ("x.ipynb", None)
    with next_proxy(first) as second:
        assert second.link.kept.granted_at
        states.write(str(first.folder), {**told, "state": "starting"})  # as the next proxy does
        second.link.park(0.1)
    wait_until(
        lambda: (states.read(file) or {"state": "gone"})["state"] in ("releasing", "gone"), "given back"
    )
    wait_until(lambda: not first.folder.exists(), "the file goes with the folder")


def test_a_proxy_that_is_gone_without_a_word_takes_its_kernel_along_at_once(first: SupervisorHarness) -> None:
    first.start(RELEASING, "import signal; signal.signal(15, signal.SIG_IGN)\n" + SLEEP)
    kernel = first.until(LaunchedEvent).kernel_pid
    first.leave()
    assert gone(kernel, 0.5)
    with next_proxy(first) as second:
        assert second.link.kept.granted_at


@pytest.mark.parametrize("how", ["parked", "without a word"])
@pytest.mark.parametrize("why", ["no key", "cleaned"])
def test_what_the_next_proxy_could_not_find_is_given_back_at_once(how: str, why: str) -> None:
    """It would only wait for it, as everybody else."""
    with running_supervisor(os.getpid(), found_again=why != "no key") as first:
        first.start(RELEASING, SLEEP)
        kernel = first.until(LaunchedEvent).kernel_pid
        if why == "cleaned":
            shutil.rmtree(first.folder)
        if how == "parked":
            first.link.park(LATER)
        first.leave()
        began = time.monotonic()
        assert first.wait_for_end() == 0
        assert time.monotonic() - began < scaled(2)
        assert gone(kernel, 0)


def test_a_folder_that_was_cleaned_and_made_again_is_found_and_is_no_dead_ones(
    first: SupervisorHarness,
) -> None:
    # else its supervisor may just be binding its socket there
    wait_until(lambda: any(each.is_socket() for each in first.folder.iterdir()), "it listens", 5)
    shutil.rmtree(first.folder)
    first.folder.mkdir(0o700)  # as the proxy does before it starts a kernel
    first.start(RELEASING, SLEEP)
    first.until(LaunchedEvent)
    first.link.park(LATER)
    first.leave()
    assert private_folder.lock(str(first.folder)) is None
    with next_proxy(first) as second:
        assert second.link.kept.granted_at


def test_a_shutdown_for_good_after_a_restart_gives_the_lease_back(first: SupervisorHarness) -> None:
    first.start(RELEASING, SLEEP)
    first.until(LaunchedEvent)
    first.link.park(LATER)
    first.leave()
    with next_proxy(first) as second:
        second.stop()
        second.until_said("released")
        assert second.until(WrapperExitedEvent).number == 1


def _is_of(number: int, event: LaunchedEvent) -> bool:
    return event.kernel == number


def test_the_third_death_within_a_minute_gives_the_lease_back(first: SupervisorHarness) -> None:
    first.start(RELEASING, SLEEP)
    for number in (0, 2, 3):
        kernel = first.until(LaunchedEvent, partial(_is_of, number)).kernel_pid
        os.kill(kernel, signal.SIGKILL)
        event = first.until(KernelExitedEvent)
        assert (event.status, event.kernel, event.last) == (-9, number, number == 3)
        if number < 3:
            run(first, max(2, number + 1), SLEEP)
    first.until_said("released")


def test_deaths_between_which_a_cell_has_finished_do_not_count(first: SupervisorHarness) -> None:
    first.start(RELEASING, SLEEP)
    for number in range(2, 8):
        os.kill(first.until(LaunchedEvent).kernel_pid, signal.SIGKILL)
        assert not first.until(KernelExitedEvent).last
        first.link.worked()
        run(first, number, SLEEP)
    first.until(LaunchedEvent)


def test_three_proxies_that_die_before_a_cell_has_finished_give_the_lease_back(
    first: SupervisorHarness,
) -> None:
    first.start(RELEASING, SLEEP)
    first.until(LaunchedEvent)
    first.leave()
    for number in (2, 3):
        with next_proxy(first) as proxy:
            run(proxy, number, SLEEP)
            proxy.until(LaunchedEvent)
    assert first.wait_for_end() == 0  # no wait for a fourth


GROUP = (
    "import os, subprocess, sys, time\n"
    "child = 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)'\n"
    "mine = subprocess.Popen([sys.executable, '-ISc', child])\n"
    "own = subprocess.Popen([sys.executable, '-ISc', child], start_new_session=True)\n"
    "print(mine.pid, own.pid, flush=True)\n"
)


@pytest.mark.parametrize("end", [SLEEP, "raise SystemExit(1)"])
def test_the_group_of_a_kernel_is_gone_before_the_next_starts_and_its_own_sessions_end_with_the_lease(
    first: SupervisorHarness, end: str
) -> None:
    first.start(RELEASING, GROUP + end)
    line = first.until(OutputEvent, lambda event: event.text[:1].isdigit()).text
    group, session = map(int, line.split())
    run(first, 2, "print('next', flush=True)\n" + SLEEP)
    first.until_said("next")
    assert gone(group, 0)
    assert not gone(session, 0)
    first.stop()
    first.until_said("released")
    assert gone(session, 0)


SLOW_LAUNCHER = (
    "import sys, time\n"
    f"sys.path.append({str(Path(private_folder.__file__).parents[2])!r})\n"
    "from bitfusion_kernel.processes import launcher, reaper\n"
    "adopt = reaper.adopt_orphans\n"
    "reaper.adopt_orphans = lambda: (adopt(), time.sleep(1))\n"
    "sys.exit(launcher.main(sys.argv[1:]))"
)
"""It comes to look at its kernel when that has long ended."""


def test_what_a_kernel_leaves_that_dies_at_once_ends_with_the_lease(first: SupervisorHarness) -> None:
    kernel = [*PYTHON, GROUP + "time.sleep(0.3); raise SystemExit(1)"]
    program = [*PYTHON, SLOW_LAUNCHER, str(first.folder / "launcher-1"), "--", *kernel]
    first.start([*PYTHON, RELEASING, *program])
    line = first.until(OutputEvent, lambda event: event.text[:1].isdigit()).text
    _, session = map(int, line.split())
    assert first.until(KernelExitedEvent).status == 1
    assert not gone(session, 0)
    first.stop()
    first.until_said("released")
    assert gone(session, 0)


def test_the_next_kernel_has_its_proxys_folder_and_variables_and_the_wrappers_own_win(
    first: SupervisorHarness, tmp_path: Path
) -> None:
    wrapper = (
        "import os, subprocess, sys\nos.environ.update(LD_PRELOAD_TEST='wrapper', BOTH='wrapper')\n"
        "del os.environ['TAKEN']\nsys.exit(subprocess.run(sys.argv[1:]).returncode)"
    )
    first.start(wrapper, SLEEP, BOTH="first", TAKEN="first", MINE="first", GONE="first")
    first.until(LaunchedEvent)
    tell = (
        "import os\nprint([os.environ.get(n) for n in ('LD_PRELOAD_TEST', 'BOTH', 'TAKEN', 'MINE', 'GONE')], "
    )
    environment = dict(os.environ, BOTH="second", TAKEN="second", MINE="second")
    argv = [*PYTHON, tell + "os.getcwd(), flush=True)\n" + SLEEP]
    first.link.run_kernel(KernelCommand(2, argv, environment, {}, str(tmp_path)))
    first.until_said(f"['wrapper', 'wrapper', None, 'second', None] {tmp_path}")


@pytest.mark.parametrize(
    ("wanted", "wrapped", "here", "expected"),
    [
        ({"A": "2"}, {"A": "1"}, {"A": "1"}, {"A": "2"}),
        ({"A": "2"}, {"A": "1"}, {"A": "w"}, {"A": "w"}),
        ({"A": "2"}, {"A": "1"}, {}, {}),
        ({}, {"A": "1"}, {"A": "1"}, {}),
        ({"A": "2"}, {}, {}, {"A": "2"}),
        ({}, {}, {"A": "w"}, {"A": "w"}),
    ],
)
def test_environment_on_a_lease(
    wanted: dict[str, str], wrapped: dict[str, str], here: dict[str, str], expected: dict[str, str]
) -> None:
    assert environment_on_lease(wanted, wrapped, here) == expected


# -- who may join --------------------------------------------------------------------------------------


def test_a_second_proxy_is_refused_while_the_first_one_lives(first: SupervisorHarness) -> None:
    first.start(RELEASING, SLEEP)
    kernel = first.until(LaunchedEvent).kernel_pid
    with pytest.raises(Refused) as refused:
        join_supervisor(str(first.folder), os.getpid())
    assert refused.value.version == VERSION
    assert not gone(kernel, 0.1)


def test_a_proxy_of_another_version_is_refused_and_all_is_given_back(first: SupervisorHarness) -> None:
    first.start(RELEASING, SLEEP)
    kernel = first.until(LaunchedEvent).kernel_pid
    first.link.park(LATER)
    first.leave()
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(first.folder / meeting_point.NAME))
        newer = MessageConnection(peer)
        newer.send(JoinCommand(VERSION + 1))
        wait_until(lambda: newer.receive() == [RefusedEvent(VERSION)] or newer.closed, "the refusal")
    assert first.wait_for_end() == 0
    assert gone(kernel, 0)


@pytest.mark.parametrize("said", [b"", b"nonsense\n", b'{"type": "stop"}\n', b'{"type": "join"}\n'])
def test_a_stranger_who_knocks_is_no_hindrance(first: SupervisorHarness, said: bytes) -> None:
    first.start(RELEASING, SLEEP)
    first.until(LaunchedEvent)
    first.link.park(LATER)
    first.leave()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(first.folder / meeting_point.NAME))
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        with next_proxy(first) as second:
            assert second.link.kept.granted_at


def test_nobody_is_met_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(Gone):
        join_supervisor(str(tmp_path), os.getpid())


def test_a_supervisor_that_stands_still_is_not_waited_for(
    first: SupervisorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting_point, "JOIN_LIMIT", 0.2)
    first.stop()
    first.until(StoppedEvent)  # it listens; its socket is there before
    os.kill(first.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Silent):
            join_supervisor(str(first.folder), os.getpid())
    finally:
        os.kill(first.pid, signal.SIGCONT)


def test_the_supervisor_has_nothing_for_a_proxy_before_which_nothing_was_asked(
    first: SupervisorHarness,
) -> None:
    first.leave()
    try:
        second = SupervisorHarness(join_supervisor(str(first.folder), os.getpid()))
    except Gone:
        return  # it has ended before it was met
    assert second.link.kept == JoinedEvent()
    second.leave()
