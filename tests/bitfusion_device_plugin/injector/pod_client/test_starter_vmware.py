"""VMware's client in a pod: its libraries, its files in a home that it may write, and the user's own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.bitfusion_device_plugin.injector.pod_client.client_image import install
from tests.bitfusion_device_plugin.injector.pod_client.container import (
    EXECUTABLE,
    JOVYAN,
    Container,
    write_identity,
)

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root makes roots for other users")

PACKAGE = "bitfusion-client-ubuntu2004_4.5.0-4_amd64.deb"
LIBRARIES = f"/bitfusion/packages/{PACKAGE}/opt/bitfusion/lib/x86_64-linux-gnu/bitfusion/lib"
SERVERS = "servers:\n- addresses:\n  - 10.202.122.248:56001\n"
CLIENT = "cacertpath: /etc/bitfusion/tls/ca.crt\nauthconfig:\n  token: one\n"
SECRET = {"servers.conf": SERVERS, "client.yaml": CLIENT, "ca.crt": "the CA"}


@pytest.fixture
def container(client_image: Path, volume: Path, tmp_path: Path) -> Container:
    """A container with a client that shows its environment."""
    made = install(client_image, volume, "main", "-n 1", "100", "vmware", PACKAGE)
    assert made.returncode == 0, made
    (tmp_path / "root").mkdir()
    container = Container(tmp_path / "root", volume / "main")
    package = volume / "main" / "packages" / PACKAGE
    (package / "opt/bitfusion/lib/x86_64-linux-gnu/bitfusion/lib").mkdir(parents=True)
    program = package / "usr" / "bin" / "bitfusion"
    program.parent.mkdir(parents=True)
    # no shell, which would change what it shows
    show = "import sys; sys.stdout.write(open('/proc/self/environ').read().replace(chr(0), chr(10)))"
    program.write_text(f"#!{EXECUTABLE} -IS\n{show}\n")
    program.chmod(0o755)
    container.identity = write_identity(tmp_path / "secret", SECRET)
    return container


def files(container: Container, folder: str = "home/jovyan/.bitfusion") -> dict[str, str]:
    return {path.name: path.read_text() for path in (container.root / folder).iterdir()}


def environment(stdout: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in stdout.splitlines())


COPIES = {
    "servers.conf": SERVERS,
    "client.yaml": CLIENT,
    ".from-pod-servers.conf": SERVERS,
    ".from-pod-client.yaml": CLIENT,
}


def test_its_files_lie_where_it_looks_and_only_the_user_reads_them(container: Container) -> None:
    status, _, stderr = container.do("bitfusion", "run")
    assert (status, stderr) == (0, "")
    assert files(container) == COPIES
    folder = container.root / "home/jovyan/.bitfusion"
    assert (stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid) == (0o700, 1000)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("image", "client"),
    [
        (None, LIBRARIES),
        pytest.param("", LIBRARIES, marks=pytest.mark.long),
        ("/usr/local/cuda/lib64:", f"{LIBRARIES}:/usr/local/cuda/lib64"),
        pytest.param(":/a::/b", f"{LIBRARIES}:/a:/b", marks=pytest.mark.long),
        (f"{LIBRARIES}:/a", f"{LIBRARIES}:/a"),
    ],
    ids=["none", "empty", "an empty end", "empty parts", "inside a run"],
)
def test_the_library_path_has_the_clients_and_the_images_and_no_empty_part(
    container: Container, image: str | None, client: str
) -> None:
    given = {} if image is None else {"LD_LIBRARY_PATH": image}
    found = environment(container.do("bitfusion", "run", env=given)[1])
    assert found == {"PATH": container.path, "HOME": "/home/jovyan", "LD_LIBRARY_PATH": client}


def test_variables_that_no_shell_can_name_arrive_too(container: Container) -> None:
    given = {"a.b": "c", "LD_LIBRARY_PATH": "/a:"}
    found = environment(container.do("bitfusion", "run", env=given)[1])
    assert found["a.b"] == "c"
    assert found["LD_LIBRARY_PATH"] == f"{LIBRARIES}:/a"


def test_a_renewed_secret_replaces_the_copies(container: Container, tmp_path: Path) -> None:
    container.do("bitfusion", "run")
    renewed = {
        **SECRET,
        "client.yaml": CLIENT.replace("one", "two"),
        "servers.conf": SERVERS.replace("248", "249"),
    }
    container.identity = write_identity(tmp_path / "renewed", renewed)
    assert container.do("bitfusion", "run")[2] == ""
    found = files(container)
    assert found["client.yaml"] == found[".from-pod-client.yaml"] == renewed["client.yaml"]
    assert found["servers.conf"] == found[".from-pod-servers.conf"] == renewed["servers.conf"]


def test_what_the_client_has_written_anew_is_still_ours(container: Container, tmp_path: Path) -> None:
    """It adds to its files, with the same token and addresses; they must not stay behind for that."""
    container.do("bitfusion", "run")
    home = container.root / "home/jovyan/.bitfusion"
    rewritten = "version: 4.5.0\n" + CLIENT
    (home / "client.yaml").write_text(rewritten)
    (home / "servers.conf").write_text(
        "servers:\n- reachable: 10.202.122.248:56001\n  addresses:\n  - 10.202.122.248:56001\n"
    )
    assert container.do("bitfusion", "run")[2] == ""
    assert files(container)["client.yaml"] == rewritten  # as long as the Secret says the same
    renewed = {
        **SECRET,
        "client.yaml": CLIENT.replace("one", "two"),
        "servers.conf": SERVERS.replace("248", "249"),
    }
    container.identity = write_identity(tmp_path / "renewed", renewed)
    assert container.do("bitfusion", "run")[2] == ""
    assert files(container)["client.yaml"] == renewed["client.yaml"]
    assert files(container)["servers.conf"] == renewed["servers.conf"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_of_the_users_own_is_never_replaced(container: Container, when: str, tmp_path: Path) -> None:
    home = container.root / "home/jovyan/.bitfusion"
    if when == "after":
        container.do("bitfusion", "run")
    else:
        home.mkdir()
        os.chown(home, 1000, 100)
    mine = "authconfig:\n  token: mine\n"
    (home / "client.yaml").write_text(mine)
    container.identity = write_identity(
        tmp_path / "renewed", {**SECRET, "client.yaml": CLIENT.replace("one", "two")}
    )
    status, _, stderr = container.do("bitfusion", "run")
    assert status == 0
    assert stderr.partition("Z ")[2] == (
        "/home/jovyan/.bitfusion/client.yaml is yours and stays as it is: it differs from the pod's, "
        "/bitfusion/identity/client.yaml; remove it to use the pod's\n"
    )
    assert files(container)["client.yaml"] == mine
    (home / "client.yaml").unlink()
    assert container.do("bitfusion", "run")[2] == ""
    assert "token: two" in files(container)["client.yaml"]


def test_a_link_in_its_place_is_not_written_through(container: Container) -> None:
    home = container.root / "home/jovyan/.bitfusion"
    home.mkdir()
    os.chown(home, 1000, 100)
    (home / "client.yaml").symlink_to("/home/jovyan/elsewhere")
    assert "is yours and stays as it is" in container.do("bitfusion", "run")[2]
    assert not (container.root / "home/jovyan/elsewhere").exists()


@pytest.mark.parametrize(
    ("user", "home", "variable", "private"),
    [
        ("12345:12345", "/", {}, "/tmp/bitfusion-12345"),
        pytest.param("12345:12345", "/home/jovyan", {}, "/tmp/bitfusion-12345", marks=pytest.mark.long),
        pytest.param("12345:12345", None, {}, "/tmp/bitfusion-12345", marks=pytest.mark.long),
        ("12345:12345", "/", {"TMPDIR": "/scratch"}, "/scratch/bitfusion-12345"),
        pytest.param(JOVYAN, "relative", {}, "/tmp/bitfusion-1000", marks=pytest.mark.long),
    ],
    ids=["HOME=/", "another user's home", "no HOME", "TMPDIR", "relative"],
)
def test_without_a_home_a_private_folder_is_one_and_that_is_told(
    container: Container, user: str, home: str | None, variable: dict[str, str], private: str
) -> None:
    (container.root / "scratch").mkdir()
    (container.root / "scratch").chmod(0o1777)
    container.user, container.home = user, home
    status, stdout, stderr = container.do("bitfusion", "run", env=variable)
    assert status == 0
    number = user.partition(":")[0]
    assert stderr.partition("Z ")[2] == (
        f"HOME={home or ''} cannot be written by user {number}, and the client keeps its files there: "
        f"HOME is {private} for the client and what it runs\n"
    )
    assert environment(stdout)["HOME"] == private
    folder = container.root / private[1:]
    assert (stat.S_IMODE(folder.stat().st_mode), str(folder.stat().st_uid)) == (0o700, number)
    assert files(container, f"{private[1:]}/.bitfusion") == COPIES


def test_a_private_folder_of_somebody_else_is_not_used(container: Container) -> None:
    container.user, container.home = "12345:12345", "/"
    (container.root / "tmp" / "bitfusion-12345").mkdir()
    status, _, stderr = container.do("bitfusion", "run", env={"TMPDIR": "/nowhere"})
    assert status == 1
    assert stderr.startswith("Error: the client has no folder for its files: neither HOME=/ nor /tmp")
    assert list((container.root / "tmp" / "bitfusion-12345").iterdir()) == []


def test_without_any_folder_to_write_it_says_what_to_do(container: Container) -> None:
    container.user, container.home, container.read_only = "12345:12345", "/", True
    assert container.do("bitfusion", "run") == (
        1,
        "",
        "Error: the client has no folder for its files: neither HOME=/ nor /tmp can be written by user "
        "12345. What to do: set HOME to a folder that this user can write, or mount an emptyDir at /tmp\n",
    )


def test_without_identity_it_names_the_secret(container: Container) -> None:
    container.identity = None
    assert container.do("bitfusion", "run") == (
        1,
        "",
        "Error: pool configuration is missing: namespace team-a has no Secret bitfusion-client, or it has "
        "not reached this pod. What to do: ask your administrator to give the namespace a token of the "
        "pool; a running pod has it two minutes later\n",
    )


def test_files_of_the_images_own_do_without_the_secret(container: Container) -> None:
    container.identity = None
    (container.root / "etc" / "bitfusion").mkdir()
    (container.root / "etc" / "bitfusion" / "client.yaml").write_text(CLIENT)
    assert container.do("bitfusion", "run")[::2] == (0, "")
    assert not (container.root / "home/jovyan/.bitfusion").exists()


@pytest.mark.parametrize("package", ["another.deb", "", "../packages/" + PACKAGE])
def test_a_package_that_is_not_there_is_told(container: Container, package: str) -> None:
    (container.client / "pod" / "package").write_text(package)
    assert container.do("bitfusion", "run") == (
        1,
        "",
        "Error: VMware's client is not in this pod: there is no /bitfusion/packages/"
        f"{package}/usr/bin/bitfusion. What to do: ask your administrator to correct the package or its "
        "image in the map of clients\n",
    )


def test_a_folder_of_somebody_else_in_the_home_is_not_used(container: Container) -> None:
    home = container.root / "home/jovyan/.bitfusion"
    home.mkdir()  # root's
    (container.root / "tmp").chmod(0o755)
    assert (
        "Error: the client has no folder for its files: neither HOME=/home/jovyan nor /tmp"
        in (container.do("bitfusion", "run")[2])
    )
