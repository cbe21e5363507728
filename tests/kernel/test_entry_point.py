"""The file that an installed kernelspec starts, on Python installations of different kinds."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.kernel.proxy_harness import ENTRY, GRANT, StartProxy
from tests.support.machine import scaled

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SYSTEM_PYTHON = str(Path(sys.base_prefix, "bin", VERSION))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose user site has all that a kernel imports, where the system's Python has nothing of it."""
    done = subprocess.run([SYSTEM_PYTHON, "-I", "-c", "import zmq"], capture_output=True, check=False)
    assert done.returncode != 0, f"{SYSTEM_PYTHON} has pyzmq: there is nothing to test"
    site = tmp_path / "home" / ".local" / "lib" / VERSION / "site-packages"
    site.parent.mkdir(parents=True)
    site.symlink_to(sysconfig.get_path("purelib"))
    return tmp_path / "home"


def test_packages_in_the_users_site_are_found(home: Path, proxy: StartProxy) -> None:
    """As after `pip install --user pyzmq` for a system-wide kubeflow-bitfusion."""
    harness = proxy(GRANT, python=SYSTEM_PYTHON, HOME=str(home))
    assert harness.printed(harness.cell("print(6 * 7)")) == "42\n"


def folders_searched(home: Path, python: str = SYSTEM_PYTHON, **environment: str) -> list[str]:
    """`sys.path` of the proxy."""
    code = (
        f"import runpy, sys; sys.argv = ['x']; entry = runpy.run_path({str(ENTRY)!r}, run_name='entry'); "
        "entry['_complete_path'](); print(*sys.path, sep='\\n')"
    )
    done = subprocess.run(
        [python, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        timeout=scaled(20),
        check=True,
        env=os.environ | {"HOME": str(home)} | environment,
    )
    return done.stdout.splitlines()


def test_packages_that_pythonpath_names_are_found(proxy: StartProxy, tmp_path: Path) -> None:
    """As module systems, Nix and `pip --target` provide them."""
    packages = sysconfig.get_path("purelib")
    harness = proxy(GRANT, python=SYSTEM_PYTHON, HOME=str(tmp_path), PYTHONPATH=f":/no/such:{packages}")
    assert harness.printed(harness.cell("print(6 * 7)")) == "42\n"


def test_the_folders_of_pythonpath_come_last(home: Path, tmp_path: Path) -> None:
    searched = folders_searched(home, PYTHONPATH=f"{tmp_path}::relative")
    assert searched[-2:] == [str(tmp_path), os.path.abspath("relative")]
    assert "" not in searched
    assert folders_searched(home, PYTHONPATH=searched[-3])[-1] == searched[-3], "each once"


def test_the_users_site_comes_last(home: Path) -> None:
    user_site = str(home / ".local" / "lib" / VERSION / "site-packages")
    searched = folders_searched(home)
    systems = str(Path(sys.base_prefix, "lib", VERSION, "site-packages"))
    assert searched.index(systems) < searched.index(user_site)


def test_it_is_not_searched_where_python_would_not_or_need_not(home: Path, tmp_path: Path) -> None:
    user_site = str(home / ".local" / "lib" / VERSION / "site-packages")
    assert user_site not in folders_searched(home, PYTHONNOUSERSITE="1")
    assert user_site not in folders_searched(home, sys.executable)
    for closed, system_site in (("closed", "false"), ("open", "true")):
        venv = tmp_path / closed
        (venv / "bin").mkdir(parents=True)
        (venv / "bin" / "python").symlink_to(SYSTEM_PYTHON)
        (venv / "pyvenv.cfg").write_text(
            f"home = {Path(SYSTEM_PYTHON).parent}\ninclude-system-site-packages = {system_site}\n"
        )
        searched = folders_searched(home, str(venv / "bin" / "python"))
        assert (user_site in searched) is (system_site == "true")
