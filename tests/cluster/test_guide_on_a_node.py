"""The tutorials of Kubeflow, with GPU pods and with a pool: every command, on real nodes.

The first once in bash, and once in zsh by a reader who has nothing but this machine's own Python, as Debian
has it.

`docker` is not run: what it is told to build is built from the same Containerfiles (`guide_cluster`, which
says what else is played). VMware's client is one of the test's, in a package and an image as the guide has
them made.
"""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
import pytest

from tests.cluster.gpu_cluster import GPUS
from tests.cluster.gpu_plugin import GpusOfNode, holders
from tests.cluster.guide import (
    BASH,
    CELL,
    FORM,
    IMAGES,
    INSTALL,
    NAMESPACE,
    NO_QUEUE,
    NOTEBOOK,
    POOL,
    POOL_CELL,
    POOL_FORM,
    POOL_IMAGE,
    POOL_INSTALL,
    POOL_NOTEBOOK,
    PROFILE,
    PROFILE_STEP,
    QUEUE,
    REMOVE,
    REMOVE_TRIAL,
    ROOT,
    TWO_WAIT,
    UNITS,
    VMWARE,
    Block,
    Reader,
    blocks,
    matches,
    places,
    table,
)
from tests.cluster.guide_cluster import bring_images, kubeflow, ours, pool_has_a_name, volume
from tests.cluster.node import Node
from tests.cluster.seeing_guide import see_that_the_pool_is_protected, see_who_holds_what
from tests.cluster.served_notebook import JupyterServer, ServedKernel
from tests.cluster.zsh import zsh
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # images are built when they never were

POD = f"/api/v1/namespaces/{PROFILE}/pods/bitfusion-sample-0"
NOT_WORKING = ("when-something-is-wrong.md", "In Kubeflow")


@pytest.fixture
def shell(request: pytest.FixtureRequest) -> Sequence[str]:
    """The command of the reader's shell; a test may ask for zsh, with which Python is the machine's own."""
    return zsh() if getattr(request, "param", "bash") == "zsh" else BASH


@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=pytest.mark.apart)], indirect=True)
@pytest.mark.runs(*places(IMAGES, INSTALL, FORM, PROFILE_STEP, NOTEBOOK, CELL, REMOVE))
def test_from_zero_to_the_first_gpu_cell_and_back(
    two_nodes: list[Node], tmp_path: Path, shell: Sequence[str]
) -> None:
    node, with_gpus = two_nodes
    cluster = node.cluster
    with kubeflow(node, tmp_path), GpusOfNode(with_gpus, GPUS):
        reader = Reader(cluster, tmp_path, limit_s=300, shell=shell, own_python=shell != BASH)
        reader.follow(IMAGES)
        for each in two_nodes:
            bring_images(each, reader)
        reader.follow(INSTALL, FORM, PROFILE_STEP, NOTEBOOK)
        cell, who, stop = blocks(CELL)
        run_cell(opened(node), cell)
        reader.run(who)
        assert sum(holders(cluster.client, with_gpus.name).values()) == 1
        reader.run(stop)
        assert not holders(cluster.client, with_gpus.name)
        reader.follow(REMOVE)
        assert ours(cluster) == []


@pytest.fixture
def reader(node: Node, tmp_path: Path, shell: Sequence[str]) -> Iterator[Reader]:
    """Of the pool's guide, on a cluster with Kubeflow and nothing of ours, the images built and brought."""
    with kubeflow(node, tmp_path):
        found = Reader(node.cluster, tmp_path, limit_s=300, shell=shell, own_python=shell != BASH)
        found.follow(IMAGES, POOL_IMAGE)
        bring_images(node, found)
        yield found


def opened(node: Node) -> ServedKernel:
    """The notebook's JupyterLab with the kernel that the guide names."""
    address = node.cluster.client.get(POD)["status"]["podIP"]
    server = JupyterServer(f"http://{address}:8888/notebook/{PROFILE}/bitfusion-sample")
    wait_until(server.answers, "JupyterLab answers", 120)
    server.upload("first.ipynb", nbformat.v4.new_notebook())
    return server.open("first.ipynb", "bitfusion")


def run_cell(kernel: ServedKernel, block: Block) -> None:
    """And compare what it prints."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(block.commands)])
    (cell,) = kernel.execute(notebook).cells
    printed = "".join(each.text for each in cell.outputs if each.get("name") == "stdout")
    assert block.printed is not None
    assert matches(block.printed, printed), f"expected:\n{block.printed}\nprinted:\n{printed}"


@pytest.mark.apart
@pytest.mark.runs(
    *places(IMAGES, POOL_IMAGE, POOL, POOL_INSTALL, NAMESPACE, POOL_FORM, UNITS, POOL_NOTEBOOK, POOL_CELL),
    *places(QUEUE, TWO_WAIT, REMOVE, REMOVE_TRIAL),
    *("docs/how-to/see-who-holds-what.md", "docs/how-to/monitoring.md"),
    "docs/how-to/health-check.md#Check the pool every hour",
)
def test_from_zero_to_a_notebook_of_the_pool_and_back(node: Node, reader: Reader, tmp_path: Path) -> None:
    cluster = node.cluster
    with volume(cluster, tmp_path / "volume"), pool_has_a_name(cluster):
        reader.follow(POOL, POOL_INSTALL, NAMESPACE, POOL_FORM)
        waits_for_units(reader)
        reader.follow(UNITS, POOL_NOTEBOOK)
        cell, status, stop = blocks(POOL_CELL)
        kernel = opened(node)
        run_cell(kernel, cell)
        reader.run(status)
        see_who_holds_what(cluster, reader)
        for _, command, _ in table(*NOT_WORKING):
            done = reader.shell(command.strip("`"))
            assert done.returncode == 0, f"{command}\n{done.stdout}"
        reader.run(stop)
        reader.follow(QUEUE, TWO_WAIT)
        see_that_the_pool_is_protected(reader)
        cluster.kubectl("label", "namespace", PROFILE, "bitfusion.io/identity-")
        secret = f"/api/v1/namespaces/{PROFILE}/secrets/bitfusion-client"
        wait_until(lambda: not cluster.client.exists(secret), "the Secret of the namespace gone", 60)
        reader.follow(REMOVE, REMOVE_TRIAL)
        assert ours(cluster) == []


def waits_for_units(reader: Reader) -> None:
    """What the table says of a notebook that was made before a node offers units."""
    create, _ = blocks(POOL_NOTEBOOK)[0].commands.split("\nuntil ", 1)
    reader.shell(create)
    (row,) = (each for each in table(*NOT_WORKING) if each[0] == "the pod stays *Pending*")
    wait_until(
        lambda: "Insufficient bitfusion.io/gpu." in reader.shell(row[1].strip("`")).stdout,
        lambda: reader.shell(row[1].strip("`")).stdout,
        60,
    )
    reader.shell("kubectl -n $PROFILE delete notebook bitfusion-sample")
    gone = "kubectl -n $PROFILE wait --for=delete pod/bitfusion-sample-0 --timeout=2m"
    assert reader.shell(gone).returncode == 0


CLIENT = """\
#!/bin/sh
# As the product's, it looks for its files at home and in /etc/bitfusion/tls.
case $1 in
version) echo "a client of the test" ;;
list_gpus)
  cat ~/.bitfusion/client.yaml /etc/bitfusion/tls/ca.crt > /dev/null || exit 1
  echo "- server 0 [203.0.113.7:56001]: running 0 tasks"
  echo "   |- GPU 0: free memory 16160 MiB / 16160 MiB"
  echo "   |- GPU 1: free memory 16160 MiB / 16160 MiB"
  ;;
health) cat ~/.bitfusion/servers.conf ~/.bitfusion/client.yaml /etc/bitfusion/tls/ca.crt ;;
esac
"""
FILES = {
    "servers.conf": "servers:\n- addresses:\n  - 203.0.113.7:56001\n",
    "client.yaml": "authconfig:\n  token: of-the-product\n",
    "ca.crt": "an authority\n",
}


@pytest.mark.apart
@pytest.mark.runs(*places(VMWARE, UNITS, QUEUE, NO_QUEUE, REMOVE))
def test_with_vmwares_product(node: Node, reader: Reader, tmp_path: Path) -> None:
    package(tmp_path / "package", reader.folder)
    (reader.folder / "vmware").mkdir()
    for name, text in FILES.items():
        (reader.folder / "vmware" / name).write_text(text)
    client, issuer, configuration, device_plugin, look = blocks(VMWARE)
    write_device_plugin, *offer = blocks(UNITS)
    reader.run(client)
    bring_images(node, reader)
    reader.run(issuer)
    reader.follow(POOL_INSTALL)
    reader.run(configuration)
    reader.follow(NAMESPACE)
    for block in (write_device_plugin, device_plugin, *offer):
        reader.run(block)
    reader.follow(POOL_NOTEBOOK)
    pod = node.cluster.client.get(POD)
    names = [each["name"] for each in pod["spec"]["initContainers"]]
    assert names == ["bitfusion-client", "bitfusion-packages"]
    printed = reader.run(look)
    for line in ("a client of the test\n", *FILES.values()):
        assert line in printed
    for block in blocks(QUEUE):
        reader.run(block)
    reader.follow(NO_QUEUE)
    wait_until(
        lambda: not [name for name in ours(node.cluster) if "bitfusion-queue" in name],
        "nothing of the queue is left",
        60,
    )
    reader.shell("kubectl -n $PROFILE delete notebook bitfusion-sample")
    reader.follow(REMOVE)


def package(files: Path, place: Path) -> None:
    """A Debian package as the guide names it, in `place`."""
    (name,) = (
        line.partition("=")[2]
        for line in blocks(VMWARE)[0].commands.splitlines()
        if line.startswith("PACKAGE=")
    )
    program = files / "usr" / "bin" / "bitfusion"
    libraries = files / "opt/bitfusion/lib/x86_64-linux-gnu/bitfusion/lib"
    control = files / "DEBIAN" / "control"
    for folder in (program.parent, libraries, control.parent):
        folder.mkdir(parents=True)
    program.write_text(CLIENT)
    program.chmod(0o755)
    control.write_text(
        textwrap.dedent("""\
            Package: bitfusion-client
            Version: 1
            Architecture: all
            Maintainer: the tests
            Description: plays a client
            """)
    )
    build = ["dpkg-deb", "--build", "--root-owner-group", str(files), str(place / name)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
