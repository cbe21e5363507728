"""Images as files on this machine: layers, how to become a process in them, how to hand them to a runtime.

A layer is a folder as overlayfs writes it, kept in the user's cache under a hash of what it is made from.
Root is needed to put layers on top of each other; `why_no_images` says in a line what else is.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tests.cluster.images import Image, Layer
from tests.cluster.made_once import made_once, user_cache

_ENTER = Path(__file__).with_name("enter_image.py")
_PROGRAMS = ("unshare", "mount")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_PATH = _PATH
"""PATH in an image that sets none."""


@dataclass(frozen=True)
class BuiltLayer:
    """What one instruction added: `folder/files`, with overlayfs' marks for what it removed."""

    key: str

    @property
    def files(self) -> Path:
        return (_place("layers", self.key) / "files").resolve()

    @property
    def output(self) -> str:
        """What the RUN printed that made it; empty for other layers."""
        path = self.files.with_name("output")
        return path.read_text(errors="replace") if path.exists() else ""

    def archive(self) -> Layer:
        """The layer as a tar for a container's runtime."""

        def make(folder: Path) -> None:
            with (folder / "layer.tar").open("wb") as file:
                writer = _Hashing(file)
                with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                    _add_layer(tar, self.files)
            (folder / "sha256").write_text(writer.hash.hexdigest())

        folder = made_once(_place("archives", self.key), make)
        return Layer(folder / "layer.tar", (folder / "sha256").read_text())


@dataclass(frozen=True)
class BuiltImage:
    """An image that is ready to run.

    Attributes:
        name: With its tag, as pods write it.
        layers: The lowest first.
        config: The `config` of an OCI image: Env, User, WorkingDir, Entrypoint, Cmd, ExposedPorts, Labels.
        build_s: Seconds this call's build took; next to nothing when all layers were in the cache.
    """

    name: str
    layers: tuple[BuiltLayer, ...]
    config: Mapping[str, Any]
    build_s: float = 0.0

    @property
    def environment(self) -> dict[str, str]:
        """Its variables; PATH always."""
        words = (word.partition("=") for word in self.config.get("Env", ()))
        return {"PATH": DEFAULT_PATH, **{name: value for name, _, value in words}}

    @property
    def command(self) -> list[str]:
        """What it runs by itself."""
        return [*self.config.get("Entrypoint", ()), *self.config.get("Cmd", ())]

    def size(self) -> int:
        """Bytes of the files in all layers."""
        return sum(
            entry.lstat().st_size
            for layer in self.layers
            for entry in layer.files.rglob("*")
            if entry.is_file() and not entry.is_symlink()
        )

    def for_a_node(self) -> Image:
        """The same with archives of its layers, as a node of the test cluster takes it; on the first call."""
        config = self.config
        return Image(
            [layer.archive() for layer in self.layers],
            env=self.environment,
            entrypoint=config.get("Entrypoint", ()),
            cmd=config.get("Cmd", ()),
            user=config.get("User", ""),
            workdir=config.get("WorkingDir", ""),
            ports=[int(port.partition("/")[0]) for port in config.get("ExposedPorts", ())],
        )


@dataclass(frozen=True)
class Entry:
    """How to become a process in some layers: what `enter_image` is told.

    Attributes:
        layers: Their folders, the lowest first.
        root: An empty folder to put them together at.
        upper: Where changes go; without it, nothing can be changed.
        work: overlayfs' own, beside `upper`.
        argv: The program and its words.
        env: All its variables.
        user: As in an image's USER.
        cwd: Its folder.
        binds: Files and folders of this machine and where they are seen; below /dev/ any name is free.
        optional_binds: Leave out those for which the image has no place.
        tmpfs: Folders of the image that are empty and writable.
        read_only: As `readOnlyRootFilesystem`.
        own_network: Nothing but a loopback interface.
        no_new_privileges: As `allowPrivilegeEscalation: false`.
        pack: Instead of a program: these paths to stdout as a tar.
        unpack: Instead of a program: the tar on stdin to this folder.
    """

    layers: Sequence[str]
    root: str
    upper: str = ""
    work: str = ""
    argv: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    cwd: str = "/"
    binds: Sequence[tuple[str, str]] = ()
    optional_binds: bool = False
    tmpfs: Sequence[str] = ()
    read_only: bool = False
    own_network: bool = False
    no_new_privileges: bool = False
    pack: Sequence[str] | None = None
    unpack: str | None = None

    def words(self) -> list[str]:
        """The command that does it. It ends when its parent does, and with it all that it started."""
        spaces = ["--mount", "--pid", "--fork", "--kill-child", *(["--net"] if self.own_network else [])]
        return ["unshare", *spaces, sys.executable, "-I", "-S", str(_ENTER), json.dumps(asdict(self))]


def why_no_images() -> str | None:
    """One line that says why no image can be built or entered here; None where that can be done."""
    if platform.system() != "Linux":
        return "no images: they need Linux"
    if os.geteuid() != 0:
        return "no images: putting layers on top of each other needs root"
    for program in _PROGRAMS:
        if shutil.which(program, path=_PATH) is None:
            return f"no images: {program} is missing"
    with tempfile.TemporaryDirectory() as place:
        folders = {name: f"{place}/{name}" for name in ("lower", "upper", "work", "root")}
        for folder in folders.values():
            os.mkdir(folder)
        layers = f"lowerdir={folders['lower']},upperdir={folders['upper']},workdir={folders['work']}"
        mount = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", layers, folders["root"]]
        done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"no images: overlayfs cannot be mounted here: {words}"
    return None


def empty_layer() -> BuiltLayer:
    """For an image that begins with nothing: overlayfs wants a layer to begin with."""
    return make_layer("empty", lambda folder: None)


def make_layer(key: str, make: Callable[[Path], None]) -> BuiltLayer:
    """The layer of that key; `make(folder)` fills it, when it isn't in the cache."""

    def fill(folder: Path) -> None:
        files = folder / "files"
        files.mkdir()
        files.chmod(0o755)
        make(files)
        for name in ("work", "root"):  # overlayfs'
            shutil.rmtree(folder / name, ignore_errors=True)

    made_once(_place("layers", key), fill)
    return BuiltLayer(key)


def key_of(*parts: object) -> str:
    """A short name for what something is made from."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def _place(kind: str, key: str) -> Path:
    # Folders beside each other are made one after the other.
    return user_cache() / "images" / kind / key[:2] / key


class _Hashing(io.RawIOBase):
    """Writes to a file and hashes on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return self._file.write(data)


def _add_layer(tar: tarfile.TarFile, files: Path) -> None:
    """Overlayfs marks what a layer removes by devices 0:0 and an attribute, a tar by names with .wh."""
    for path in _sorted(files):
        name = str(path.relative_to(files))
        state = path.lstat()
        if stat.S_ISCHR(state.st_mode) and state.st_rdev == 0:
            _add_bytes(tar, str(Path(name).parent / f".wh.{path.name}"), b"")
            continue
        tar.add(path, name, recursive=False)
        if stat.S_ISDIR(state.st_mode) and _is_opaque(path):
            _add_bytes(tar, f"{name}/.wh..wh..opq", b"")


def _sorted(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _sorted(path)


def _is_opaque(path: Path) -> bool:
    try:
        return os.getxattr(path, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
