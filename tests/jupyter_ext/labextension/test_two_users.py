"""Two users of a machine with one GPU, each in their own JupyterLab: from the size to the next one's turn.

Then the package goes, and leaves nothing. On a machine of their own (`OwnMachine`), installed as
docs/tutorials/workstation.md says; the browser is outside of it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.jupyter.browser.chromium import screenshots
from tests.jupyter.browser.notebook_page import NotebookPage
from tests.jupyter.browser.quiet_page import write_quiet_settings
from tests.jupyter_ext.labextension.conftest import KEEP_TOASTS, expect_toast
from tests.pool.service.own_machine import NEEDS, OwnMachine
from tests.pool.service.test_workstation_guide import KERNEL, NOTHING_YET, install, notebook
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = [
    *NEEDS,
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(600),
]

ENVIRONMENT = "/opt/notebooks"
WAITS = re.compile(r"Waiting for ½ GPU · queue 1 of 1 · \d+:\d\d")
ONE_GPU = """\
[[servers]]
name = "local"
address = "127.0.0.1"
port = 56001
[[servers.devices]]
name = "Simulated Tesla V100"
memory_mib = 16160
count = 1
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[OwnMachine]:
    base = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))
    base.chmod(0o755)
    made = OwnMachine(base)
    try:
        install(made)
        (base / "var/lib/bitfusion-pool/pool.toml").write_text(ONE_GPU)
        made.root(NOTHING_YET, limit_s=300)
        made.root(KERNEL, limit_s=300)
        yield made
    finally:
        made.end()
        shutil.rmtree(base)


class Person:
    """A user of the machine before a notebook in their own JupyterLab."""

    def __init__(self, machine: OwnMachine, browser: Browser, name: str, title: str, variables: str) -> None:
        machine.add_user(name)
        home = machine.base / "home" / name
        write_quiet_settings(home / ".jupyter/lab/user-settings")
        (home / title).write_text(notebook([""]))
        machine.root(f"chown -R {name}:{name} /home/{name}")
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        options = f"--no-browser --ip=127.0.0.1 --port={port} --ServerApp.port_retries=0"
        command = f"{ENVIRONMENT}/bin/jupyter lab {options} --IdentityProvider.token= > lab.log 2>&1"
        self._machine, self._name = machine, name
        self._server = machine.start(name, f"exec env {variables} {command}")
        wait_until(self._answers, lambda: (home / "lab.log").read_text(), 60, errors=(OSError,))
        self.page = browser.new_context(viewport={"width": 1280, "height": 760}).new_page()
        self.page.add_init_script(KEEP_TOASTS)
        self.page.set_default_timeout(scaled(20_000))
        self.page.goto(f"{self.address}/lab/tree/{title}")
        self.notebook = NotebookPage(self.page)
        self.cell = self.notebook.cell
        self.output = self.notebook.output
        self.chip = self.page.locator(".bf-mod-toolbar .bf-Chip")
        self.box = self.page.locator(".bf-Wait").first
        expect(self.chip).to_be_visible(timeout=scaled(60_000))
        self.notebook.wait_until_idle()

    def leave(self) -> None:
        self.page.context.close()
        self._machine.root(f"pkill -u {self._name} jupyter-lab")
        self._server.communicate(timeout=scaled(20))

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self.address}/api/status", timeout=5) as reply:
            return bool(reply.status == 200)

    def entry(self, text: str) -> Locator:
        """An entry of the chip's menu, which is open."""
        return self.page.locator(".bf-Menu .lm-Menu-item").filter(has_text=text).first

    def choose(self, text: str) -> None:
        self.chip.click()
        self.entry(text).click()

    def told(self, text: str) -> Locator:
        """A notification that stays until it is answered; for others see `expect_toast`."""
        return self.page.locator(".Toastify__toast").filter(has_text=text).first

    def says(self, text: str) -> Locator:
        """The chip, once it says this."""
        return self.chip.filter(has_text=text)


@pytest.fixture
def people(machine: OwnMachine, browser: Browser) -> Iterator[tuple[Person, Person]]:
    """Bob, and ada, whose idle GPU goes back after a minute."""
    expect.set_options(timeout=scaled(20_000))
    with ExitStack() as stack:

        def person(name: str, title: str, variables: str = "") -> Person:
            made = Person(machine, browser, name, title, variables)
            stack.callback(made.leave)
            return made

        yield person("bob", "digits.ipynb"), person("ada", "train.ipynb", "BITFUSION_IDLE_RELEASE=1m")


@pytest.fixture
def picture() -> Callable[[Person, str], object]:
    """SCREENSHOTS names a folder that keeps them."""
    folder = screenshots()

    def take(person: Person, name: str) -> None:
        if folder is not None:
            person.page.screenshot(path=folder / f"{name}.png")

    return take


@pytest.mark.apart
def test_one_gpu_goes_from_one_to_the_other_and_back(
    people: tuple[Person, Person], picture: Callable[[Person, str], object]
) -> None:
    bob, ada = people
    bob.choose("1 GPU")
    bob.notebook.run(0, "x = 41")
    expect(bob.chip).to_contain_text("1 GPU · idle")

    # ada chooses a size, and waits with her place shown
    ada.choose("½ GPU")
    expect_toast(ada.page, "asks for 1 GPU × 50 %")
    ada.notebook.run(0, "print('my turn')")
    expect(ada.box).to_contain_text(WAITS)
    expect(ada.box).to_contain_text("Held by: bob: digits.ipynb (1 GPU")
    expect(ada.chip).to_contain_text(re.compile(r"queue 1 of 1 · \d+:\d\d"))
    picture(ada, "1 ada waits")
    expect(bob.told("for which others are waiting: ada: train.ipynb (1 GPU × 50 %")).to_be_visible()
    expect(bob.chip).to_contain_text("1 waits")
    picture(bob, "2 bob is told")

    ada.notebook.save()
    ada.page.on("dialog", lambda dialog: dialog.accept())
    ada.page.reload()
    expect(ada.box).to_contain_text(WAITS, timeout=scaled(60_000))
    seen = ada.box.text_content() or ""
    expect(ada.box, "it goes on").not_to_have_text(seen)
    picture(ada, "3 ada has reloaded")

    ada.box.get_by_role("button", name="Cancel the Wait").click()
    expect(ada.chip).to_contain_text("no GPU")
    expect(ada.box).to_contain_text("This wait is over.")
    picture(ada, "4 ada has cancelled")

    # she queues again; bob gives back, and she computes
    ada.notebook.run_again(0)
    expect(ada.box, "of shorter waits no notification tells").to_contain_text(
        re.compile(r"Waiting for ½ GPU · queue 1 of 1 · (?!0:0[0-2])\d+:\d\d")
    )
    bob.choose("Release")
    expect(bob.says("no GPU")).to_be_visible()
    expect_toast(ada.page, "train.ipynb now has 1 GPU × 50 %")
    expect(ada.output(0)).to_have_text("my turn\n")
    expect(ada.chip).to_contain_text("½ GPU · idle")
    picture(ada, "5 ada computes")

    ada.choose("¼ GPU")
    expect(ada.says("¼ GPU · idle")).to_be_visible()
    warned = ada.told("train.ipynb releases 1 GPU × 25 % in")
    warned.get_by_role("button", name="Keep").click()
    expect_toast(ada.page, "This kernel keeps its GPU until")
    picture(ada, "6 ada has another size and keeps it")

    # bob waits for her, and starts when she gives back
    bob.notebook.run(1, "print('x' in globals())")
    expect(bob.box).to_contain_text("Held by: ada: train.ipynb (1 GPU × 25 %")
    picture(bob, "7 bob waits")
    ada.choose("Release")
    expect(ada.says("no GPU")).to_be_visible()
    expect(bob.output(1).last).to_have_text("False\n")
    expect(bob.chip).to_contain_text("1 GPU · idle")
    picture(bob, "8 bob computes")


def test_what_pip_has_installed_is_there_without_node_and_goes_with_it(machine: OwnMachine) -> None:
    alone = f"env PATH={ENVIRONMENT}/bin {ENVIRONMENT}/bin/jupyter"  # no node, no npm
    lists = f"{alone} labextension list 2>&1; {alone} server extension list 2>&1"
    assert not {"node", "npm"} & set(machine.root(f"ls {ENVIRONMENT}/bin").split())
    told = machine.root(lists)
    assert "kubeflow-bitfusion v0.1.0 enabled OK" in _plain(told), told
    assert "jupyter_ext.server 0.1.0 OK" in _plain(told), told

    machine.root(f"{ENVIRONMENT}/bin/jupyter kernelspec remove -y bitfusion")  # which no pip has made
    machine.root(f"{ENVIRONMENT}/bin/pip uninstall -y kubeflow-bitfusion")
    assert machine.root(f"find {ENVIRONMENT} -iname '*bitfusion*' -o -name 'jupyter_ext*'") == ""
    told = machine.root(lists)
    assert "bitfusion" not in told
    assert "jupyter_ext" not in told
    assert "OK" in told


def _plain(text: str) -> str:
    """Without colours, each blank once."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
