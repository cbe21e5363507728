"""Runs an image's program here without a container's runtime: layers, user and variables are its own.

For what an image does by itself; in a pod it also has a cluster's network, limits and mounts, see `images`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.image_files import BuiltImage, Entry
from tests.support.machine import scaled
from tests.support.place import MARK
from tests.support.waiting import wait_until

_END_S = 20.0


@dataclass
class Running:
    """A program in an image.

    Attributes:
        process: Waits for it, and ends when it does.
        log: What it prints.
    """

    process: subprocess.Popen[bytes]
    log: Path

    def pid(self) -> int:
        """Of the program, which is process 1 there, as this machine counts."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")

        def found() -> list[str]:
            assert self.process.poll() is None, f"it ended:\n{self.log.read_text()[-4000:]}"
            return children.read_text().split()

        return int(wait_until(found, self.log.read_text)[0])

    def beside(self, *words: str, limit_s: float = 120.0) -> str:
        """What a program of this machine prints that shares its network. Raises AssertionError."""
        command = ["nsenter", f"--net=/proc/{self.pid()}/ns/net", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(limit_s))
        assert done.returncode == 0, f"{words}: {done.stderr}\n{self.log.read_text()[-4000:]}"
        return done.stdout


@contextmanager
def running(
    image: BuiltImage,
    argv: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    **more: Any,
) -> Iterator[Running]:
    """The program of an image, or `argv` in it, until the block ends; then it is killed with all it started.

    `more` are attributes of `Entry`: `user`, `binds`, `tmpfs`, `read_only`, `own_network` and so on.
    """
    with tempfile.TemporaryDirectory(prefix="bft-image-") as place:
        log = Path(place) / "log"
        entry = _entry(image, argv, env or {}, place, more)
        with log.open("wb") as said:
            process = subprocess.Popen(entry.words(), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            yield Running(process, log)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill process 1 of the image, which ends all others there and then the command that waits for it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGKILL)
    except OSError:
        pass  # it has ended
    try:
        process.wait(scaled(_END_S))
    finally:
        process.kill()


def run(
    image: BuiltImage,
    argv: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    limit_s: float = 60.0,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `running` does."""
    with tempfile.TemporaryDirectory(prefix="bft-image-") as place:
        entry = _entry(image, argv, env or {}, place, more)
        return subprocess.run(
            entry.words(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=scaled(limit_s)
        )


def _entry(
    image: BuiltImage, argv: Sequence[str], env: Mapping[str, str], place: str, more: Mapping[str, Any]
) -> Entry:
    folders = {name: f"{place}/{name}" for name in ("root", "upper", "work")}
    for folder in folders.values():
        os.mkdir(folder)
    mark = {MARK: os.environ[MARK]} if MARK in os.environ else {}
    whole: dict[str, Any] = {"user": image.config.get("User", ""), "cwd": image.config.get("WorkingDir", "/")}
    return Entry(
        layers=[str(layer) for layer in image.layers],
        argv=list(argv) or image.command,
        env={**image.environment, **mark, **env},
        **{**folders, **whole, **more},
    )
