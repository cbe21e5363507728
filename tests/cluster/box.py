"""A box: namespaces of processes, mounts and network in which one node lives, as a container in `kind`.

Whatever runs, is mounted or plugged together in it goes when its first process dies, by the kernel's own
hand: containers and their shims, which are nobody's children, included. Only cgroups are the machine's; all
of a box lie below one folder in each hierarchy, which `end` or the cluster's guardian removes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.cluster import api_relay, box_enter, box_init
from tests.cluster.cluster import Cluster
from tests.cluster.components import Component, ComponentFailed
from tests.cluster.guardian import remove_cgroup, start_time
from tests.cluster.keys import SERVICE_ADDRESS
from tests.support import processes
from tests.support.machine import scaled
from tests.support.processes import processes_with
from tests.support.waiting import wait_until

NODE_MARK = "BITFUSION_TEST_NODE"
"""In the environment of every program of a node; its value is the node's folder."""
_CGROUPS = Path("/sys/fs/cgroup")
_PREFIX = "bft-node"
_LIMIT_S = 30.0
BOXES = "10.213.0.0/16"
"""The addresses of all boxes of this machine."""


def cgroup_roots() -> list[Path]:
    """The hierarchies of this machine: one of version 2, or several of version 1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    mounts = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    # In the one of version 2 beside version 1, nothing is controlled, but folders are made all the same.
    points = {fields[4] for fields in mounts if fields[fields.index("-") + 1] in ("cgroup", "cgroup2")}
    return sorted({Path(os.path.realpath(point)) for point in points})


class Subnet:
    """A /24 of this machine that no other box has while this one lives, cut in two."""

    def __init__(self) -> None:
        taken = _routed_networks()
        for number in range(256):
            reservation = socket.socket(socket.AF_UNIX)
            try:
                reservation.bind(f"\0kubeflow-bitfusion-test-subnet-{number}")
            except OSError:
                reservation.close()
                continue
            if f"10.213.{number}" not in taken:
                self._reservation = reservation
                break
            reservation.close()
        else:
            raise ComponentFailed(f"no network of {BOXES} is free for a node of the test cluster")
        base = f"10.213.{number}"
        self.host = f"{base}.1"
        """The machine, as the node and its pods reach it."""
        self.node = f"{base}.2"
        """The node, as the machine reaches it."""
        self.pods = f"{base}.128/25"
        self.link = f"bft-{number}-{secrets.token_hex(3)}"
        """The machine's end of the wire to the node; the next that has the number has another one."""

    def give_back(self) -> None:
        self._reservation.close()


class Box:
    """One box beside a cluster, which notes its processes at the cluster's guardian."""

    def __init__(self, cluster: Cluster, name: str, environment: Mapping[str, str]) -> None:
        """`environment` holds where to find `ip` and whatever else the programs of the box need."""
        self.folder = cluster.folder / name
        self.folder.mkdir(mode=0o711)
        self.subnet = Subnet()
        self.cgroup = f"/{_PREFIX}-{cluster.folder.name.rpartition('-')[2]}-{name}"
        """The folder of its containers' cgroups in each hierarchy."""
        self._cluster = cluster
        self._name = name
        self._environment = {**environment, NODE_MARK: str(self.folder)}
        command = [
            "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL",
            "--propagation", "private", sys.executable, "-I", "-S", box_init.__file__, str(self.folder),
        ]  # fmt: skip
        self._first = cluster.component(
            f"{name}-box", command, (self.folder / "made").exists, self._environment
        )
        self.relay: Component | None = None

    def start(self) -> None:
        """Make the namespaces, wire them to this machine, and let the apiserver be reached from inside."""
        for folder in self.cgroups():
            self._cluster.note_cgroup(folder)
            folder.mkdir()
        self._first.start(limit_s=_LIMIT_S)
        self._wire()
        command = [
            sys.executable, "-I", "-S", api_relay.__file__, str(self.first_pid), SERVICE_ADDRESS, "443",
            str(self._cluster.port),
        ]  # fmt: skip
        self.relay = self._cluster.component(
            f"{self._name}-relay", command, self._relay_ready, self._environment
        )
        self.relay.start(limit_s=_LIMIT_S)

    @property
    def components(self) -> list[Component]:
        """Its own, not those that were put into it."""
        return [self._first, *([self.relay] if self.relay else [])]

    @property
    def first_pid(self) -> int:
        """Of its first process, as this machine counts."""
        return int(children(self._first.pid)[0])

    def cgroups(self) -> list[Path]:
        """The folder in each of the machine's hierarchies."""
        return [root / self.cgroup[1:] for root in cgroup_roots()]

    def component(self, name: str, command: Sequence[str], ready: Callable[[], bool]) -> Component:
        """A program in the box, which was started; not started itself yet."""
        return self._cluster.component(
            f"{self._name}-{name}", self.command(command), ready, self._environment, Boxed
        )

    def command(self, arguments: Sequence[str | Path]) -> list[str]:
        """What to start so that this command runs in the box."""
        return [sys.executable, "-I", "-S", box_enter.__file__, str(self.first_pid), *map(str, arguments)]

    def run(self, *arguments: str) -> str:
        """The stdout of a short command in the box; raises CalledProcessError, with its stderr."""
        return subprocess.run(
            self.command(arguments), check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            timeout=scaled(_LIMIT_S),
        ).stdout  # fmt: skip

    def cut_off(self) -> None:
        """This machine drops from now on what goes to its pods and comes from them."""
        for rule in self._cuts:
            self._net("rule", "add", *rule)

    def mend(self) -> None:
        """It passes it on again."""
        self._forget(self._cuts)

    def _pass_on(self) -> None:
        """Let its pods reach those of other boxes, and nothing outside of this machine.

        Where nobody may write here, each box is alone, as all are on a machine that passes nothing on.
        """
        with contextlib.suppress(OSError):
            Path(f"/proc/sys/net/ipv4/conf/{self.subnet.link}/forwarding").write_text("1")
            for rule in self._ways:
                self._net("rule", "add", *rule)

    def _forget(self, rules: Sequence[Sequence[str]]) -> None:
        """Those of a run that was killed, too."""
        for rule in rules:
            with contextlib.suppress(ComponentFailed):
                while True:
                    self._net("rule", "delete", *rule)

    @property
    def _cuts(self) -> list[tuple[str, ...]]:
        return [(way, self.subnet.pods, "blackhole", "priority", "10") for way in ("from", "to")]

    @property
    def _ways(self) -> list[tuple[str, ...]]:
        link = ("iif", self.subnet.link)
        return [
            (*link, "to", BOXES, "lookup", "main", "priority", "20"),
            (*link, "unreachable", "priority", "21"),
        ]

    def end(self) -> list[str]:
        """End all that runs in it and remove its cgroups; returns what is left of it nevertheless."""
        if self.relay is not None:
            self.relay.kill()
        self._first.kill()
        self._forget([*self._cuts, *self._ways])
        try:
            wait_until(lambda: not self.leftovers(remove=True), limit_s=_LIMIT_S)
        except AssertionError:
            return self.leftovers()
        self.subnet.give_back()
        shutil.rmtree(self.folder, ignore_errors=True)
        return []

    def leftovers(self, remove: bool = False) -> list[str]:
        """What exists of the box, a line for each; `remove` the cgroups that are empty."""
        return leftovers(self.cgroups(), self.folder, self.subnet.link, remove)

    def _wire(self) -> None:
        subnet, pid = self.subnet, str(self.first_pid)
        self._forget([*self._cuts, *self._ways])
        self._net("link", "add", subnet.link, "type", "veth", "peer", "name", "eth0", "netns", pid)
        self._net("address", "add", f"{subnet.host}/30", "dev", subnet.link)
        self._net("link", "set", subnet.link, "up")
        inside = ("nsenter", f"--target={pid}", "--net")
        self._net("link", "set", "lo", "up", prefix=inside)
        # The Service `kubernetes`: nobody translates addresses here, so it is one of the node's own.
        self._net("address", "add", f"{SERVICE_ADDRESS}/32", "dev", "lo", prefix=inside)
        self._net("address", "add", f"{subnet.node}/30", "dev", "eth0", prefix=inside)
        self._net("link", "set", "eth0", "up", prefix=inside)
        self._net("route", "add", "default", "via", subnet.host, prefix=inside)
        self._net("route", "add", subnet.pods, "via", subnet.node)
        self._pass_on()

    def _net(self, *arguments: str, prefix: Sequence[str] = ()) -> None:
        done = subprocess.run(
            [*prefix, "ip", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
            env={**os.environ, **self._environment}, timeout=scaled(_LIMIT_S),
        )  # fmt: skip
        if done.returncode != 0:
            raise ComponentFailed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

    def _relay_ready(self) -> bool:
        # Its socket is no one's of our network: look for it in theirs (proc(5), tcp: 0A is LISTEN).
        listening = Path(f"/proc/{self.first_pid}/net/tcp").read_text()
        return any(fields[3] == "0A" for fields in map(str.split, listening.splitlines()[1:]))


class Boxed(Component):
    """A program in a box; what is started here is `box_enter`, which passes signals on."""

    @property
    def program_pid(self) -> int:
        """Of the program itself, as this machine counts."""
        return int(children(self.pid)[0])

    def freeze(self) -> None:
        processes.freeze(self.program_pid)

    def thaw(self) -> None:
        processes.thaw(self.program_pid)


def leftovers(cgroups: Sequence[Path], folder: Path, link: str, remove: bool = False) -> list[str]:
    """What exists of a box with these names: processes, cgroups, mounts, its wire."""
    found = [f"process {pid}" for pid in boxed_processes(cgroups, folder)]
    for each in cgroups:
        if each.exists() and not (remove and remove_cgroup(str(each))):
            found.append(f"cgroup {each}")
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [f"mount {line.split(' ')[4]}" for line in mounts if line.split(" ")[4].startswith(f"{folder}/")]
    if Path(f"/sys/class/net/{link}").exists():
        found.append(f"network device {link}")
    return found


def boxed_processes(cgroups: Sequence[Path], folder: Path) -> list[int]:
    """Of the node's programs (by the mark in their environment) and of containers (by their cgroup)."""
    contained = {
        int(pid)
        for each in cgroups
        # Path.glob raises when somebody removes a folder meanwhile.
        for folder_of_group, _, _ in os.walk(each)
        for pid in _lines(Path(folder_of_group) / "cgroup.procs")
        if start_time(int(pid)) is not None
    }
    return sorted(contained | {process.pid for process in processes_with(f"{NODE_MARK}={folder}")})


def children(pid: int) -> list[str]:
    """The process ids of the children of a single-threaded process."""
    return _text(Path(f"/proc/{pid}/task/{pid}/children")).split()


def _routed_networks() -> set[str]:
    """The first three bytes of each network of 10.0.0.0/8 that this machine has a route to."""
    found = set()
    for line in _lines(Path("/proc/net/route"))[1:]:
        little_endian = int(line.split()[1], 16)
        found.add(".".join(str(little_endian >> shift & 255) for shift in (0, 8, 16)))
    return found


def _lines(file: Path) -> list[str]:
    return _text(file).splitlines()


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""  # gone meanwhile
