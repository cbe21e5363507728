"""The identity of a pod: files of a Secret, trusted where kubelet mounts them and nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.access.network_files import read_network_client
from tests.support.machine import scaled
from tests.support.namespaces import with_own_mounts

only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away and mounts for others")

OTHER = 65532
SERVERS = "servers:\n- addresses:\n  - pool:56001\n"
TOKEN = "authconfig:\n  token: from-the-secret\n"
# Lays the Secret as kubelet does, mounts, and reads as another user than the folder's.
READ = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from bitfusion_pool.access import file_contents, network_files
from bitfusion_client import errors
import errno, pwd, stat  # before the user is another, who may not read where Python lies
pod, system, steps = sys.argv[2:5]
exec(steps)
os.setgroups([]); os.setgid(12345); os.setuid(12345)
try:
    found = network_files.read_network_client({"HOME": "/nowhere"}, system, pod)
    print(found and (found.token.reveal(), found.client_file, network_files.read_authority(found)))
except errors.BitfusionError as error:
    print(error)
"""
MOUNT = f"""
identity = pod + "/identity"
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "secret", identity], check=True)
os.mkdir(identity + "/..1", 0o755)
for name, text in (("servers.conf", {SERVERS!r}), ("client.yaml", {TOKEN!r}), ("ca.crt", "the CA")):
    with open(identity + "/..1/" + name, "w") as file:
        file.write(text)
    os.symlink("..data/" + name, identity + "/" + name)
os.symlink("..1", identity + "/..data")
"""
READ_ONLY = 'subprocess.run(["mount", "-o", "remount,ro", identity], check=True)\n'
BIND_READ_ONLY = READ_ONLY.replace("remount,ro", "remount,bind,ro")


@pytest.fixture
def pod() -> Iterator[Path]:
    """The folder of an injected client, as another user's init container has left it."""
    base = Path(tempfile.mkdtemp(prefix="bfp-", dir="/tmp"))  # others may not enter pytest's folders
    base.chmod(0o755)
    folder = base / "bitfusion"
    for path in (folder, folder / "identity", folder / "pod"):
        path.mkdir()
        path.chmod(0o777)
    if os.getuid() == 0:
        os.chown(folder, OTHER, OTHER)
    yield folder
    shutil.rmtree(base)


def read(pod: Path, steps: str) -> str:
    """What is read there by a user who is nobody else."""
    source = str(Path(__file__).parents[3])
    words = [sys.executable, "-c", READ, source, str(pod), str(pod / "none"), steps]
    done = subprocess.run(
        with_own_mounts(words),
        capture_output=True,
        text=True,
        timeout=scaled(30),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@only_root
def test_the_secret_is_read_through_a_folder_of_anybodys(pod: Path) -> None:
    found = read(pod, MOUNT + READ_ONLY)
    assert found == repr(("from-the-secret", f"{pod}/identity/client.yaml", "the CA"))


@only_root
@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (MOUNT, "{0}/identity is not a read-only mount"),
        (
            MOUNT.replace('"-t", "tmpfs", "-o", "mode=1777", "secret"', '"--bind", identity')
            + BIND_READ_ONLY,
            "{0}/identity is not a read-only mount",
        ),
        (
            MOUNT + "os.chown(identity, 4711, -1)\n" + READ_ONLY,
            "{0}/identity belongs to user 4711",
        ),
        (
            MOUNT + 'os.chown(identity + "/..1", 4711, -1)\n' + READ_ONLY,
            "{0}/identity/..1 belongs to user 4711",
        ),
        (
            MOUNT + 'os.lchown(identity + "/..data", 4711, -1)\n' + READ_ONLY,
            "{0}/identity/..data belongs to user 4711",
        ),
        (
            MOUNT + 'os.chown(identity + "/..1/client.yaml", 4711, -1)\n' + READ_ONLY,
            "{0}/identity/..1/client.yaml belongs to user 4711",
        ),
    ],
    ids=["writable", "bind", "not root's", "generation", "link", "file"],
)
def test_anything_weaker_is_refused(pod: Path, steps: str, why: str) -> None:
    told = read(pod, steps)
    path = "servers.conf" if "client.yaml belongs" not in why else "client.yaml"
    assert told == (
        f"pool configuration {pod}/identity/{path} is wrong: {why.format(pod)}. What to do: ask your "
        "administrator: the Secret bitfusion-client is mounted there, read-only"
    )


def test_files_in_the_folder_itself_are_no_mount(pod: Path) -> None:
    (pod / "identity" / "servers.conf").write_text(SERVERS)
    (pod / "identity" / "client.yaml").write_text(TOKEN)
    with pytest.raises(PoolUnreadable) as caught:
        read_network_client({"HOME": "/nowhere"}, str(pod / "none"), str(pod))
    assert "is wrong: " in str(caught.value)
    assert isinstance(error_from_output([f"Error: {caught.value}"], 1), PoolUnreadable)


def test_the_users_files_come_first_and_the_systems_last(pod: Path, tmp_path: Path) -> None:
    user, system = tmp_path / "home" / ".bitfusion", tmp_path / "etc"
    for folder in (user, system):
        folder.mkdir(parents=True)
        (folder / "servers.conf").write_text(SERVERS)
    (system / "client.yaml").write_text("authconfig:\n  token: systems\n")
    environ = {"HOME": str(tmp_path / "home")}
    found = read_network_client(environ, str(system), str(pod))
    assert found is not None
    assert (found.servers_file, found.client_file) == (f"{user}/servers.conf", f"{system}/client.yaml")
    (pod / "identity" / "client.yaml").write_text(TOKEN)
    with pytest.raises(PoolUnreadable, match=f"{pod}/identity/client.yaml is wrong"):
        read_network_client(environ, str(system), str(pod))
    (user / "client.yaml").write_text("authconfig:\n  token: mine\n")
    found = read_network_client(environ, str(system), str(pod))
    assert found is not None
    assert found.token.reveal() == "mine"


def test_one_of_two_names_the_pods_folder(pod: Path, tmp_path: Path) -> None:
    (pod / "identity" / "client.yaml").write_text(TOKEN)
    with pytest.raises(PoolUnreadable) as caught:
        read_network_client({"HOME": str(tmp_path)}, "/nowhere", str(pod))
    assert str(caught.value).startswith(
        f"pool configuration is not complete: there is {pod}/identity/client.yaml, and no servers.conf in "
        f"~/.bitfusion nor in {pod}/identity nor in /nowhere. What to do: put the "
    )
