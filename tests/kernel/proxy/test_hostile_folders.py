"""The folder of the sockets is full, read-only, cleaned away or never there: the proxy lives and says so."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import bitfusion_pool
from bitfusion_kernel.processes.private_folder import PREFIX
from tests.kernel.proxy_harness import GRANT, ProxyHarness, StartProxy
from tests.support.namespaces import with_own_mounts

EMBEDDED = str(Path(bitfusion_pool.__file__).with_name("bin") / "bitfusion")
CURE = (
    "What to do: make room there and run the cell again, or start Jupyter with XDG_RUNTIME_DIR set to a "
    "folder of yours that has room."
)


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A folder for XDG_RUNTIME_DIR, of a short path."""
    folder = tempfile.mkdtemp(dir=Path(os.environ["XDG_RUNTIME_DIR"]).parent)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(runtime: Path, proxy: StartProxy) -> StartProxy:
    def start(run: str = GRANT, **options: str) -> ProxyHarness:
        return proxy(run, **{"XDG_RUNTIME_DIR": str(runtime), **options})

    return start


def python_after(tmp_path: Path, mounts: str) -> str:
    """A Python for which these shell commands have mounted something."""
    command = with_own_mounts(["sh", "-ec", f'{mounts}\nexec "$@"', "sh", sys.executable])
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    python.chmod(0o755)
    return str(python)


def fill(filler: Path) -> None:
    """Take all the room that there is."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def works(harness: ProxyHarness) -> bool:
    return harness.printed(harness.cell("print(6 * 7)")) == "42\n"


def tmp_folders(harness: ProxyHarness) -> set[Path]:
    """The folders in /tmp in which this proxy listens."""
    mine = set()
    for fd in Path(f"/proc/{harness.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            mine.add(os.readlink(fd))
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    paths = [Path(line[7]) for line in sockets if len(line) == 8 and f"socket:[{line[6]}]" in mine]
    return {path.parent for path in paths if str(path).startswith(f"/tmp/{PREFIX}")}


def test_a_folder_that_was_cleaned_is_made_again(start: StartProxy, runtime: Path) -> None:
    harness = start()
    (folder,) = runtime.iterdir()
    shutil.rmtree(folder)
    assert works(harness)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "running on its GPU" in harness.printed(harness.cell("x = 1\n%bitfusion status"))
    harness.close()
    assert list(runtime.iterdir()) == []


def test_what_others_made_in_its_place_is_not_used(start: StartProxy, runtime: Path) -> None:
    harness = start()
    (folder,) = runtime.iterdir()
    shutil.rmtree(folder)
    elsewhere = runtime / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    assert works(harness)
    assert list(elsewhere.iterdir()) == []


def test_without_the_runtime_folder_itself_another_place_serves(start: StartProxy, runtime: Path) -> None:
    """As after a logout, which removes /run/user/UID."""
    harness = start()
    assert not tmp_folders(harness)
    shutil.rmtree(runtime)
    assert works(harness)
    (folder,) = tmp_folders(harness)
    harness.close()
    assert not folder.exists()


def test_a_folder_that_is_cleaned_while_a_cell_waits(
    start: StartProxy, runtime: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    harness = start(f"while not os.path.exists({str(go)!r}): time.sleep(0.02)\n{GRANT}")
    cell = harness.cell("1")
    harness.shown(cell)
    (folder,) = runtime.iterdir()
    shutil.rmtree(folder)
    go.touch()
    reply = harness.reply(cell)
    assert reply["ename"] == "ClientFailed"
    assert (
        f"cannot reach {folder}/launcher-1: No such file or directory; somebody has cleaned that folder, and "
        "the next cell makes it again"
    ) in reply["traceback"][2]
    assert works(harness)


def test_a_full_folder_is_named_in_the_cell_and_serves_when_there_is_room(
    start: StartProxy, runtime: Path, tmp_path: Path
) -> None:
    harness = start(python=python_after(tmp_path, f"mount -t tmpfs -o size=64k none {runtime}"))
    inside = Path(f"/proc/{harness.process.pid}/root{runtime}")
    (folder,) = inside.iterdir()
    filler = inside / "filler"
    fill(filler)
    reply = harness.reply(harness.cell("1"))
    assert reply["traceback"][1:] == [
        "Asked for: 1 GPU",
        f"Answer: {runtime}/{folder.name}: No space left on device",
        CURE,
    ]
    assert (reply["ename"], reply["evalue"]) == (
        "FolderUnusable",
        "The folder for this kernel's sockets cannot be used.",
    )
    filler.unlink()
    assert works(harness)


def test_a_proxy_without_any_folder_answers_and_says_so_in_the_first_cell(
    start: StartProxy, runtime: Path, tmp_path: Path
) -> None:
    place = Path(os.environ["XDG_RUNTIME_DIR"]).parent
    later = runtime / "later"
    read_only = (
        "mount --make-rprivate /; mount --bind /tmp /tmp; "
        f"mount --bind {place} {place}; mount -o remount,bind,ro /tmp"
    )
    harness = start(python=python_after(tmp_path, read_only), XDG_RUNTIME_DIR=str(later))
    assert harness.reply(harness.send("kernel_info_request"))["status"] == "ok"
    assert not Path(f"/proc/{harness.process.pid}/cwd/proxy").exists()  # nothing of ours is left at a user's
    reply = harness.reply(harness.cell("1"))
    assert reply["ename"] == "FolderUnusable"
    assert reply["traceback"][2:] == [
        f"Answer: {later}: No such file or directory; /tmp: Read-only file system",
        CURE,
    ]
    later.mkdir()
    assert works(harness)
    assert "running on its GPU" in harness.printed(harness.cell("x = 1\n%bitfusion status"))


def test_a_runtime_folder_whose_name_is_no_text_is_passed_over(start: StartProxy, runtime: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(runtime) + b"/\xff"))
    odd.mkdir()
    harness = start(XDG_RUNTIME_DIR=str(odd))
    assert works(harness)
    assert list(odd.iterdir()) == []


def test_without_room_for_the_embedded_clients_temporary_file_the_cell_fails_and_the_next_can_run(
    start: StartProxy, runtime: Path, tmp_path: Path
) -> None:
    temporary = runtime / "tmp"
    temporary.mkdir()
    mount = f"mount -t tmpfs -o size=64k none {temporary}"
    harness = start(python=python_after(tmp_path, mount), TMPDIR=str(temporary), BITFUSION_CLIENT=EMBEDDED)
    inside = Path(f"/proc/{harness.process.pid}/root{temporary}")
    fill(inside / "filler")
    reply = harness.reply(harness.cell("1"))
    assert reply["ename"] == "PoolUnreadable"
    assert f"cannot write an allocation file in {temporary}: " in str(reply["traceback"])
    (inside / "filler").unlink()
    assert works(harness)


def test_a_folder_for_temporary_files_that_is_gone_is_done_without(start: StartProxy, runtime: Path) -> None:
    assert works(start(TMPDIR=str(runtime / "cleaned"), BITFUSION_CLIENT=EMBEDDED))
