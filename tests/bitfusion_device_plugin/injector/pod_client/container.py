"""A container of a pod with an injected client: a root of its own, with the mounts of the injector."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bitfusion_client.pod import pod_contract
from tests.bitfusion_device_plugin.injector.pod_client.client_image import LIMIT_S
from tests.support.machine import scaled
from tests.support.namespaces import with_own_mounts

TOOLS = "/image/busybox"
"""A shell and tools of the image, in no folder that PATH has."""
PYTHON = Path(sys.base_prefix)
JOVYAN = "1000:100"
EXECUTABLE = f"{PYTHON}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"

Wrapped = Callable[[list[str]], list[str]]

_ENTER = """\
set -e
root=$1 python=$2 client=$3 identity=$4 read_only=$5 user=$6
shift 6
cd "$root"
if [ "$read_only" ]; then mount --bind . . && cd "$root"; fi
for place in usr/lib usr/lib64 lib lib64; do
  if [ -d "$place" ] && [ ! -L "$place" ]; then mount --rbind "/$place" "$place"; fi
done
mount --rbind "$python" "./$python"
mount --rbind /proc proc
for device in null urandom; do mount --bind "/dev/$device" "dev/$device"; done
if [ -d dev/shm ]; then mount -t tmpfs -o mode=1777 shm dev/shm; fi
if [ "$identity" ]; then
  mount -t tmpfs -o mode=1777 identity "$client/identity"
  cp -a "$identity/." "$client/identity/"
  chmod 1777 "$client/identity"
  mount -o remount,ro "$client/identity"
fi
mount --rbind "$client" bitfusion
mount -o remount,bind,ro bitfusion
mount --bind bitfusion/bin/bitfusion usr/local/bin/bitfusion
if [ "$read_only" ]; then mount -o remount,bind,ro .; fi
exec chroot --userspec="$user" --groups= . /image/busybox env -i -- "$@"
"""


class Container:
    """Its root file system is a folder: what a test adds to it is in the image.

    Args:
        root: An empty folder.
        client: The folder of this container in the pod's volume.

    Attributes:
        identity: The folder that is mounted as the Secret; None where the pod's namespace has none.
        read_only: Whether its root is.
        user: As whom commands run.
        path: The image's PATH.
        home: None: there is no such variable.
    """

    def __init__(self, root: Path, client: Path) -> None:
        self.root = root
        self.client = client
        self.identity: Path | None = None
        self.read_only = False
        self.user = JOVYAN
        self.path = "/usr/local/bin:/usr/bin:/bin"
        self.home: str | None = "/home/jovyan"
        for name in ("bitfusion", "proc", "dev", "etc", "image", "usr/bin", "usr/local/bin", "opt"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "usr/lib", "usr/lib64"):
            machine = Path("/", name)
            if name == "bin" or machine.is_symlink():
                (root / name).symlink_to(f"usr/{name}" if name == "bin" else os.readlink(machine))
            elif machine.is_dir():
                (root / name).mkdir()
        (root / str(PYTHON).lstrip("/")).mkdir(parents=True, exist_ok=True)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        (root / "home" / "jovyan").mkdir(parents=True)
        os.chown(root / "home" / "jovyan", 1000, 100)
        for mount_point in ("usr/local/bin/bitfusion", "dev/null", "dev/urandom"):
            (root / mount_point).touch()
        os.link(client / "bin" / "sh", root / "image" / "busybox")

    def add(self, path: str, text: str) -> None:
        """A program of the image: a shell script."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!{TOOLS} sh\n{text}\n")
        place.chmod(0o755)

    def add_python(self, path: str) -> None:
        """The Python of these tests."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(EXECUTABLE)

    def add_old_python(self, path: str, version: str) -> None:
        """One that says that it is so old. What it runs is read by a newer one."""
        numbers = tuple(map(int, version.split(".")))
        name = path.lstrip("/").replace("/", "-")
        (self.root / "image" / name).write_text(
            f"import sys\nsys.version_info = {numbers}\nsys.executable = {path!r}\n"
            "sys.argv = sys.argv[3:]\n__file__ = sys.argv[0]\n"
            "exec(compile(open(__file__).read(), __file__, 'exec'))\n"
        )
        self.add(path, f'exec {EXECUTABLE} -I -S /image/{name} "$@"')

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, wrapped: Wrapped = list
    ) -> subprocess.Popen[str]:
        """A command in the container; `wrapped` is to see the command line that enters it."""
        given = {"PATH": self.path, **({} if self.home is None else {"HOME": self.home}), **(env or {})}
        command = ["sh", "-c", _ENTER, "sh", self.root, PYTHON, self.client, self.identity or ""]
        command += ["yes" if self.read_only else "", self.user]
        command += [f"{name}={value}" for name, value in given.items()]
        return subprocess.Popen(
            wrapped(with_own_mounts([*map(str, command), *words])),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def do(
        self, *words: str, env: Mapping[str, str] | None = None, wrapped: Wrapped = list
    ) -> tuple[int, str, str]:
        """Run a command in it: exit status, stdout, stderr."""
        with self.start(*words, env=env, wrapped=wrapped) as process:
            try:
                stdout, stderr = process.communicate(timeout=scaled(LIMIT_S))
            finally:
                process.kill()
        return process.returncode, stdout, stderr


def write_identity(folder: Path, files: Mapping[str, str]) -> Path:
    """A Secret's files as kubelet lays them: links to links to a folder that is replaced as a whole."""
    generation = folder / "..2026_11_23_05_00_00.1"
    generation.mkdir(parents=True)
    for name, text in files.items():
        (generation / name).write_text(text)
        (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data").symlink_to(generation.name)
    return folder


def pod_text(client: Path, name: str) -> str:
    return (client / pod_contract.POD_FOLDER / name).read_text()
