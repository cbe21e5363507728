"""The components of Kubernetes as executables, built from their Go modules once and kept.

`modules/go.mod` and `modules/go.sum` pin every module by its hash. The result lies in
``${XDG_CACHE_HOME:-~/.cache}/kubeflow-bitfusion/cluster/<hash of the pins and of the flags>/``; a folder with
that name is complete, because it gets its name in one rename. Two builds at once wait for each other.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.components import Guardian
from tests.cluster.made_once import TORN, only_maker, user_cache
from tests.support.machine import measure

VERSION = "1.34.4"
"""The Kubernetes that `modules/go.mod` requires."""


_MODULES = Path(__file__).parent / "modules"
_STAMP = "k8s.io/component-base/version"
# Without these the components call themselves v0.0.0-master.
_LDFLAGS = (
    f"-s -w -X {_STAMP}.gitVersion=v{VERSION}"
    f" -X {_STAMP}.gitMajor={VERSION.split('.')[0]} -X {_STAMP}.gitMinor={VERSION.split('.')[1]}"
)


@dataclass(frozen=True)
class Parts:
    """Components that are built together and kept in one folder, and how long that takes."""

    packages: dict[str, str]
    """The Go package of each, the largest first: it compiles what the others share."""
    build_s: float
    """On the machine that tests.support.machine compares with, which has two CPUs and was idle."""
    first_share: float
    """Of the whole time the part of the first component, also on a busy machine."""
    title: str = f"Kubernetes {VERSION}"
    modules: Path = _MODULES
    """The folder of go.mod and go.sum."""
    ldflags: str = _LDFLAGS
    copied: tuple[str, str] | None = None
    """A module, and a folder of its source that is kept beside the executables under its last name."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Of `go build`."""
        return ("-trimpath", "-ldflags", self.ldflags)


CONTROL_PLANE = Parts(
    {
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "etcd": "go.etcd.io/etcd/server/v3",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    },
    build_s=290.0,
    first_share=0.66,  # 737 of 1114 s
)
NODE = Parts(
    {
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    },
    build_s=34.0,  # what the control plane has compiled is not compiled again
    first_share=0.85,
)

KUEUE_VERSION = "0.17.0"
"""The Kueue that `modules/kueue/go.mod` requires."""
KUEUE = Parts(
    {"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
    build_s=180.0,
    first_share=1.0,
    title=f"Kueue {KUEUE_VERSION}",
    modules=_MODULES / "kueue",
    # It makes its server's certificate in /visibility, in no setting: in the folder where it runs then.
    ldflags="-s -w -X sigs.k8s.io/kueue/pkg/visibility.certDir=visibility",
    copied=("sigs.k8s.io/kueue", "config"),
)

KUBE_STATE_METRICS = Parts(
    {"kube-state-metrics": "k8s.io/kube-state-metrics/v2"},
    build_s=150.0,
    first_share=1.0,
    title="kube-state-metrics 2.18.0",
    modules=_MODULES / "kube-state-metrics",
    ldflags="-s -w",
)

HELM_VERSION = "3.22.0"
"""The helm that `modules/helm/go.mod` requires."""
_HELM_MODULE = "helm.sh/helm/v3"
HELM = Parts(
    {"helm": f"{_HELM_MODULE}/cmd/helm"},
    build_s=70.0,
    first_share=1.0,
    title=f"helm {HELM_VERSION}",
    modules=_MODULES / "helm",
    # Without these `helm template` and `helm lint` take the cluster for a Kubernetes 1.20.
    ldflags=f"-s -w -X {_HELM_MODULE}/internal/version.version=v{HELM_VERSION}"
    + "".join(
        f" -X {_HELM_MODULE}/{package}.k8sVersion{part}={number}"
        for package in ("pkg/chartutil", "pkg/lint/rules")
        for part, number in zip(("Major", "Minor"), VERSION.split("."), strict=False)
    ),
)

# The first Go that fetches the toolchain which go.mod asks for by itself.
_OLDEST_GO = (1, 21)
_SECONDS_BETWEEN_LINES = 30.0
# Of the machine that tests.support.machine compares with.
_BUILD_CPUS = 2
# More help little: the linker and the largest packages use one.
_MOST_CPUS = 8

Say = Callable[[str], None]


class ClusterUnavailable(Exception):
    """What keeps the test cluster from existing here: one line that says why and what to install."""


@dataclass(frozen=True)
class Binaries:
    """Where the executables are, and what they cost."""

    folder: Path
    build_s: float
    """Seconds of this call's build; 0.0 when they came from the cache."""

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def told(self) -> str:
        """For the line that reports start-up times."""
        return f"binaries built in {self.build_s:.0f} s" if self.build_s else "binaries from the cache"


def cache_folder() -> Path:
    """Where built binaries are kept between runs."""
    return user_cache() / "cluster"


def build_hash(parts: Parts = CONTROL_PLANE) -> str:
    """Names a build: any change of the pinned modules, the flags or the machine's kind gives another."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((parts.modules / name).read_bytes())
    digest.update(repr((parts.packages, parts.flags, platform.system(), platform.machine())).encode())
    return digest.hexdigest()[:16]


def cached(parts: Parts = CONTROL_PLANE) -> Binaries | None:
    """The binaries of an earlier build, None when one is needed."""
    folder = cache_folder() / build_hash(parts)
    return Binaries(folder, 0.0) if folder.is_dir() else None


def why_unavailable(parts: Parts = CONTROL_PLANE) -> str | None:
    """One line that says why these cannot be started here, and what to install; None when they can.

    Root isn't asked for: the control plane needs none of its rights, and a node asks for itself.
    """
    if platform.system() != "Linux":
        return "no test cluster: it needs Linux"
    if cached(parts) is not None:
        return None
    wanted = "install Go 1.21 or newer (https://go.dev/dl) to run the tests on a real Kubernetes"
    go = find_go()
    if go is None:
        named = os.environ.get("GO")
        where = f"GO={named} is no program" if named else "Go is not on PATH"
        return f"no test cluster: {where}; {wanted}"
    version = _go_version(go)
    if version is None:
        return f"no test cluster: {go} does not tell its version; {wanted}"
    if version < _OLDEST_GO:
        return f"no test cluster: {go} is Go {version[0]}.{version[1]}; {wanted}"
    return None


def find_go() -> str | None:
    """$GO, else Go from PATH, else from the folder where its own installer puts it."""
    named = os.environ.get("GO")
    if named:
        return shutil.which(named)
    usual = "/usr/local/go/bin/go"
    return shutil.which("go") or (usual if os.access(usual, os.X_OK) else None)


def binaries(say: Say = print, parts: Parts = CONTROL_PLANE) -> Binaries:
    """The executables, built first when this machine has not got them yet.

    `say` is told first how long it will take, then gets a line now and then while Go builds.
    Raises ClusterUnavailable where Go is missing or its build fails.
    """
    found = cached(parts)
    if found is not None:
        return found
    reason = why_unavailable(parts)
    if reason is not None:
        raise ClusterUnavailable(reason)
    cache = cache_folder()
    waiting = "cluster: another run is building the binaries; waiting for it"
    with only_maker(cache, lambda: say(waiting)):
        found = cached(parts)  # built meanwhile by the one we waited for
        return found if found is not None else _build(cache, parts, say)


def _build(cache: Path, parts: Parts, say: Say) -> Binaries:
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=TORN, dir=cache))
    watcher = Guardian(folder)
    try:
        say(
            f"cluster: building {parts.title} from Go modules, once: "
            f"{len(parts.packages)} component{'s' * (len(parts.packages) > 1)}, "
            f"{in_minutes(expected_build_s(parts))} on this machine, as busy as it is now, "
            "and the download of the modules"
        )
        for number, (name, package) in enumerate(parts.packages.items(), 1):
            place = f"({number} of {len(parts.packages)})"
            took = _build_one(name, package, folder, place, watcher, say, parts)
            if number == 1 and len(parts.packages) > 1:
                rest = took * (1 - parts.first_share) / parts.first_share
                others = len(parts.packages) - 1
                say(f"cluster: the other {others} take{'s' * (others == 1)} {in_minutes(rest)}")
        if parts.copied is not None:
            _copy(*parts.copied, folder, parts)
        folder.chmod(0o755)
        folder.rename(cache / build_hash(parts))
    finally:
        watcher.end()  # with the folder, where it has not got its name
    return Binaries(cache / build_hash(parts), time.monotonic() - began)


def expected_build_s(parts: Parts = CONTROL_PLANE) -> float:
    """Seconds of a build here, without the download, by this machine's CPUs and what they do now."""
    cpus = len(os.sched_getaffinity(0))
    return parts.build_s * measure(cpus) * _BUILD_CPUS / min(cpus, _MOST_CPUS)


def in_minutes(seconds: float) -> str:
    """An estimate as it is told to a person."""
    minutes = round(seconds / 60)
    return "a minute at most" if minutes < 1 else f"about {minutes} minute{'s' if minutes > 1 else ''}"


def _build_one(
    name: str, package: str, folder: Path, place: str, watcher: Guardian, say: Say, parts: Parts
) -> float:
    """The seconds it took."""
    go = find_go()
    assert go is not None
    command = [go, "build", *parts.flags, "-o", str(folder / name), package]
    began = told = time.monotonic()
    say(f"cluster: {name} {place} …")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=parts.modules, env=_environment(), stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True,
        )  # fmt: skip
        watcher.add(process.pid)
        try:
            while process.poll() is None:
                time.sleep(0.1)
                if time.monotonic() - told > _SECONDS_BETWEEN_LINES:
                    told = time.monotonic()
                    say(f"cluster: {name} {place} … {told - began:.0f} s")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # its compilers are in its group
                process.wait()
            watcher.remove(process.pid)
        output.seek(0)
        words = output.read().decode(errors="replace")
    if process.returncode != 0:
        last = " | ".join(words.strip().splitlines()[-3:]) or "it said nothing"
        raise ClusterUnavailable(
            f"no test cluster: go build {package} ended with {process.returncode}: {last}"
        )
    took = time.monotonic() - began
    say(f"cluster: {name} {place} built in {took:.0f} s")
    return took


def _environment() -> dict[str, str]:
    """Nothing of the caller's own settings may change what is built."""
    kept = {key: value for key, value in os.environ.items() if key not in ("GOFLAGS", "GOOS", "GOARCH")}
    return kept | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


def _copy(module: str, source: str, folder: Path, parts: Parts) -> None:
    go = find_go()
    assert go is not None
    command = [go, "list", "-m", "-f", "{{.Dir}}", module]
    listed = subprocess.run(
        command, cwd=parts.modules, env=_environment(), capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        raise ClusterUnavailable(f"no test cluster: {' '.join(command)}: {listed.stderr.strip()}")
    kept = folder / Path(source).name
    shutil.copytree(Path(listed.stdout.strip()) / source, kept)
    for each in (kept, *kept.rglob("*")):  # Go's own copies may not be changed, nor removed
        each.chmod(0o755 if each.is_dir() else 0o644)


def _go_version(go: str) -> tuple[int, int] | None:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else None
