"""The stand-in starts in whatever image a user takes, or says in one line why it cannot."""

from __future__ import annotations

import ast
import os

import pytest

from bitfusion_client.command.find_client import INSTALLED_MARK
from tests.bitfusion_device_plugin.injector.pod_client.client_image import SCRIPTS
from tests.bitfusion_device_plugin.injector.pod_client.container import Container

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root makes roots for other users")

VERSION = "bitfusion version 4.0.0-00000000 (embedded pool, stand-in for the vSphere Bitfusion client)\n"


def test_without_a_python_one_line_says_what_to_do(container: Container) -> None:
    status, stdout, stderr = container.do("bitfusion", "version")
    assert (status, stdout) == (1, "")
    assert stderr == (
        "Error: this image has no Python for the bitfusion stand-in: there is no python3 on PATH, nor in "
        "/opt/conda/bin, /usr/local/bin, /usr/bin. What to do: use an image with Python 3.10 or newer; or "
        "ask your administrator for VMware's client in the map of clients\n"
    )


def test_an_old_python_is_named(container: Container) -> None:
    container.add_old_python("/opt/conda/bin/python3", "3.8.10")
    status, stdout, stderr = container.do("bitfusion", "version")
    assert (status, stdout) == (1, "")
    assert stderr == (
        "Error: the Python of this image is too old for the bitfusion stand-in: /opt/conda/bin/python3 is "
        "3.8.10. What to do: use an image with Python 3.10 or newer; or ask your administrator for VMware's "
        "client in the map of clients\n"
    )


@pytest.mark.parametrize(
    ("path", "python", "old"),
    [
        ("/opt/conda/bin:/usr/local/bin:/usr/bin", "/opt/conda/bin/python3", ""),
        ("/usr/local/bin:/usr/bin", "/opt/conda/bin/python3", ""),
        ("/usr/local/bin", "/usr/bin/python3", "/usr/local/bin/python3"),
        ("/home/jovyan/venv/bin", "/opt/conda/bin/python3", "/home/jovyan/venv/bin/python3"),
        ("/home/jovyan/venv/bin", "/home/jovyan/venv/bin/python3", "/usr/bin/python3"),
        ("/usr/local/bin:/usr/bin", "/usr/bin/python3.12", "/usr/bin/python3"),
    ],
    ids=["conda", "conda, not on PATH", "an old one first", "an old venv", "a venv only", "by number"],
)
def test_a_python_is_found(container: Container, path: str, python: str, old: str) -> None:
    container.path = path
    container.add_python(python)
    if old:
        container.add_old_python(old, "3.6.9")
    assert container.do("/bitfusion/bin/bitfusion", "version") == (0, VERSION, "")


def test_a_python_in_a_relative_folder_is_not_run(container: Container) -> None:
    """It would be anybody's, wherever a notebook lies."""
    container.path = "evil:.:/usr/bin"
    for place in ("/evil/python3", "/python3"):
        container.add(place, "echo not mine")
    container.add_python("/usr/bin/python3")
    assert container.do("/bitfusion/bin/bitfusion", "version") == (0, VERSION, "")


def test_the_kernels_own_python_is_taken_first(container: Container) -> None:
    container.add_python("/opt/kernel/bin/python")
    container.add_old_python("/usr/bin/python3", "3.9.1")
    environ = {"BITFUSION_PYTHON": "/opt/kernel/bin/python"}
    assert container.do("bitfusion", "version", env=environ) == (0, VERSION, "")


@pytest.mark.parametrize(
    ("user", "home", "read_only"),
    [
        ("1000:100", None, False),
        ("12345:12345", "/", False),
        ("1000:100", "/home/jovyan", True),
        ("0:0", "/root", True),
    ],
    ids=["no HOME", "uid 12345", "read-only root", "root"],
)
def test_it_needs_no_home_and_writes_nothing(
    container: Container, user: str, home: str | None, read_only: bool
) -> None:
    container.add_python("/usr/bin/python3")
    container.user, container.home, container.read_only = user, home, read_only
    assert container.do("bitfusion", "version") == (0, VERSION, "")


def test_the_program_has_the_containers_environment(container: Container) -> None:
    """A shell would drop what it cannot name and add what it thinks of; Python would add a locale."""
    container.add_python("/usr/bin/python3")
    given = {
        "BITFUSION_POOL": "own",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64:",
        "PYTHONPATH": "/srv:",
        "spring.profile": "a b",
        "-i": "an option",
        "LINES": "one\ntwo=2",
        "EMPTY": "",
    }
    told = container.do("bitfusion", "run", "-n", "1", "--", "/image/busybox", "env", env=given)
    assert told[0] == 0, told
    for name, value in given.items():
        assert f"\n{name}={value}\n" in f"\n{told[1]}", told
    names = {line.partition("=")[0] for line in told[1].splitlines()}
    added = {name for name in names if name.startswith(("BF_", "BITFUSION_"))}
    assert names - added - set(given) == {"PATH", "HOME", "CUDA_VISIBLE_DEVICES", "two"}


@pytest.mark.parametrize("given", [{}, {"PWD": "/", "SHLVL": "3"}], ids=["without", "with"])
def test_the_shells_own_variables_are_as_they_were(container: Container, given: dict[str, str]) -> None:
    # instead of a Python one that shows what it was given
    container.add("/usr/bin/python3", '/image/busybox tr "\\0" "\\n" <"/proc/$$/environ"')
    _, stdout, _ = container.do("bitfusion", "version", env=given)
    found = dict(line.partition("=")[::2] for line in stdout.splitlines())
    assert {name: found[name] for name in ("PWD", "SHLVL") if name in found} == given


def test_a_value_that_nothing_can_carry_is_left_out_and_nothing_else_is_run(container: Container) -> None:
    container.add_python("/usr/bin/python3")
    given = {"a.b": "x\1/image/busybox", "c.d": "kept", "BITFUSION_POOL": "own"}
    status, stdout, _ = container.do("bitfusion", "run", "-n", "1", "--", "/image/busybox", "env", env=given)
    assert status == 0
    assert "\nc.d=kept\n" in stdout
    assert "a.b=" not in stdout


def test_an_image_with_a_client_of_its_own_is_told(container: Container) -> None:
    container.add_python("/usr/bin/python3")
    container.add("/opt/own/bitfusion", "echo mine")
    container.path = "/usr/local/bin:/usr/bin:/opt/own"
    status, stdout, stderr = container.do("bitfusion", "version")
    assert (status, stdout) == (0, VERSION)
    assert stderr.partition("Z ")[2] == (
        "This is the pod's client (stand-in), /bitfusion/bin/bitfusion. The image has one of its own, "
        "/opt/own/bitfusion; on this PATH `bitfusion` is /usr/local/bin/bitfusion\n"
    )
    container.path = "/opt/own:/usr/local/bin:/usr/bin"
    assert container.do("bitfusion", "version")[1] == "mine\n"
    assert (
        "on this PATH `bitfusion` is /opt/own/bitfusion"
        in container.do("/bitfusion/bin/bitfusion", "version")[2]
    )
    assert container.do("/bitfusion/bin/bitfusion", "help")[2] == ""


def test_what_pip_installs_is_no_client_of_the_images_own(container: Container) -> None:
    """It starts the pod's."""
    container.add_python("/usr/bin/python3")
    container.add("/opt/own/bitfusion", f"# {INSTALLED_MARK.decode()}")
    container.path = "/opt/own:/usr/local/bin:/usr/bin"
    assert container.do("/bitfusion/bin/bitfusion", "version") == (0, VERSION, "")


def test_a_folder_that_was_not_filled_is_told(container: Container) -> None:
    (container.client / "pod" / "client").unlink()
    assert container.do("bitfusion", "version") == (
        1,
        "",
        'Error: this container has no bitfusion client: /bitfusion/pod/client says "". What to do: look at '
        "the log of the pod's init container bitfusion-client\n",
    )


def test_what_chooses_a_python_can_be_read_by_old_ones() -> None:
    ast.parse((SCRIPTS / "start_python.py").read_text(), feature_version=(3, 5))
