"""A cluster that keeps running for a developer: its state file, and how it is started and ended.

The process that holds it is a session of its own and ends the cluster when it gets SIGTERM. The state file
notes every process with its start time, so only those are ever ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.binaries import NODE, VERSION, ClusterUnavailable, Say, binaries, cache_folder
from tests.cluster.cluster import Cluster
from tests.cluster.components import ComponentFailed
from tests.cluster.guardian import end_all, remove_cgroups, start_time
from tests.cluster.node import NODE_NAME, Node, prepare_packages, scheduled_node, why_no_node
from tests.cluster.notebook_controller import Kubeflow
from tests.support.machine import scaled
from tests.support.waiting import Deadline, wait_until

_ROOT = Path(__file__).parent.parent.parent
_START_LIMIT_S = 120.0
_END_LIMIT_S = 30.0


@dataclass(frozen=True)
class NodeState:
    """What the state file tells of a real node."""

    host_address: str
    """This machine, as pods reach it."""
    cgroups: list[str]
    ctr: list[str]
    """The command by which containerd is told something, images for instance."""


@dataclass(frozen=True)
class State:
    """What the state file tells of a running cluster."""

    holder: int
    """The process that holds the cluster."""
    processes: dict[str, tuple[int, str]]
    """Process id and start time by name: the holder, the guardian and the components."""
    folder: str
    kubeconfig: str
    since: str
    start_s: float
    notebook_controller: str | None
    node: NodeState | None = None

    @property
    def living(self) -> dict[str, tuple[int, str]]:
        return {
            name: (pid, start) for name, (pid, start) in self.processes.items() if start_time(pid) == start
        }

    @property
    def complete(self) -> bool:
        """Whether every process of it is alive."""
        return len(self.living) == len(self.processes)


def default_state_file() -> Path:
    """One background cluster for a user of a machine."""
    return cache_folder() / "running.json"


def read_state(file: Path) -> State | None:
    """None when no cluster was started, or nothing of it is alive."""
    try:
        told = json.loads(file.read_text())
        processes = {name: (int(pid), str(start)) for name, (pid, start) in told.pop("processes").items()}
        node = told.pop("node", None)
        state = State(processes=processes, node=NodeState(**node) if node else None, **told)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return state if state.living else None


def up(file: Path, kubeflow: Kubeflow | None, say: Say, with_node: bool = False) -> State:
    """Start one in the background and wait until it is ready; the one that is there when it is whole.

    Raises ClusterUnavailable where it cannot be built, ComponentFailed when it does not start; with a node
    also PackagesUnavailable.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _alone(file):
        state = read_state(file)
        if state is not None and state.complete:
            if kubeflow not in (None, state.notebook_controller) or (with_node and state.node is None):
                say("cluster: one is running already and stays as it is; end it first for another one")
            return state
        if state is not None:
            say("cluster: a part of it is gone; starting anew")
            _end(state, file)
        say(f"cluster: {binaries(say).told}")
        if with_node:
            reason = why_no_node()
            if reason is not None:
                raise ClusterUnavailable(reason)
            say(f"node: {binaries(say, NODE).told}")
            prepare_packages(say)
        return _start_holder(file, kubeflow, with_node)


def down(file: Path) -> State | None:
    """End exactly the processes of the state file; returns what was running."""
    if not file.parent.is_dir():
        return None
    with _alone(file):
        state = read_state(file)
        if state is None:
            file.unlink(missing_ok=True)
            return None
        _end(state, file)
        return state


def hold(file: Path, kubeflow: Kubeflow | None, with_node: bool = False) -> None:
    """The background process: start everything, note it in the file, wait for SIGTERM, end everything."""
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: ending.set())
    cluster = Cluster.start(binaries(), nodes=[NODE_NAME] if with_node else [])
    with ExitStack() as stack:
        stack.callback(file.unlink, missing_ok=True)
        stack.callback(cluster.end)
        node = None
        if with_node:
            node = stack.enter_context(scheduled_node(cluster, binaries(parts=NODE)))
        else:
            stack.enter_context(cluster.node_stub())
        if kubeflow is not None:
            stack.enter_context(cluster.notebook_controller(kubeflow))
        _write(file, _state_of(cluster, kubeflow, node))
        ending.wait()


def import_archive(state: State, archive: Path) -> str:
    """Make the images of an archive known to the node; returns containerd's words, raises ComponentFailed."""
    if state.node is None:
        raise ComponentFailed(
            "cluster: it has no node that could run images; end it and start one with --node"
        )
    command = [*state.node.ctr, "images", "import", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise ComponentFailed(f"cluster: {archive} was not imported: {done.stderr.strip()}")
    return done.stdout


def _state_of(cluster: Cluster, kubeflow: Kubeflow | None, node: Node | None) -> State:
    pids = {"holder": os.getpid(), "guardian": cluster.guardian_pid}
    components = {**cluster.components, **(node.components if node else {})}
    pids |= {name: component.pid for name, component in components.items()}
    told = None
    if node is not None:
        told = NodeState(node.host_address, [str(each) for each in node.cgroups()], node.ctr_command)
    return State(
        node=told,
        holder=os.getpid(),
        processes={name: (pid, start_time(pid) or "0") for name, pid in pids.items()},
        folder=str(cluster.folder),
        kubeconfig=str(cluster.kubeconfig),
        since=time.strftime("%Y-%m-%d %H:%M:%S"),
        start_s=cluster.start_s + (node.start_s if node else 0),
        notebook_controller=kubeflow,
    )


def _start_holder(file: Path, kubeflow: Kubeflow | None, with_node: bool) -> State:
    command = [sys.executable, "-m", "tests.cluster", "hold", "--state", str(file)]
    if kubeflow is not None:
        command += ["--notebook-controller", kubeflow]
    if with_node:
        command.append("--node")
    log = file.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = Deadline(_START_LIMIT_S)
        while not deadline.passed:
            state = read_state(file)
            if state is not None and state.holder == process.pid:
                process.returncode = 0  # it stays; nobody waits for it
                return state
            if process.poll() is not None:
                break
            time.sleep(0.05)
        last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise ComponentFailed(f"the cluster did not start; the last lines of {log}:\n{last}")
    except BaseException:
        if process.poll() is None:
            process.terminate()
            process.wait(scaled(_END_LIMIT_S))
        raise


def _end(state: State, file: Path) -> None:
    pid, start = state.processes["holder"]
    if start_time(pid) == start:
        os.kill(pid, signal.SIGTERM)
    # Where the holder was killed before, its guardian is at it already, and goes last.
    with suppress(AssertionError):
        wait_until(lambda: not state.living.keys() & {"holder", "guardian"}, limit_s=_END_LIMIT_S)
    if state.living:
        end_all(dict(state.living.values()))
        with suppress(AssertionError):
            wait_until(lambda: not state.living, limit_s=5)
    remove_cgroups(state.node.cgroups if state.node else [])
    shutil.rmtree(state.folder, ignore_errors=True)
    file.unlink(missing_ok=True)


def _write(file: Path, state: State) -> None:
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(asdict(state), indent=1))
    fresh.rename(file)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Two commands at once come one after the other."""
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def told(state: State) -> list[str]:
    """What a developer wants to know, ending with the line to type."""
    lines = [f"cluster: Kubernetes {VERSION} is running since {state.since}, up in {state.start_s:.1f} s"]
    missing = sorted(set(state.processes) - set(state.living))
    if missing:
        lines.append(f"cluster: not running any more: {', '.join(missing)}")
    if state.notebook_controller:
        lines.append(f"cluster: with a stub of Kubeflow's notebook controller {state.notebook_controller}")
    if state.node:
        here = state.node.host_address
        lines.append(f"cluster: with a node on which pods run; they reach this machine at {here}")
        lines.append("cluster: images for it: python -m tests.cluster import ARCHIVE, imagePullPolicy: Never")
    return [*lines, f"export KUBECONFIG={state.kubeconfig}"]
