"""A real node of a test cluster, on this machine: kubelet and containerd in a box, so that pods really run.

Needs root, and nothing installed: containerd and what it needs come from Debian packages in the user's cache
(`debian_packages`). Pods reach the apiserver as in any cluster (`KUBERNETES_SERVICE_HOST`), what listens on
this machine at `host_address`, and each other; this machine reaches pods at their addresses. Nobody
translates addresses of Services or answers DNS.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cluster import kept_images
from tests.cluster.binaries import Binaries, Say
from tests.cluster.box import Box, cgroup_roots
from tests.cluster.cluster import Cluster, LeftBehind, fetch
from tests.cluster.components import Component, ComponentFailed
from tests.cluster.debian_packages import packages_folder, unpacked, why_no_packages
from tests.cluster.image_files import BuiltImage
from tests.cluster.images import Image, small_image
from tests.cluster.keys import SERVICE_ADDRESS, write_kubeconfig
from tests.cluster.made_once import user_cache
from tests.cluster.units import UnitsWithoutPool
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "busybox-static")
# Debian 12's names; only for a machine without `ip`.
IP_PACKAGES = ("iproute2", "libbpf1", "libelf1", "libmnl0", "libbsd0", "libmd0", "libcap2")
NODE_NAME = "n1"
PAUSE = "localhost/kubeflow-bitfusion-test/pause:1"
SMALL = "localhost/kubeflow-bitfusion-test/small:1"
"""An image of every node: busybox, and `/bin/sh`."""
PLUGINS_REGISTRY = "/var/lib/kubelet/plugins_registry"
"""Where its kubelet looks for plugins, as its programs and manifests see it."""
_DIGEST_LABEL = "kubeflow-bitfusion.test/digest"
_KUBELET_PORT = 10250
_HEALTH_PORT = 10248
# What a box hides from the programs in it: see box_init.
_HIDDEN = ("/run", "/var/lib", "/var/log")


def why_no_node() -> str | None:
    """One line that says why no node can run here, and what to do; None where one can."""
    if platform.system() != "Linux":
        return "no test node: it needs Linux"
    if os.geteuid() != 0:
        return "no test node: it needs root, for namespaces and mounts; run these tests as root"
    for number, name in ((12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")):
        if not effective_capabilities() >> number & 1:
            return (
                f"no test node: root lacks {name} here; run these tests outside of a container, or privileged"
            )
    for each in cgroup_roots():
        if not os.access(each, os.W_OK):
            return f"no test node: {each} is read-only; run these tests outside of a container, or privileged"
    reason = None if packages_folder(PACKAGES).is_dir() else why_no_packages()
    if reason is not None:
        return f"no test node: {reason}"
    for program in ("unshare", "nsenter", "mount"):
        if shutil.which(program) is None:
            return f"no test node: {program} is not on PATH; install util-linux"
    for what, path in (("TMPDIR", os.environ.get("TMPDIR", "/tmp")), ("the cache", str(user_cache()))):
        if any(Path(os.path.realpath(path)).is_relative_to(hidden) for hidden in _HIDDEN):
            return (
                f"no test node: {what} is {path}, which a node hides from its programs; choose another folder"
            )
    return None


def effective_capabilities() -> int:
    """Of this process, as a set of bits (capabilities(7))."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)


def prepare_packages(say: Say) -> None:
    """Have the Debian packages of a node in the cache; raises PackagesUnavailable."""
    if not packages_folder(PACKAGES).is_dir():
        say("node: fetching containerd and what it needs from Debian, once: about 15 s")
    unpacked(PACKAGES)


class Node:
    """One running node; `start` makes it and `end` ends it with everything that runs on it."""

    def __init__(
        self, cluster: Cluster, binaries: Binaries, name: str = NODE_NAME, status_every_s: int = 2
    ) -> None:
        """Of a cluster that was started with this name among its `nodes`; `binaries` are those of NODE.

        Its kubelet writes the node's status every `status_every_s`; a kubelet's default is 10.
        """
        self.cluster = cluster
        self.name = name
        self.start_s = 0.0
        """Seconds from nothing to Ready, images of its own included."""
        self.pod_starts_s: list[float] = []
        """Seconds from the creation of each pod of `Pods.run` until it was ready."""
        self.scheduler: Component | None = None
        """Of the cluster, if it came with this node."""
        self._packages = unpacked(PACKAGES)
        self._box = Box(cluster, name, self._environment())
        self.folder = self._box.folder
        self._kubelet = binaries.path("kubelet")
        self._status_every_s = status_every_s
        self._units = UnitsWithoutPool(cluster, name, self.plugins_registry)
        self._program: dict[str, Component] = {}

    def start(self) -> Node:
        """Start it and wait until pods are scheduled to it; raises ComponentFailed with somebody's words."""
        began = time.monotonic()
        try:
            self._box.start()
            self._program["containerd"] = self._box.component(
                "containerd",
                [str(self._packages / "usr/bin/containerd"), "--config", str(self._containerd_config())],
                self._containerd_ready,
            )
            self._program["kubelet"] = self._box.component(
                "kubelet", self._kubelet_command(), self._kubelet_ready
            )
            kept_images.take(self._root)
            self.containerd.start()
            small = small_image(self.busybox, user_cache() / "node" / "layers")
            self.import_image(small, PAUSE)
            self.import_image(small, SMALL)
            self.kubelet.start()
            # Where manifests expect it, whose kubelet has another root folder.
            self._box.run("mkdir", "-p", PLUGINS_REGISTRY)
            self._box.run("mount", "--bind", str(self.plugins_registry), PLUGINS_REGISTRY)
            wait_until(self._schedulable, "the node takes pods", 60)
        except BaseException:
            self.end()
            raise
        self.start_s = time.monotonic() - began
        return self

    def end(self) -> None:
        """End every process and container of it, whatever state it is in; raises LeftBehind if that fails."""
        self._units.end()
        for component in reversed(list(self._program.values())):
            component.kill()
        left = self._box.end()
        if left:
            raise LeftBehind(f"of the node {self.name} there is after its end: {left}")

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def containerd(self) -> Component:
        """Containers outlive it, as on any node."""
        return self._program["containerd"]

    @property
    def kubelet(self) -> Component:
        return self._program["kubelet"]

    @property
    def relay(self) -> Component:
        """Passes on what the node and its pods send to the apiserver; freeze or stop it to cut them off."""
        assert self._box.relay is not None
        return self._box.relay

    @property
    def host_address(self) -> str:
        """This machine, as pods reach it: a server of a test listens here, or on all addresses."""
        return self._box.subnet.host

    @property
    def address(self) -> str:
        """The node, as this machine reaches it."""
        return self._box.subnet.node

    @property
    def first_pid(self) -> int:
        """Of the process with which all others of the node end."""
        return self._box.first_pid

    @property
    def link(self) -> str:
        """The network device of this machine that leads to it."""
        return self._box.subnet.link

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Nothing from or to its pods arrives, and nobody is told; neither from it to the apiserver."""
        self._box.cut_off()
        self.relay.freeze()
        try:
            yield
        finally:
            self.relay.thaw()
            self._box.mend()

    def cgroups(self) -> list[Path]:
        """The folders that hold the cgroups of its containers."""
        return self._box.cgroups()

    def in_box(self, *command: str) -> str:
        """The stdout of a short command that sees the node's processes, mounts and network."""
        return self._box.run(*command)

    @property
    def busybox(self) -> Path:
        """Static, with most tools of a shell: for images of a test's own."""
        return self._packages / "bin/busybox"

    def leftovers(self) -> list[str]:
        """What exists of it on this machine; a line for each process, cgroup, mount and network device."""
        return self._box.leftovers()

    def import_image(self, image: Image | BuiltImage, name: str) -> bool:
        """Make the image known to containerd under this name; false if it was, from a run before.

        Pods ask for it with imagePullPolicy Never or IfNotPresent.
        """
        mark = f"{_DIGEST_LABEL}={image.digest}"
        known = {line.split(maxsplit=1)[0]: line for line in self.ctr("images", "list").splitlines()}
        if mark in known.get(full_name(name), ""):
            return False
        archive = self.folder / f"{image.digest}.tar"
        try:
            image.write_archive(archive, full_name(name))
            self.import_archive(archive)
        finally:
            archive.unlink(missing_ok=True)
        self.ctr("images", "label", full_name(name), mark)
        return True

    def keep_images(self) -> None:
        """Keep what containerd has made of its images for later runs; does nothing once there were pods."""
        if self.ctr("containers", "list", "--quiet").strip():
            return
        self.containerd.stop()
        kept_images.keep(self._root)
        self.containerd.start()

    def trust(self, registry: str) -> None:
        """Let it pull from a registry without TLS, `host:port`."""
        folder = self._registries / registry
        folder.mkdir(parents=True)
        # Without a section for a host the scheme is ignored: github.com/containerd/containerd/issues/13212.
        host = f'[host."http://{registry}"]\ncapabilities = ["pull", "resolve"]\n'
        (folder / "hosts.toml").write_text(host)

    def import_archive(self, archive: Path, limit_s: float = 300) -> None:
        """The images of a docker-archive or OCI archive, under the names in it."""
        self.ctr("images", "import", str(archive), limit_s=limit_s)

    def ctr(self, *arguments: str, limit_s: float = 30) -> str:
        """What containerd's own client prints, in the namespace of Kubernetes; raises ComponentFailed."""
        done = subprocess.run(
            [*self.ctr_command, *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=scaled(limit_s),
        )
        if done.returncode != 0:
            raise ComponentFailed(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    @property
    def ctr_command(self) -> list[str]:
        """Its beginning; anybody who may open the socket can use it, from outside of the box, too."""
        program = self._packages / "usr/bin/ctr"
        return [str(program), f"--address={self._socket}", "--namespace=k8s.io"]

    @property
    def components(self) -> dict[str, Component]:
        """By name: its programs, and the scheduler that `scheduled_node` gave it."""
        every = [*self._box.components, *self._program.values()]
        if self.scheduler is not None:
            every.append(self.scheduler)
        return {each.name: each for each in every}

    def offer_units(self, count: int) -> None:
        """Let the node offer so many bitfusion.io/gpu units, of no pool; 0 takes them away."""
        self._units.offer(count)

    @property
    def plugins_registry(self) -> Path:
        """Where its kubelet looks for plugins, as this machine sees it."""
        return self.folder / "kubelet" / "plugins_registry"

    @property
    def _root(self) -> Path:
        return self.folder / "containerd"

    @property
    def _registries(self) -> Path:
        return self.folder / "registries"

    @property
    def _socket(self) -> Path:
        return self.folder / "containerd.sock"

    def _environment(self) -> dict[str, str]:
        packages = self._packages
        folders = [packages / "usr/bin", packages / "usr/sbin", packages / "bin"]
        found = {
            "PATH": ":".join(
                [*map(str, folders), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
            )
        }
        if shutil.which("ip", path=found["PATH"]) is None:
            ip = unpacked(IP_PACKAGES)
            found["PATH"] += f":{ip}/bin:{ip}/sbin"
            libraries = sorted({str(each.parent) for each in ip.glob("**/*.so.*")})
            found["LD_LIBRARY_PATH"] = ":".join(libraries)
        return found

    def _containerd_config(self) -> Path:
        folder = self.folder
        network = {
            "cniVersion": "1.0.0",
            "name": f"{self.cluster.folder.name}-{self.name}",
            "plugins": [
                {
                    "type": "ptp",
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(folder / "addresses"),
                        "ranges": [[{"subnet": self._box.subnet.pods}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (folder / "cni").mkdir()
        (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))
        # TOML's basic strings are JSON's, for what stands here.
        text = f"""version = 2
root = {json.dumps(str(self._root))}
state = {json.dumps(str(folder / "state"))}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
address = {json.dumps(str(self._socket))}
[plugins."io.containerd.internal.v1.opt"]
path = {json.dumps(str(folder / "opt"))}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# Lowering it needs CAP_SYS_RESOURCE, which a container of tests may lack; every sandbox would fail.
restrict_oom_score_adj = true
# Else a profile would stay in the machine's kernel.
disable_apparmor = true
tolerate_missing_hugetlb_controller = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = {json.dumps(str(self._registries))}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {json.dumps(str(self._packages / "usr/lib/cni"))}
conf_dir = {json.dumps(str(folder / "cni"))}
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {json.dumps(str(self._packages / "usr/sbin/runc"))}
"""
        path = folder / "containerd.toml"
        path.write_text(text)
        return path

    def _kubelet_command(self) -> list[str]:
        folder = self.folder
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "0.0.0.0",  # of the box
            "port": _KUBELET_PORT,
            "healthzBindAddress": "0.0.0.0",
            "healthzPort": _HEALTH_PORT,
            # Only this machine reaches it.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._box.cgroup,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "20Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "failSwapOn": False,
            "failCgroupV1": False,
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": True,
            "makeIPTablesUtilChains": False,
            "nodeStatusUpdateFrequency": f"{self._status_every_s}s",
            "podLogsDir": str(folder / "pod-logs"),
            "registerNode": True,
            "resolvConf": "",
            "serializeImagePulls": False,
            "volumePluginDir": str(folder / "volume-plugins"),
        }
        (folder / "kubelet.json").write_text(json.dumps(config, indent=1))
        token = self.cluster.node_token(self.name)
        kubeconfig = write_kubeconfig(
            folder / "kubelet.kubeconfig", f"https://{SERVICE_ADDRESS}", self.cluster.ca, token
        )
        return [
            str(self._kubelet),
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'kubelet-certificates'}",
        ]

    def _containerd_ready(self) -> bool:
        if not self._socket.exists():
            return False
        with contextlib.suppress(ComponentFailed, subprocess.TimeoutExpired):
            return bool(self.ctr("version"))
        return False

    def _kubelet_ready(self) -> bool:
        return fetch(f"http://{self.address}:{_HEALTH_PORT}/healthz") == "ok"

    def _schedulable(self) -> bool:
        nodes = self.cluster.client.get("/api/v1/nodes")["items"]
        for node in nodes:
            if node["metadata"]["name"] == self.name:
                ready = [each for each in node["status"].get("conditions", []) if each["type"] == "Ready"]
                return bool(ready) and ready[0]["status"] == "True" and not node["spec"].get("taints")
        return False


def scheduler(cluster: Cluster, binaries: Binaries) -> Component:
    """The cluster's scheduler, not started yet; `binaries` are those of NODE."""
    port = free_port()
    command = [
        str(binaries.path("kube-scheduler")),
        f"--kubeconfig={cluster.kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={cluster.folder}",
        "--authorization-always-allow-paths=/healthz",
    ]
    return cluster.component(
        "kube-scheduler", command, lambda: fetch(f"https://127.0.0.1:{port}/healthz", verify=False) == "ok"
    )


@contextlib.contextmanager
def scheduled_node(cluster: Cluster, binaries: Binaries) -> Iterator[Node]:
    """A node named NODE_NAME in a cluster that knows of it, and that cluster's scheduler, for `with`."""
    scheduling = scheduler(cluster, binaries)
    scheduling.start(wait=False)
    try:
        with Node(cluster, binaries) as node:
            scheduling.wait_ready()
            node.scheduler = scheduling
            yield node
    finally:
        scheduling.kill()


def full_name(name: str) -> str:
    """As containerd calls an image: with a registry, Docker Hub's where the name has none."""
    first = name.partition("/")[0]
    has_registry = "/" in name and (first == "localhost" or "." in first or ":" in first)
    return name if has_registry else f"docker.io/{name if '/' in name else f'library/{name}'}"


@contextlib.contextmanager
def cluster_with_node(control_plane: Binaries, node_binaries: Binaries) -> Iterator[Node]:
    """A cluster of its own with a scheduler and one node, for `with`."""
    with cluster_with_nodes(control_plane, node_binaries) as (node,):
        yield node


@contextlib.contextmanager
def cluster_with_nodes(
    control_plane: Binaries, node_binaries: Binaries, others: Sequence[str] = ()
) -> Iterator[list[Node]]:
    """The same with nodes of these names behind the first; each has a box of its own."""
    cluster = Cluster.start(control_plane, nodes=[NODE_NAME, *others])
    try:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(scheduled_node(cluster, node_binaries))
            yield [first, *(stack.enter_context(Node(cluster, node_binaries, name)) for name in others)]
    finally:
        cluster.end()
