"""Whether an account can read a file: as Linux itself says, over modes, owners, links and folders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_client.errors import ClientFailed
from bitfusion_pool.service import account_access
from bitfusion_pool.service.account_access import check_account, first_problem
from tests.support.machine import scaled

ACCOUNT = "nobody"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of another account")


@pytest.fixture
def tree(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python, which is a link out of its environment, and a module beside it; everybody can read them."""
    monkeypatch.setattr(account_access, "PRIVATE", ())  # these lie in /tmp
    for folder in ("venv/bin", "venv/lib", "python/bin"):
        (base / folder).mkdir(parents=True)
    (base / "python/bin/python3").write_text("")
    (base / "venv/lib/module.py").write_text("")
    (base / "venv/bin/python").symlink_to("../../python/bin/python3")
    for path in base.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return base


def can_read(path: Path) -> bool:
    """What Linux says: the account reads the file, and lists its folder, as Python does."""
    become = ["setpriv", "--reuid", ACCOUNT, "--regid", "nogroup", "--init-groups"]
    commands = (["cat", str(path)], ["ls", str(Path(os.path.realpath(path)).parent)])
    return all(
        subprocess.run([*become, *command], capture_output=True, timeout=scaled(10)).returncode == 0
        for command in commands
    )


CLOSED: tuple[tuple[str, Callable[[Path], object], str], ...] = (
    ("nothing", lambda t: None, ""),
    ("a file", lambda t: (t / "venv/lib/module.py").chmod(0o640), "venv/lib/module.py"),
    ("its folder", lambda t: (t / "venv/lib").chmod(0o700), "venv/lib"),
    ("its folder cannot be listed", lambda t: (t / "venv/lib").chmod(0o711), "venv/lib"),
    ("a folder on the way", lambda t: (t / "venv").chmod(0o750), "venv"),
    ("a folder on the way is passed through only", lambda t: (t / "venv").chmod(0o711), ""),
    ("what a link leads to", lambda t: (t / "python").chmod(0o700), "python"),
    ("the account's own file", lambda t: own(t / "venv/lib/module.py", 0o044), "venv/lib/module.py"),
    ("its own closed to others", lambda t: own(t / "venv/lib/module.py", 0o400), ""),
    ("a folder of its group", lambda t: own(t / "venv/lib", 0o050, uid=0), ""),
    ("a folder closed to its group", lambda t: own(t / "venv/lib", 0o705, uid=0), "venv/lib"),
)


def own(path: Path, mode: int, uid: int = 65534) -> None:
    os.chown(path, uid, 65534)
    path.chmod(mode)


@pytest.mark.parametrize(("close", "path"), [row[1:] for row in CLOSED], ids=[row[0] for row in CLOSED])
def test_it_finds_what_linux_refuses_and_names_the_path(
    tree: Path, close: Callable[[Path], object], path: str
) -> None:
    close(tree)
    files = [tree / "venv/bin/python", tree / "venv/lib/module.py"]
    problem = first_problem(ACCOUNT, map(str, files))
    assert all(map(can_read, files)) == (problem is None)
    assert (problem[0] if problem else "") == (str(tree / path) if path else "")


def test_it_says_which_path_is_closed_and_on_the_way_to_what(tree: Path) -> None:
    (tree / "python").chmod(0o700)
    file = str(tree / "venv/bin/python")
    can = f"it cannot enter {tree}/python (mode 0700, owner root), on the way to {file}"
    assert first_problem(ACCOUNT, [file]) == (f"{tree}/python", can)
    (tree / "venv/lib/module.py").chmod(0o600)
    file = str(tree / "venv/lib/module.py")
    assert first_problem(ACCOUNT, [file]) == (file, f"it cannot read {file} (mode 0600, owner root)")


def test_an_account_to_come_is_one_without_groups(tree: Path) -> None:
    (tree / "venv/lib").chmod(0o750)
    problem = first_problem("to-come", [str(tree / "venv/lib/module.py")])
    assert problem is not None
    assert problem[0] == str(tree / "venv/lib")


def test_a_file_below_tmp_is_none_of_the_services(base: Path) -> None:
    file = base / "python"
    file.touch()
    why = f"the unit gives it a folder of its own in place of the one with {base}"
    assert first_problem(ACCOUNT, [str(file)]) == (str(base), why)


def test_links_in_a_circle_and_files_that_are_gone_are_no_problem(tree: Path) -> None:
    (tree / "circle").symlink_to("circle")
    assert first_problem(ACCOUNT, [f"{tree}/circle", f"{tree}/none/module.py"]) is None


@pytest.mark.parametrize(
    ("executable", "prefix", "cure"),
    [
        ("venv/bin/python", "venv", "chmod -R a+rX {}/venv"),
        ("python/bin/python3", "venv", account_access._ELSEWHERE),
    ],
)
def test_what_to_do_depends_on_whose_files_are_closed(
    tree: Path, monkeypatch: pytest.MonkeyPatch, executable: str, prefix: str, cure: str
) -> None:
    (tree / executable).parent.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tree / executable))
    monkeypatch.setattr(sys, "prefix", str(tree / prefix))
    with pytest.raises(ClientFailed) as caught:
        check_account(ACCOUNT)
    assert str(caught.value).startswith(f"the service cannot run as {ACCOUNT} with this Python: it cannot ")
    assert caught.value.next_step == cure.format(tree)
