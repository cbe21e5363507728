"""The `bitfusion` that pip installs: which command it starts, what it says, and that it always ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_client.command.find_client import INSTALLED_MARK
from tests.support.machine import scaled

SYSTEM = "/usr/bin:/bin"
SCRIPT = f"""#!{sys.executable}
import sys
from bitfusion_pool.client.installed_command import main
if __name__ == "__main__":
    sys.exit(main())
"""
REAL = """#!/bin/sh
echo "real $*"
"""
RUNS_ITS_PROGRAM = """#!/bin/sh
echo "real $*"
shift; "$@"
"""
STAND_IN = "embedded pool, stand-in"
LIMIT_S = 30.0


def made(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Machine:
    """Environments with the stand-in, other clients, and a PATH of some of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.installed = made(root / "venv/bin/bitfusion", SCRIPT)
        self.folders = [self.installed.parent]

    def add(self, folder: str, text: str) -> Path:
        """A command behind those that are there."""
        path = made(self.root / folder / "bitfusion", text)
        self.folders.append(path.parent)
        return path

    def run(self, *words: str, path: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        shown = path or ":".join(map(str, self.folders))
        environ = {
            **{
                "PATH": f"{shown}:{SYSTEM}",
                "HOME": str(self.root),
                "BITFUSION_POOL_DIR": f"{self.root}/pool",
            },
            **env,
        }
        return subprocess.run(
            [str(self.installed), *words],
            env=environ,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=scaled(LIMIT_S),
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def told(client: Path) -> str:
    return f"bitfusion: this is kubeflow-bitfusion's stand-in; it starts the client {client}\n"


def test_alone_it_is_the_stand_in(machine: Machine) -> None:
    done = machine.run("version")
    assert STAND_IN in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_its_status_and_its_words_are_those_of_the_stand_in(machine: Machine) -> None:
    done = machine.run("run", "-n", "1", "-p", "0.5", "--", "sh", "-c", "echo ran; exit 7")
    assert (done.returncode, done.stdout) == (7, "ran\n")
    done = machine.run("run", "-p", "0.5")
    assert done.stderr == "Error: the number of GPUs is missing: -n\n"


def test_a_client_on_path_wins_and_is_told(machine: Machine) -> None:
    real = machine.add("usr", REAL)
    done = machine.run("run", "-n", "1", "--", "two words", "")
    assert (done.stdout, done.stderr) == ("real run -n 1 -- two words \n", told(real))


def test_other_stand_ins_on_path_are_passed_over(machine: Machine) -> None:
    machine.add("venv2/bin", SCRIPT)
    (machine.root / "home").mkdir()
    (machine.root / "home/bitfusion").symlink_to(machine.installed)
    machine.folders.insert(0, machine.root / "home")
    done = machine.run("version")
    assert STAND_IN in done.stdout
    assert done.stderr == ""
    real = machine.add("usr", REAL)
    assert machine.run("version").stderr == told(real)


def test_relative_and_empty_entries_of_path_are_not_looked_at(machine: Machine) -> None:
    made(machine.root / "bitfusion", REAL)
    made(machine.root / "here/bitfusion", REAL)
    assert STAND_IN in machine.run("version", path=f"::.:here:./here:{machine.installed.parent}").stdout


@pytest.mark.parametrize("exec_", ["exec ", ""], ids=["exec", "child"])
@pytest.mark.parametrize("real_behind", [False, True])
def test_a_script_that_starts_this_command_again_is_no_client(
    machine: Machine, exec_: str, real_behind: bool
) -> None:
    machine.add("wrapper", f'#!/bin/sh\n{exec_}"{machine.installed}" "$@"\n')
    machine.add("second wrapper", f'#!/bin/sh\n{exec_}"{machine.installed}" "$@"\n')
    if real_behind:
        machine.add("usr", REAL)
    done = machine.run("version")
    assert done.stdout.startswith("real version" if real_behind else "bitfusion version"), done
    assert len(done.stderr.splitlines()) == 2 + real_behind


def test_a_script_that_starts_this_command_with_more_words_ends_in_an_error(machine: Machine) -> None:
    wrapper = machine.add("wrapper", f'#!/bin/sh\n"{machine.installed}" --more "$@"\n')
    done = machine.run("version")
    assert done.returncode == 1
    assert f"{wrapper} has started this command 16 times, so it is no client" in done.stderr
    assert "BITFUSION_CLIENT" in done.stderr


@pytest.mark.parametrize("start", ["bitfusion", "exec bitfusion"])
def test_a_program_under_a_client_finds_that_client_again(machine: Machine, start: str) -> None:
    machine.add("usr", RUNS_ITS_PROGRAM)
    inner = made(machine.root / "program", f"#!/bin/sh\n{start} run {machine.root}/program2\n")
    made(machine.root / "program2", "#!/bin/sh\nbitfusion run echo ran\n")
    done = machine.run("run", str(inner))
    words = [line.split("/")[0].strip() for line in done.stdout.splitlines()]
    assert words == ["real run", "real run", "real run echo ran", "ran"]


def test_a_shell_under_a_client_may_say_the_same_again(machine: Machine) -> None:
    machine.add("usr", RUNS_ITS_PROGRAM)
    again = made(machine.root / "again", '#!/bin/sh\n[ "$AGAIN" ] || { AGAIN=1 bitfusion run "$0"; true; }\n')
    done = machine.run("run", str(again))
    assert done.stdout == f"real run {again}\n" * 2


@pytest.mark.parametrize("named", ["path", "stand-in", "nothing"])
def test_the_setting_names_the_client(machine: Machine, named: str) -> None:
    machine.add("usr", REAL)
    mine = made(machine.root / "mine", "#!/bin/sh\necho mine\n")
    given = {"path": mine, "stand-in": machine.installed, "nothing": machine.root / "no"}[named]
    done = machine.run("version", BITFUSION_CLIENT=str(given))
    if named == "path":
        assert (done.stdout, done.stderr) == ("mine\n", "")
    elif named == "stand-in":
        assert STAND_IN in done.stdout
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "The configured `bitfusion` command cannot be run." in done.stderr


def test_a_client_for_another_machine_is_told(machine: Machine) -> None:
    other = machine.add("usr", "no program")
    done = machine.run("version")
    assert done.returncode == 1
    assert f"{other} cannot be started: Exec format error" in done.stderr


def test_what_this_environment_installed_has_the_mark() -> None:
    script = Path(sys.prefix) / "bin" / "bitfusion"
    assert INSTALLED_MARK in script.read_bytes()
    assert os.access(script, os.X_OK)
    assert (Path(sys.prefix) / "bin" / "bitfusion-pool").exists()
