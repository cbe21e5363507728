"""docs/tutorials/workstation.md, from zero to two users: its commands, run by root and by two users.

On a machine of their own, where systemd is played; `pip` installs what the guide names. Needs root.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.guide import matches
from tests.pool.service.own_machine import NEEDS, ROOT, OwnMachine
from tests.support.documents import shell_blocks
from tests.support.machine import scaled
from tests.support.run_blocks import ran
from tests.support.waiting import wait_until

PAGE = "docs/tutorials/workstation.md"
SECTION = (ROOT / PAGE).read_text(encoding="utf-8")
HUB = "docs/how-to/jupyterhub-on-one-machine.md"
HEADINGS = re.findall(r"(?m)^## (\d\. .*)$", SECTION)
INSTALL, START, HOLD, WAIT, LOOK, KERNEL, UPDATE, REMOVE = re.findall(r"(?ms)^```sh\n(.*?)^```", SECTION)
LOGGED, WAITED = re.findall(r"(?ms)^```text\n(.*?)^```", SECTION)
NOTHING_YET = " && ".join(re.findall(r"`(/\S+[^`]*venv /opt/notebooks|/\S+ install jupyterlab)`", SECTION))
NOBODY = "Nobody holds a GPU."

pytestmark = [*NEEDS, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def machine(base: Path) -> Iterator[OwnMachine]:
    made = OwnMachine(base)
    for name in ("ada", "bob"):
        made.add_user(name)
    yield made
    made.end()


def install(machine: OwnMachine) -> None:
    machine.root(INSTALL, limit_s=120)
    assert matches(LOGGED, machine.root(START))


@pytest.mark.timeout(240)
@pytest.mark.runs(*(f"{PAGE}#{each}" for each in HEADINGS[:3]))
def test_from_zero_to_two_users(machine: OwnMachine) -> None:
    install(machine)
    ada = machine.start("ada", HOLD)
    wait_until(lambda: "ada" in machine.user("ada", LOOK))
    bob = machine.start("bob", WAIT)
    wait_until(lambda: "bob" in machine.user("ada", LOOK))
    table = machine.user("bob", LOOK)
    assert re.search(r"│ ada +│ sleep 60 +│ 2 GPUs", table), table
    machine.user("ada", "pkill -x -u ada sleep")
    ada.communicate(timeout=scaled(20))
    printed, _ = bob.communicate(timeout=scaled(20))
    assert matches(WAITED, printed), printed
    assert "SIMULATED" in printed

    # What an account cannot read is told before anything is started with it, and what is advised cures it.
    machine.root("chmod 0700 /opt/bitfusion-pool/lib")
    told = machine.root("! bitfusion-pool serve --print-unit")
    assert (
        "cannot run as bitfusion-pool with this Python: it cannot enter /opt/bitfusion-pool/lib (mode 0700"
        in told
    )
    machine.root(told.partition("What to do: ")[2])
    assert machine.root("bitfusion-pool serve --print-unit").startswith("# Written by")


@pytest.mark.timeout(240)
@pytest.mark.runs(f"{PAGE}#Update")
def test_an_update_leaves_users_their_gpus(machine: OwnMachine) -> None:
    install(machine)
    ada = machine.start("ada", HOLD.replace("sleep 60", "sleep 600"))  # longer than any update
    wait_until(lambda: holders(machine) == ["ada"])
    before = machine.root("cat /var/log/bitfusion-pool.pid")
    machine.root(UPDATE, limit_s=120)
    assert matches(LOGGED, machine.root(START.splitlines()[-1]))
    wait_until(lambda: holders(machine) == ["ada"])
    assert machine.root("cat /var/log/bitfusion-pool.pid") != before
    assert ada.poll() is None
    machine.user("ada", "pkill -x -u ada sleep")
    ada.communicate(timeout=scaled(20))
    wait_until(lambda: NOBODY in machine.user("bob", LOOK))


@pytest.mark.apart
@pytest.mark.timeout(600)
@pytest.mark.runs(f"{PAGE}#{HEADINGS[3]}", f"{PAGE}#Remove", HUB)
def test_every_user_has_the_kernel_and_all_share_the_pool(machine: OwnMachine) -> None:
    install(machine)
    machine.root(NOTHING_YET, limit_s=300)
    machine.root(KERNEL, limit_s=300)
    (of_a_hub,) = shell_blocks((ROOT / HUB).read_text(encoding="utf-8"))
    assert of_a_hub.replace("/opt/tljh/user", "/opt/notebooks") == KERNEL
    ran(of_a_hub)
    both_hold = "/var/tmp/both_hold"  # neither ends before the other holds its GPU
    cells = ["%bitfusion", WAIT_FOR_FILE.format(both_hold), "print(6 * 7)"]
    running = []
    for name in ("ada", "bob"):
        (machine.base / "home" / name / "in.ipynb").write_text(notebook(cells))
        assert "bitfusion" in machine.user(name, "/opt/notebooks/bin/jupyter kernelspec list")
        command = "/opt/notebooks/bin/jupyter execute --inplace --kernel_name=bitfusion in.ipynb"
        machine.root(f"chown {name} /home/{name}/in.ipynb")
        running.append(machine.start(name, command))
    wait_until(lambda: holders(machine) == ["ada", "bob"], limit_s=120)
    machine.root(f"touch {both_hold}")
    for process in running:
        printed, _ = process.communicate(timeout=scaled(120))
        assert process.returncode == 0, printed
    for name in ("ada", "bob"):
        saved = (machine.base / "home" / name / "in.ipynb").read_text()
        assert "42" in saved
    assert NOBODY in machine.user("ada", LOOK)
    machine.root(REMOVE)
    kernels = machine.user("ada", "/opt/notebooks/bin/jupyter kernelspec list")
    assert "python3" in kernels
    assert "bitfusion" not in kernels
    left = "find /opt -maxdepth 1 -name 'bitfusion*'; find {} -name '*bitfusion*'"
    assert machine.root(left.format("/etc /opt/notebooks /var/lib /run /usr/local")) == ""
    assert "bitfusion" not in machine.root("cat /etc/passwd /etc/group")


def holders(machine: OwnMachine) -> list[str]:
    """Who holds GPUs; those who wait are not among them."""
    status = json.loads(machine.user("bob", f"{LOOK.strip()} --json"))
    return sorted(lease["user"] for lease in status["leases"])


WAIT_FOR_FILE = """\
import pathlib, time
while not pathlib.Path("{}").exists():
    time.sleep(0.1)
"""


def notebook(cells: list[str]) -> str:
    """A notebook of these cells."""
    made: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "id": f"c{at}",
            "metadata": {},
            "source": text,
            "outputs": [],
            "execution_count": None,
        }
        for at, text in enumerate(cells)
    ]
    kernel = {"name": "bitfusion", "display_name": "Bitfusion", "language": "python"}
    return json.dumps({"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})
