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
from playwright.sync_api import Browser, Locator, Page, expect

from tests.jupyter.browser.chromium import chromium_path, running_chromium
from tests.jupyter.browser.conftest import QUIET_SETTINGS
from tests.jupyter.jupyter_server import ServerProcess
from tests.support.machine import scaled
from tools.labextension import BUNDLE

KERNEL = {
    "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "Bitfusion",
    "language": "python",
    "metadata": {"bitfusion": {"request": {"gpus": 1}}},
}
EXTENSIONS = {
    "jupyterlab": True,
    "jupyter_ext.server": False,  # which the stand-in takes the place of
    "jupyter_lsp": False,
    "tests.jupyter_ext.labextension.stand_in": True,
}


class Lab:
    """A JupyterLab, and what its stand-in for the server extension tells."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def tell(self, **what: Any) -> dict[str, Any]:
        """Set what is told (`pool`, `kernels`, `events`); what pages have asked for."""
        told: dict[str, Any] = self.server.ask("POST", "/stand-in", what)
        return told

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
def running_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    for name, content in QUIET_SETTINGS.items():
        file = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    spec = folder / "data" / "kernels" / "bitfusion" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps(KERNEL))
    shutil.copytree(BUNDLE, folder / "data" / "labextensions" / "kubeflow-bitfusion")
    work = folder / "work"
    work.mkdir()
    server = ServerProcess(
        "jupyterlab",
        folder,
        [f"--ServerApp.root_dir={work}", f"--ServerApp.jpserver_extensions={EXTENSIONS}"],
        {
            "JUPYTER_PATH": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "PYTHONPATH": str(Path(__file__).parents[3]),
        },
    )
    yield Lab(server, work)
    server.stop()


@pytest.fixture
def lab(running_lab: Lab) -> Iterator[Lab]:
    running_lab.tell(pool={"waiting": []})
    yield running_lab
    running_lab.tell(shut_down=True)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 760})
    page = context.new_page()
    page.set_default_timeout(scaled(15_000))
    expect.set_options(timeout=scaled(15_000))
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors


class Notebook:
    """A notebook that is open in a page, and what stands beside it."""

    def __init__(
        self, page: Page, lab: Lab, metadata: dict[str, Any] | None = None, outputs: Sequence[Any] = ()
    ) -> None:
        self.page = page
        lab.write("train.ipynb", "bitfusion", metadata or {}, outputs)
        page.goto(f"{lab.server.address}/lab/tree/train.ipynb?reset")
        self.chip = page.locator(".bf-mod-toolbar .bf-Chip")
        self.menu = page.locator(".bf-Menu")
        self.dialog = page.locator(".jp-Dialog")
        self.panel = page.locator("#bitfusion-pool")
        self.chip.wait_for()
        self.kernel = lab.kernel()

    def entry(self, text: str) -> Locator:
        """An entry of the open menu."""
        return self.menu.locator(".lm-Menu-item").filter(has_text=text)

    def save(self) -> None:
        self.page.keyboard.press("Control+s")
        expect(self.page.locator("#jp-main-dock-panel .lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)

    def choose(self, text: str) -> None:
        self.chip.click()
        self.entry(text).click()
        expect(self.menu).to_have_count(0)
