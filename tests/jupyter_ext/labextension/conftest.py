"""JupyterLab with our part of it, before a server whose answers a test chooses."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.jupyter.browser.chromium import chromium_path, running_chromium
from tests.jupyter.browser.quiet_page import write_quiet_settings
from tests.jupyter.jupyter_server import ServerProcess
from tests.jupyter_ext.labextension.front_ends import NEWEST_LAB, FrontEnd
from tests.support.machine import scaled
from tests.support.waiting import wait_until
from tools.labextension import BUNDLE

KERNEL = {
    "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "Bitfusion",
    "language": "python",
    "metadata": {"bitfusion": {"request": {"gpus": 1}}},
}


class Lab:
    """A JupyterLab, and what its stand-in for the server extension tells."""

    def __init__(self, front: FrontEnd, server: ServerProcess, folder: Path) -> None:
        self.front = front
        self.settings = folder.with_name("settings")
        self.server = server
        self.folder = folder

    def tell(self, **what: Any) -> dict[str, Any]:
        """Set what is told (`pool`, `kernels`, `events`); what pages have asked for."""
        told: dict[str, Any] = self.server.ask("POST", "/stand-in", what)
        return told

    def asked(self) -> list[Any]:
        """The verbs that pages have asked for, each with its body."""
        return list(self.tell()["asked"])

    def address(self, path: str) -> str:
        """Of a notebook."""
        return self.server.address + self.front.open(path)

    def kernel(self) -> str:
        """The id of the only kernel."""
        (kernel,) = self.tell()["kernels"]
        return str(kernel["id"])

    def write(self, name: str, kernel: str, metadata: dict[str, Any], outputs: Sequence[Any] = ()) -> None:
        """A notebook of one cell."""
        spec = {"name": kernel, "display_name": kernel}
        cells = [nbformat.v4.new_code_cell("6 * 7", outputs=list(outputs))]
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec, **metadata})
        nbformat.write(notebook, self.folder / name)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_chromium(chromium_path(), tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def front(request: pytest.FixtureRequest) -> FrontEnd:
    """The one that `in_front_ends` chooses; else the newest."""
    front_end: FrontEnd = getattr(request, "param", NEWEST_LAB)
    return front_end


@pytest.fixture(scope="module")
def running_lab(front: FrontEnd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    python = front.python()
    folder = tmp_path_factory.mktemp("lab")
    write_quiet_settings(folder / "settings")
    spec = folder / "data" / "kernels" / "bitfusion" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps(KERNEL))
    shutil.copytree(BUNDLE, folder / "data" / "labextensions" / "kubeflow-bitfusion")
    front.write_configuration(folder / "config")
    work = folder / "work"
    work.mkdir()
    server = ServerProcess(
        front.module,
        folder,
        [f"--ServerApp.root_dir={work}", f"--ServerApp.jpserver_extensions={front.extensions()}"],
        {
            "JUPYTER_PATH": str(folder / "data"),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "PYTHONPATH": str(Path(__file__).parents[3]),
        },
        python=python,
    )
    yield Lab(front, server, work)
    server.stop()


@pytest.fixture
def lab(running_lab: Lab) -> Iterator[Lab]:
    running_lab.tell(pool={"waiting": [], "error": None}, can_change=True)
    yield running_lab
    running_lab.tell(shut_down=True)


@pytest.fixture
def page(browser: Browser, front: FrontEnd) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 760})
    page = context.new_page()
    page.add_init_script(KEEP_TOASTS)
    page.set_default_timeout(scaled(15_000))
    expect.set_options(timeout=scaled(15_000))
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    page.unroute_all(behavior="ignoreErrors")  # an answer may be on its way through one
    context.close()
    assert not [each for each in errors if not any(own in each for own in front.own_errors)]


def _not_writable(route: Route) -> None:
    """As a server says of a file that its user cannot write; root could."""
    answer = route.fetch()
    route.fulfill(response=answer, json=answer.json() | {"writable": False})


GRACE = """
const later = window.setTimeout;
window.setTimeout = (act, ms, ...rest) => later(act, ms === 5000 ? %d : ms, ...rest);
"""
"""The five seconds in which an act can be taken back, as other milliseconds."""
SOON, LATE = 300, 600_000
"""Those for tests that don't take it back, and for those that do, however slowly."""

KEEP_TOASTS = """
window.toasts = new Set();
const shown = document.getElementsByClassName('Toastify__toast');
new MutationObserver(() => [...shown].forEach(toast => toasts.add(toast.textContent)))
  .observe(document, { childList: true, subtree: true, characterData: true });
"""
"""For `expect_toast`: what notifications have said on a page."""


def expect_toast(page: Page, text: str) -> None:
    """Wait until a notification has said this. It may be gone already: most last for seconds only."""
    has_said = "text => [...toasts].some(toast => toast.includes(text))"
    page.wait_for_function(has_said, arg=text, polling=100)


class Notebook:
    """A notebook that is open in a page, and what stands beside it."""

    def __init__(
        self,
        page: Page,
        lab: Lab,
        metadata: dict[str, Any] | None = None,
        outputs: Sequence[Any] = (),
        takes_back: bool = False,
        may_write: bool = True,
    ) -> None:
        self.page = page
        page.add_init_script(GRACE % (LATE if takes_back else SOON))
        lab.write("train.ipynb", "bitfusion", metadata or {}, outputs)
        self.lab = lab
        if not may_write:
            page.route("**/api/contents/train.ipynb*", _not_writable)
        page.goto(lab.address("train.ipynb"))
        self.chip = page.locator(".bf-mod-toolbar .bf-Chip")
        self.menu = page.locator(".bf-Menu")
        self.dialog = page.locator(".jp-Dialog")
        self.panel = page.locator("#bitfusion-pool")
        self.chip.wait_for()
        self.kernel = lab.kernel()

    def entry(self, text: str) -> Locator:
        """An entry of the open menu."""
        return self.menu.locator(".lm-Menu-item").filter(has_text=text)

    def save(self, size: dict[str, Any]) -> None:
        """Until the file remembers that size."""
        self.page.keyboard.press("Control+s")
        file = self.lab.folder / "train.ipynb"

        def is_saved() -> bool:
            return bool(json.loads(file.read_text())["metadata"].get("bitfusion") == size)

        wait_until(is_saved, file.read_text, errors=(ValueError,))

    def choose(self, text: str) -> None:
        """One entry of the chip's menu."""
        self.chip.click()
        self.entry(text).click()
        expect(self.menu).to_have_count(0)

    def toast(self, text: str) -> Locator:
        """A notification that stays until it is answered; for others see `expect_toast`."""
        return self.page.locator(".Toastify__toast").filter(has_text=text)

    def button(self, name: str) -> Locator:
        """One of the panel."""
        return self.panel.get_by_role("button", name=name)

    def show_pool(self) -> Locator:
        """The panel, opened from the chip."""
        self.choose("Show the GPU Pool")
        self.panel.wait_for()
        return self.panel
