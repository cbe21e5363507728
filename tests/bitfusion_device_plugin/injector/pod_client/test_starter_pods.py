"""The client for GPUs of the cluster itself starts as the stand-in does, also as process 1 of a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bitfusion_client.command.find_client import FoundClient, find_client
from tests.bitfusion_device_plugin.injector.pod_client.client_image import PODS, install, make_client_image
from tests.bitfusion_device_plugin.injector.pod_client.container import Container
from tests.support.namespaces import as_process_1

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root makes roots for other users")

# Instead of the client's own, which needs a cluster.
SAY = """\
import os, sys
if sys.argv[0] != __file__ or "LC_CTYPE" in os.environ or "BITFUSION_OTHER_PYTHONS" in os.environ:
    sys.exit(9)
print(os.getpid() == 1, __name__, sys.argv[1:])
"""


@pytest.fixture(scope="session")
def pods_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = make_client_image(tmp_path_factory.mktemp("pods-image") / "bitfusion-image", [])
    command = image / "client/pods/bitfusion_pods/bin/bitfusion"
    command.parent.mkdir(parents=True)
    command.write_text(SAY)
    return image


@pytest.fixture
def container(pods_image: Path, volume: Path, tmp_path: Path) -> Container:
    done = install(pods_image, volume, *PODS)
    assert done.returncode == 0, done
    (tmp_path / "root").mkdir()
    return Container(tmp_path / "root", volume / "main")


def test_its_own_command_is_started_with_the_words(container: Container) -> None:
    container.add_python("/opt/conda/bin/python3")
    words = ("run", "-n", "1", "--", "a b", "$(c)", "")
    assert container.do("bitfusion", *words) == (0, f"False __main__ {list(words)}\n", "")


def test_it_becomes_process_1_where_it_is_the_containers_program(container: Container) -> None:
    container.add_python("/usr/bin/python3")
    words = ("run", "-n", "1", "--", "train")
    status, stdout, stderr = container.do("/bitfusion/bin/bitfusion", *words, wrapped=as_process_1)
    assert (status, stdout, stderr) == (0, f"True __main__ {list(words)}\n", "")


def test_without_a_python_one_line_says_what_to_do(container: Container) -> None:
    assert container.do("bitfusion", "run") == (
        1,
        "",
        "Error: this image has no Python for the bitfusion client: there is no python3 on PATH, nor in "
        "/opt/conda/bin, /usr/local/bin, /usr/bin. What to do: use an image with Python 3.10 or newer\n",
    )


def test_an_old_python_is_named(container: Container) -> None:
    container.add_old_python("/opt/conda/bin/python3", "3.8.10")
    assert container.do("bitfusion", "run") == (
        1,
        "",
        "Error: the Python of this image is too old for the bitfusion client: /opt/conda/bin/python3 is "
        "3.8.10. What to do: use an image with Python 3.10 or newer\n",
    )


def test_an_old_python_gives_way_to_a_newer_one(container: Container) -> None:
    container.add_old_python("/usr/bin/python3", "3.6.9")
    container.add_python("/opt/conda/bin/python3")
    assert container.do("/bitfusion/bin/bitfusion", "run") == (0, "False __main__ ['run']\n", "")


def test_a_client_of_the_images_own_is_told(container: Container) -> None:
    container.add_python("/usr/bin/python3")
    container.add("/opt/own/bitfusion", "echo mine")
    container.path = "/usr/local/bin:/usr/bin:/opt/own"
    assert (
        "This is the pod's client (pods), /bitfusion/bin/bitfusion" in container.do("bitfusion", "version")[2]
    )


def test_it_is_found_where_it_was_injected_and_is_not_the_stand_in(
    container: Container, tmp_path: Path
) -> None:
    """The kernel takes the stand-in for GPUs that are simulated."""
    root = tmp_path / "machine"
    root.mkdir()
    (root / "bitfusion").symlink_to(container.client)
    found = find_client(None, {"PATH": ""}, root=str(root), import_path=[])
    assert found == FoundClient(str(root / "bitfusion/bin/bitfusion"), "injected", False)
    found = find_client(None, {"PATH": str(root / "bitfusion/bin")}, root=str(root), import_path=[])
    assert (found.kind, found.is_embedded_pool) == ("injected", False)
