"""The three commands of docs/tutorials/kubeflow.md, from nothing to a cell, on two real nodes.

`make images` builds with buildah and pushes to Debian's registry, from which the nodes pull; helm or
kustomize installs; `kubeflow-bitfusion doctor` comes with pip, as the page says. A Notebook is made of what
the form then offers, and computes the page's cell. What is played is in `guide_cluster`; what stands for
public base images is in `base_images`.

`make three-commands` runs it and prints the seconds, since it takes minutes.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from jupyter_ext.spawner.kustomize import CONFIG_FILE
from tests.cluster.binaries import Binaries
from tests.cluster.cluster import Cluster
from tests.cluster.gpu_cluster import GPUS, GpuCluster, GpuUser
from tests.cluster.gpu_plugin import GpusOfNode
from tests.cluster.guide import DOCS, PROFILE, REGISTRY, Block, blocks, matches
from tests.cluster.guide_cluster import SYSTEM, kubeflow, ours, pool_has_a_name, volume
from tests.cluster.image_files import why_no_images
from tests.cluster.live_kernel import LiveKernel
from tests.cluster.node import Node
from tests.support.machine import scaled
from tests.support.run_blocks import ran
from tests.support.waiting import wait_until
from tests.tools.image_place import Place, place, registry
from tools.images.wishes import NAMES

PAGE, INSTALL_PAGE = DOCS / "tutorials" / "kubeflow.md", DOCS / "how-to" / "install.md"
COMMAND, IMAGES, INSTALL, DOCTOR = "Before you begin", "1. Images", "2. Install", "3. Look at it"
GPU_PODS = "cluster-gpus"
CELL, WITH_KUSTOMIZE, UNINSTALL = "The first GPU cell", "With kustomize", "Uninstall"

pytestmark = [pytest.mark.long, pytest.mark.apart, pytest.mark.timeout(1800)]


class Admin:
    """Types commands in a checkout, and prints how long each took."""

    def __init__(self, cluster: Cluster, built: Place, address: str, helm: Binaries) -> None:
        self._checkout = built.clone
        self._registry = f"{address}/team"
        programs = [str(each.parent) for each in (cluster.binaries.path("kubectl"), helm.path("helm"))]
        self._environment = {
            **built.env,
            "PATH": ":".join([f"{built.clone}/.venv/bin", *programs, built.env["PATH"]]),
            "HOME": str(cluster.folder),
            "KUBECONFIG": str(cluster.kubeconfig),
            # Of this machine: its registry has no TLS, and its builds need words to find packages.
            "IMAGES": shlex.join(["--insecure", "--", *built.more]),
        }

    def follows(self, block: Block, engine: str = GPU_PODS, until_well: bool = False) -> None:
        """Type what a page has, for another engine with what the page says of it; see what the page prints.

        What prints something else for another engine is not compared then. `until_well`: again and again, as
        a person does who has just installed something.
        """
        commands = block.commands.strip().replace(f"all/{GPU_PODS}", f"all/{engine}")
        if engine != GPU_PODS and commands.startswith("helm install "):
            commands += f" --set engine={engine}"
        with self.step(commands.splitlines()[-1]):
            printed = self._until_well(commands) if until_well else self.types(commands)
        ran(block.commands)
        if block.printed is not None and engine == GPU_PODS:
            assert matches(self._here(block.printed), printed), (
                f"expected:\n{block.printed}\nprinted:\n{printed}"
            )

    def types(self, commands: str) -> str:
        """What they print. Raises AssertionError if they fail."""
        done = self._shell(commands)
        assert done.returncode == 0, f"{commands}\n{done.stdout[-6000:]}"
        return done.stdout

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Its seconds are printed."""
        began = time.monotonic()
        yield
        print(f"{time.monotonic() - began:7.1f} s  {what}", flush=True)

    def _until_well(self, commands: str) -> str:
        said: list[str] = []

        def well() -> bool:
            done = self._shell(commands)
            said[:] = [done.stdout]
            return "Nothing to do" in done.stdout

        wait_until(well, lambda: said[0], 120)
        return said[0]

    def _shell(self, commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", self._here(commands)],
            cwd=self._checkout,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=scaled(900),
        )

    def _here(self, text: str) -> str:
        return text.replace(REGISTRY, self._registry)


@pytest.fixture(scope="module")
def admin(
    two_nodes: list[Node], helm_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Admin]:
    """Who has the command and has made the images."""
    if (reason := why_no_images()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("three-commands")
    with registry(folder, two_nodes[0].host_address) as address:
        for node in two_nodes:
            node.trust(address)
        found = Admin(two_nodes[0].cluster, place(folder, NAMES), address, helm_binaries)
        print()
        for block in blocks(COMMAND, IMAGES, page=PAGE):
            found.follows(block)
        yield found


@pytest.mark.parametrize(
    ("how", "engine"),
    [
        pytest.param("helm", GPU_PODS, marks=pytest.mark.runs("docs/tutorials/kubeflow.md")),
        ("kustomize", GPU_PODS),
        ("helm", "simulated"),
        ("kustomize", "simulated"),
    ],
)
def test_three_commands_lead_to_a_cell_and_nothing_of_them_is_left(
    admin: Admin, two_nodes: list[Node], tmp_path: Path, how: str, engine: str
) -> None:
    cluster = two_nodes[0].cluster
    with kubeflow(two_nodes[0], tmp_path), ExitStack() as stack:
        gpus = GpusOfNode(two_nodes[1], GPUS)
        if engine == GPU_PODS:
            stack.enter_context(gpus)
        else:
            stack.enter_context(volume(cluster, tmp_path / "volume"))
            stack.enter_context(pool_has_a_name(cluster))
        print(f"\n{how}, {engine}")
        by_helm, by_kustomize = blocks(INSTALL, page=PAGE)[0], blocks(WITH_KUSTOMIZE, page=INSTALL_PAGE)[0]
        admin.follows(by_helm if how == "helm" else by_kustomize, engine)
        admin.follows(blocks(DOCTOR, page=PAGE)[0], engine, until_well=True)
        user = GpuUser(GpuCluster(two_nodes, gpus), PROFILE)
        image, key = offered_by_the_form(cluster)
        notebook = user.notebook("bitfusion-sample", {key: "1"}, image=image)
        with admin.step("the notebook's JupyterLab answers"):
            server = notebook.jupyter(180)
        with LiveKernel(server) as kernel:
            computes_and_gives_back(admin, kernel, engine, user)
        notebook.delete()
        user.forget_homes()
        with admin.step("uninstalled"):
            uninstall(admin, how, engine)
        wait_until(lambda: not ours(cluster), lambda: str(ours(cluster)), 60)


def offered_by_the_form(cluster: Cluster) -> tuple[str, str]:
    """What a user who chooses nothing but BITFUSION gets: an image, and the key of the first size of ours."""
    maps = cluster.client.get(f"/api/v1/namespaces/{SYSTEM}/configmaps")["items"]
    (text,) = (each["data"][CONFIG_FILE] for each in maps if CONFIG_FILE in (each.get("data") or {}))
    form = yaml.safe_load(text)["spawnerFormDefaults"]
    keys = [each["limitsKey"] for each in form["gpus"]["value"]["vendors"]]
    return form["image"]["options"][0], next(key for key in keys if key.startswith("bitfusion.io/"))


def computes_and_gives_back(admin: Admin, kernel: LiveKernel, engine: str, user: GpuUser) -> None:
    cell, who = blocks(CELL, page=PAGE)
    with admin.step("the first cell"):
        first = kernel.run(cell.commands, 300)
    assert cell.printed is not None
    assert first.status == "ok", first.all
    assert matches(f"…\n{cell.printed}", first.text), first.text
    if engine == GPU_PODS:
        admin.follows(who)
        assert sum(user._gpus.held().values()) == 1
    with admin.step("%bitfusion release"):
        assert kernel.run("%bitfusion release -y").status == "ok"
        if engine == GPU_PODS:
            user.wait_no_gpu_pod()


def uninstall(admin: Admin, how: str, engine: str) -> None:
    """As docs/how-to/install.md says it of both."""
    if how == "helm":
        admin.types(blocks(UNINSTALL, page=INSTALL_PAGE)[0].commands)
    else:
        admin.types("kubeflow-bitfusion form --give-back")
        admin.types(f"kubectl delete -k manifests/all/{engine}")
