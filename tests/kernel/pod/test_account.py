"""The account of a container: its files, who is counted, and kernels that come and die at any moment."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.pod import take_turn
from bitfusion_kernel.pod.account import Account, AccountUnusable, open_account, standing, write_entry
from bitfusion_kernel.pod.turns import Entry
from bitfusion_kernel.processes.held_file import HeldFile
from tests.kernel.pod.fake_pod import FakePod
from tests.support.machine import scaled
from tests.support.processes import read_process
from tests.support.waiting import wait_until


@pytest.fixture
def fake(tmp_path: Path) -> FakePod:
    return FakePod(tmp_path)


@pytest.fixture
def account(fake: FakePod, tmp_path: Path) -> Account:
    runtime = tmp_path / "run"
    runtime.mkdir()
    return open_account(fake.pod, {"XDG_RUNTIME_DIR": str(runtime)})


def entry(number: int, *, holds: bool = True) -> Entry:
    return Entry(number, f"{number}.ipynb", GpuRequest(1, 0.25), False, holds, float(number))


def hold(account: Account, number: int) -> HeldFile:
    path = account.new_entry()
    held = HeldFile(path)
    write_entry(path, entry(number))
    return held


# -- the folder --------------------------------------------------------------------------------------


def test_it_lies_in_the_runtime_folder_is_the_users_alone_and_goes_with_the_last_kernel(
    fake: FakePod, tmp_path: Path
) -> None:
    previous = os.umask(0)
    try:
        account = open_account(fake.pod, {"XDG_RUNTIME_DIR": str(tmp_path)})
        held = [hold(account, 1), hold(account, 2)]
    finally:
        os.umask(previous)
    folder = Path(account.folder)
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    held[0].release()
    assert [each.number for each in account.entries()] == [2]
    held[1].release()
    assert not folder.exists()
    assert account.entries() == []


def test_two_containers_of_a_pod_and_two_pods_have_each_their_own(fake: FakePod) -> None:
    folders = set()
    for file, text in (("container", "digits"), ("container", "side/../car"), ("uid", "another")):
        fake.write(f"pod/{file}", text)
        account = open_account(fake.pod, {"XDG_RUNTIME_DIR": str(fake.root)})
        folders.add(account.folder)
        assert os.path.dirname(account.folder) == str(fake.root)
    assert len(folders) == 3


def test_without_a_usable_runtime_folder_it_lies_in_tmp(fake: FakePod, tmp_path: Path) -> None:
    fake.write("pod/uid", f"test-{os.urandom(8).hex()}")
    for environ in ({}, {"XDG_RUNTIME_DIR": str(tmp_path / "none")}, {"XDG_RUNTIME_DIR": "/proc"}):
        account = open_account(fake.pod, environ)
        assert os.path.dirname(account.folder) == "/tmp"
        hold(account, 1).release()


def _link(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere)


def _file(path: Path, _: Path) -> None:
    path.write_text("")


def _other_users(path: Path, _: Path) -> None:
    path.mkdir()
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    "put",
    [
        _link,
        _file,
        pytest.param(
            _other_users, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give it away")
        ),
    ],
)
def test_what_a_neighbour_has_put_in_its_place_is_not_used(
    fake: FakePod, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: object
) -> None:
    folder = Path(account.folder)
    folder.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert callable(put)
    put(folder, elsewhere)
    with pytest.raises(OSError, match="this is not a folder of yours"):
        account.make_folder()
    assert not list(elsewhere.iterdir())
    monkeypatch.setattr("bitfusion_kernel.pod.account._places", lambda *_: [account])
    with pytest.raises(AccountUnusable, match="this is not a folder of yours"):
        open_account(fake.pod, {})
    assert standing(fake.pod, {}).entries == ()
    with pytest.raises(OSError, match=r"Not a directory|Too many|this is not a folder of yours"):
        account.lock()


def test_a_folder_that_was_opened_to_others_is_closed_again(fake: FakePod, account: Account) -> None:
    os.chmod(account.folder, 0o777)
    account.make_folder()
    assert stat.S_IMODE(os.stat(account.folder).st_mode) == 0o700


# -- its files ---------------------------------------------------------------------------------------


def test_what_is_not_locked_counts_for_nothing_and_is_removed_by_who_decides(account: Account) -> None:
    held = hold(account, 1)
    dead = account.new_entry()
    Path(dead).write_text(entry(2).to_json())
    assert [each.number for each in account.entries()] == [1]
    assert os.path.exists(dead), "who only looks removes nothing"
    assert [each.number for each in account.entries(remove_dead=True)] == [1]
    assert not os.path.exists(dead)
    held.release()


def test_links_pipes_and_nonsense_are_passed_over(account: Account, tmp_path: Path) -> None:
    folder = Path(account.folder)
    outside = HeldFile(str(tmp_path / "outside" / "entry"))
    write_entry(str(tmp_path / "outside" / "entry"), entry(7))
    (folder / "link").symlink_to(tmp_path / "outside" / "entry")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    nonsense = HeldFile(str(folder / "nonsense"))
    (folder / "nonsense").write_text("{")
    assert account.entries() == []
    assert account.entries(remove_dead=True) == []
    assert (tmp_path / "outside" / "entry").exists()
    nonsense.release()
    outside.release()


def test_a_lock_that_is_taken_is_told_and_not_waited_for(account: Account) -> None:
    first = account.lock()
    assert first is not None
    assert account.lock() is None
    os.close(first)
    second = account.lock()
    assert second is not None
    os.close(second)


def test_a_file_that_was_removed_before_its_lock_is_made_again(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = account.new_entry()
    lock = fcntl.flock
    seen: list[int] = []

    def remove_then_lock(fd: int, operation: int) -> None:
        if not seen:
            os.unlink(path)
            os.rmdir(account.folder)
        seen.append(fd)
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    held = HeldFile(path)
    assert len(seen) == 2
    assert os.path.exists(path)
    held.release()


def test_a_file_that_is_locked_in_the_moment_of_its_removal_is_made_again(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker waits for the lock of who takes it for a dead one's, and does not come between."""
    path = account.new_entry()
    unlink = os.unlink
    tried: list[bool] = []

    def try_to_lock_then_unlink(removed: str) -> None:
        with open(removed) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                tried.append(True)
            except BlockingIOError:
                tried.append(False)
        unlink(removed)

    Path(path).write_text("")
    monkeypatch.setattr(os, "unlink", try_to_lock_then_unlink)
    assert account.entries(remove_dead=True) == []
    assert tried == [False]


# -- processes ---------------------------------------------------------------------------------------

HOLDER = """
import os, signal, subprocess, sys
from bitfusion_kernel.processes.held_file import HeldFile
held = HeldFile(sys.argv[1])
child = subprocess.Popen(sys.argv[2:])
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
status = child.wait()
held.release()
sys.exit(status)
"""
"""Stands for a supervisor: holds the entry while its wrapper runs."""

CLIENT = """#!{python} -IS
import os, sys, time
words = sys.argv[1 : sys.argv.index("--")]
share = float(words[words.index("-p") + 1]) if "-p" in words else 1.0
name = sys.argv[-1]
mine = os.path.join({folder!r}, name)
with open(mine + ".new", "w") as file:
    file.write(str(share))
os.rename(mine + ".new", mine)
print("granted", flush=True)
time.sleep(600)
"""
"""Stands for `bitfusion run`: says what it has."""


class Kernels:
    """Supervisors with wrappers that share one account."""

    def __init__(self, account: Account, fake: FakePod, folder: Path) -> None:
        self.account = account
        self.budget = fake.pod.budget
        self.granted = folder / "granted"
        self.granted.mkdir()
        self.client = folder / "client"
        self.client.write_text(CLIENT.format(python=sys.executable, folder=str(self.granted)))
        self.client.chmod(0o755)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._number = 0

    def start(self, share: float | None) -> str:
        """One more kernel, of a size or of what is left; its name."""
        self._number += 1
        name = f"{self._number}.ipynb"
        request = GpuRequest(1, share)
        entry = self.account.new_entry()
        wanted = take_turn.wanted(self.budget, request, name, takes_what_is_left=share is None)
        command = take_turn.command(sys.executable, entry, wanted, str(self.client), [name])
        self.running[name] = subprocess.Popen(
            [sys.executable, "-c", HOLDER, entry, *command], stdout=subprocess.DEVNULL, start_new_session=True
        )
        return name

    def kill(self, name: str) -> None:
        """SIGKILL of the supervisor; its wrapper, which somebody else ends, a little later."""
        process = self.running.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        os.killpg(process.pid, signal.SIGKILL)
        (self.granted / name).unlink(missing_ok=True)

    def held(self) -> float:
        """The share that all of them hold by the account."""
        return sum(each.request.partial or 1.0 for each in self.account.entries() if each.holds)

    def waiting(self) -> list[str]:
        """Who waits, in the order of arrival."""
        return [each.notebook for each in self.account.entries() if not each.holds]

    def has(self, name: str) -> float | None:
        """The share that one has got."""
        file = self.granted / name
        return float(file.read_text()) if file.exists() else None


@pytest.fixture
def kernels(account: Account, fake: FakePod, tmp_path: Path) -> Iterator[Kernels]:
    made = Kernels(account, fake, tmp_path)
    yield made
    for name in list(made.running):
        made.kill(name)


def test_sigkill_frees_at_once_and_the_next_takes_it(kernels: Kernels) -> None:
    first = kernels.start(None)
    wait_until(lambda: kernels.has(first) == 1.0)
    second = kernels.start(0.5)
    wait_until(lambda: kernels.waiting() == [second])
    third = kernels.start(None)
    wait_until(lambda: kernels.waiting() == [second, third])
    assert kernels.has(second) is None
    kernels.kill(first)
    wait_until(lambda: kernels.has(second) == kernels.has(third) == 0.5)


@pytest.mark.long
def test_kernels_that_come_end_and_are_killed_never_hold_more_than_the_budget(kernels: Kernels) -> None:
    """A randomised run."""
    dice = random.Random(1)
    most = 0.0
    for _ in range(2):
        for _ in range(4):
            kernels.start(dice.choice([None, 0.25, 0.5, 0.75]))
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            held = kernels.held()
            assert held <= 1.0
            most = max(most, held)
            time.sleep(0.01)
        for name in dice.sample(sorted(kernels.running), 2):
            kernels.kill(name)
    while kernels.running:
        wait_until(lambda: any(kernels.has(name) for name in kernels.running))
        most = max(most, kernels.held())
        kernels.kill(next(name for name in kernels.running if kernels.has(name)))
    assert most > 0.5
    assert kernels.account.entries() == []


SAME_MOMENT = """
import os, random, sys, time
from bitfusion_kernel.pod import take_turn
from bitfusion_kernel.pod.account import Account
from bitfusion_kernel.pod.budget import Budget
from bitfusion_kernel.pod.turns import held
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.processes.held_file import HeldFile
take_turn.LOOK_EVERY = take_turn.LOCKED_PAUSE = 0.001
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
account, budget = Account(sys.argv[1]), Budget(GpuRequest(1), 100)
gate, opened = os.pipe()
children = []
for number in range(6):
    pid = os.fork()
    if pid:
        children.append(pid)
        continue
    os.close(opened)
    os.read(gate, 1)  # until all are there
    dice = random.Random(number)
    for _ in range(25):
        path = account.new_entry()
        file = HeldFile(path)
        share = dice.choice([None, 0.3, 0.6])
        request = GpuRequest(1, share)
        take_turn.await_turn(
            path, take_turn.wanted(budget, request, "x", takes_what_is_left=share is None)
        )
        while (lock := account.lock()) is None:  # so that nobody is granted what was just given back
            time.sleep(0.001)
        entries = account.entries()
        os.close(lock)
        if held(budget, entries) > budget.total or len({each.number for each in entries}) < len(entries):
            os._exit(1)
        file.release()
    os._exit(0)
os.close(opened)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


def test_those_that_ask_in_the_same_moment_never_have_more_than_the_budget(account: Account) -> None:
    """Six kernels, 25 times each; none has more than is left, no two have one number."""
    done = subprocess.run(
        [sys.executable, "-c", SAME_MOMENT, account.folder], timeout=scaled(40), check=False
    )
    assert done.returncode == 0


def test_a_wrapper_whose_supervisor_is_gone_waits_no_longer(kernels: Kernels) -> None:
    first = kernels.start(None)
    wait_until(lambda: kernels.has(first))
    second = kernels.start(None)
    wait_until(lambda: kernels.waiting() == [second])
    supervisor = kernels.running.pop(second)
    wrapper = int(Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text())
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.wait()
    wait_until(lambda: read_process(wrapper) is None, "the end of the wrapper")
    assert kernels.has(second) is None


def test_a_client_that_cannot_be_executed_is_told(account: Account, fake: FakePod) -> None:
    path = account.new_entry()
    held = HeldFile(path)
    wanted = take_turn.wanted(fake.pod.budget, GpuRequest(1), "x.ipynb", takes_what_is_left=False)
    command = take_turn.command(sys.executable, path, wanted, "/no/such/bitfusion", ["true"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(20), check=False)
    assert done.returncode == 127
    assert done.stdout.splitlines()[-1] == (
        "Error: cannot start /no/such/bitfusion: No such file or directory"
    )
    held.release()


def test_a_wait_ends_with_its_time_limit(account: Account, fake: FakePod) -> None:
    other = hold(account, 1)
    path = account.new_entry()
    held = HeldFile(path)
    wanted = take_turn.wanted(
        fake.pod.budget, GpuRequest(1, timeout=0.1), "x.ipynb", takes_what_is_left=False
    )
    command = take_turn.command(sys.executable, path, wanted, "/bin/echo", ["true"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(20), check=False)
    assert done.returncode == 1
    waits, ends = done.stdout.splitlines()
    assert "position 1 of 1; held by 1.ipynb (1 GPU × 25 %, since " in waits
    assert ends == "Error: timed out after 100ms waiting for the budget of this pod"
    held.release()
    other.release()


def test_without_an_account_the_client_is_started_and_the_line_says_so(fake: FakePod, tmp_path: Path) -> None:
    wanted = take_turn.wanted(fake.pod.budget, GpuRequest(1, 0.5), "x.ipynb", takes_what_is_left=True)
    entry = str(tmp_path / "none" / "entry")
    command = take_turn.command(sys.executable, entry, wanted, "/bin/echo", ["true"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(20), check=True)
    told, echoed = done.stdout.splitlines()
    assert told.startswith("[WARN] ")
    assert told.endswith(
        f" The budget of this pod is not counted: {tmp_path}/none: No such file or directory"
    )
    assert echoed == "run -n 1 -p 0.5 -- true"


def test_the_client_gets_the_signals_that_python_ignores(fake: FakePod, tmp_path: Path) -> None:
    wanted = take_turn.wanted(fake.pod.budget, GpuRequest(1), "x.ipynb", takes_what_is_left=True)
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\ngrep SigIgn /proc/self/status\n")
    client.chmod(0o755)
    command = take_turn.command(sys.executable, str(tmp_path / "none" / "e"), wanted, str(client), ["true"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(20), check=True)
    assert int(done.stdout.split()[-1], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0
