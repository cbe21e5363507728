"""Every command of docs/kubeflow.md, run as it stands there, against the test cluster.

What a reader's machine and cluster have and this one has not is bridged, and nothing else:

* no container is built: `docker` and `python3 -m pip wheel` are small programs that check what they are
  given, and that what the Containerfile copies is there;
* no kubelet runs our pods: the node stub makes them Running once our program, started with the
  Deployment's own arguments and its ServiceAccount, is ready; the Service leads to it (`StandIn`);
* Kubeflow's notebook controller is our stub of it; cert-manager is two CRDs and a stand-in (`CertManager`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.node_stub import translated
from tests.manifests.cert_manager import CertManager
from tests.manifests.installed import cert_manager, kubeflow_namespace, remove
from tests.manifests.stand_in import StandIn
from tests.support.machine import scaled
from tests.support.waiting import Deadline

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "kubeflow.md"
PROFILE = "team-vision"
STORY = ("Install", "Verify", "Settings", "The policy", "Upgrade", "Remove")
CERT_MANAGER = ("Install", "cert-manager", "Remove")
STANDALONE = ("Without the Kubeflow platform", "Remove")

DOCKER = """\
#!/bin/bash
set -eu
echo "docker $*" >> "$BRIDGE/docker.log"
case "$1" in
build)
    [ "$2 $4 ${@: -1}" = "-f -t ." ]
    grep -E '^COPY ' "$3" | grep -v -e --from= | while read -r _ source _; do ls $source > /dev/null; done
    ;;
push) grep -q -F -e "-t $2 " "$BRIDGE/docker.log" ;;
*) exit 1 ;;
esac
"""
PYTHON = """\
#!/bin/bash
set -eu
[ "$*" = "-m pip wheel --no-deps --wheel-dir dist ." ]
mkdir -p dist && touch dist/kubeflow_bitfusion-0.1.0-py3-none-any.whl
"""


class Block(NamedTuple):
    """A block of commands under a heading, and what the guide says they print; None if it does not say."""

    heading: str
    commands: str
    printed: str | None


def blocks() -> list[Block]:
    found: list[Block] = []
    heading = ""
    pending: str | None = None
    for match in re.finditer(
        r"^#+ ([^\n]*)$|^```(\w*)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    ):
        if match[1]:
            heading = match[1]
            continue
        if match[2] == "yaml":
            continue  # files of the API server, which tests/cluster/test_client_certificate.py gives to one
        assert match[2] in ("sh", "text"), f"a block of kind {match[2]!r} under {heading}"
        if match[2] == "text":
            assert pending is not None, f"an output without commands under {heading}"
            found[-1] = Block(heading, pending, match[3])
            pending = None
        else:
            pending = match[3]
            found.append(Block(heading, pending, None))
    return found


class Reader:
    """Runs blocks in a folder that has what a checkout has, as a cluster admin."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.bridge = folder / "bridge"
        self.bridge.mkdir()
        shutil.copytree(ROOT / "manifests", self.folder / "manifests")
        (self.folder / "requirements").mkdir()
        shutil.copy(ROOT / "requirements" / "controller.txt", self.folder / "requirements")
        for name, text in (("docker", DOCKER), ("python3", PYTHON)):
            (self.bridge / name).write_text(text)
            (self.bridge / name).chmod(0o755)
        (self.bridge / "kubectl").symlink_to(cluster.binaries.path("kubectl"))
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.startswith("BITFUSION_TEST")},
            "PATH": f"{self.bridge}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "KUBECONFIG": str(cluster.kubeconfig),
            "BRIDGE": str(self.bridge),
            "LC_ALL": "C.UTF-8",
        }
        self.variables = ""

    def follow(self, *headings: str) -> None:
        for heading in headings:
            mine = [block for block in blocks() if block.heading == heading]
            assert mine, f"no commands under {heading}"
            for block in mine:
                self.run(block)

    def run(self, block: Block) -> None:
        refused = block.printed is not None and block.printed.startswith("The request is invalid")
        done = self._bash(block)
        # The apiserver takes a moment to learn of a webhook, of its certificate's authority, and of a policy.
        deadline = Deadline(10)
        while refused and done.returncode == 0 and not deadline.passed:
            done = self._bash(block)
        print(f"$ {block.commands}{done.stdout}")
        assert (done.returncode != 0) == refused, f"under {block.heading}:\n{block.commands}{done.stdout}"
        if block.printed is not None:
            assert matches(block.printed, done.stdout), f"expected:\n{block.printed}\nprinted:\n{done.stdout}"
        self.variables += "".join(re.findall(r"^[A-Z]+=.*\n", block.commands, re.MULTILINE))

    def _bash(self, block: Block) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", self.variables + block.commands],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=scaled(60),
        )


def matches(pattern: str, text: str) -> bool:
    """Whether a text is as the guide prints it: … stands for anything, a line of it alone for any lines."""
    wanted = []
    for line in pattern.splitlines():
        words = r"\s+".join(r".*?".join(map(re.escape, word.split("…"))) for word in line.split())
        wanted.append(r"(?:.*\n)*?" if line.strip() == "…" else rf"\s*{words}[ \t]*\n")
    return re.fullmatch("".join(wanted), text) is not None


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a b\n", "a   b\n", True),
        ("a b\n", "a c\n", False),
        ("a …\n", "a anything at all\n", True),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("(a) [b]*\n", "(a) [b]*\n", True),
    ],
)
def test_how_an_output_is_compared(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_every_command_of_the_guide_is_run_by_a_test_here() -> None:
    assert {block.heading for block in blocks()} == {*STORY, *CERT_MANAGER, *STANDALONE}


@pytest.fixture
def around() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def platform(cluster: Cluster) -> Iterator[None]:
    """What the guide expects: Kubeflow's namespace, a user's, and cert-manager's kinds."""
    with kubeflow_namespace(cluster, PROFILE), cert_manager(cluster):
        yield


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_install_verify_change_upgrade_and_remove(
    cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack
) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "validating-policy")
    around.callback(remove, cluster, "kubeflow")
    ours = around.enter_context(StandIn(cluster, tmp_path, "kubeflow"))
    around.enter_context(cluster.node_stub(schedulable=lambda pod: translated(pod) and ours.ready(pod)))
    reader = Reader(cluster, tmp_path)
    reader.follow(*STORY)

    built = (reader.bridge / "docker.log").read_text()
    assert "push registry.example.com/team/notebook-controller:0.1.0" in built
    assert len(ours.processes) > 2  # installed, upgraded, and back
    left = cluster.kubectl("get", "all,configmaps,secrets,leases", "-n", "kubeflow", "-o", "name")
    assert [name for name in left.split() if "bitfusion" in name] == []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_with_cert_manager(cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "cert-manager")
    around.enter_context(CertManager(cluster))
    ours = around.enter_context(StandIn(cluster, tmp_path, "kubeflow"))
    around.enter_context(cluster.node_stub(schedulable=lambda pod: translated(pod) and ours.ready(pod)))
    reader = Reader(cluster, tmp_path)
    reader.follow(*CERT_MANAGER[:-1])
    # The certificate is good, the rights suffice: the webhook answers.
    (refusal,) = [block for block in blocks() if "gpu-500" in block.commands]
    reader.variables += f"PROFILE={PROFILE}\n"
    reader.run(refusal)
    reader.follow(CERT_MANAGER[-1])


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_without_the_platform(cluster: Cluster, platform: None, tmp_path: Path, around: ExitStack) -> None:
    around.enter_context(cluster.notebook_controller("1.7", PROFILE))
    around.callback(remove, cluster, "standalone")
    ours = around.enter_context(StandIn(cluster, tmp_path, "bitfusion-system"))
    around.enter_context(cluster.node_stub(schedulable=lambda pod: translated(pod) and ours.ready(pod)))
    reader = Reader(cluster, tmp_path)
    reader.follow(STANDALONE[0])
    (refusal,) = [block for block in blocks() if "gpu-500" in block.commands]
    reader.variables += f"PROFILE={PROFILE}\n"
    reader.run(refusal)
    reader.follow(STANDALONE[1])
    assert not cluster.client.exists("/api/v1/namespaces/bitfusion-system")
