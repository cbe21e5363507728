"""Draws docs/images/lab.webp and lab.png: a GPU waited for, used and given back in JupyterLab, as it is.

    python tools/draw_jupyterlab.py docs/images

JupyterLab, kernel, queue and lease are real, the one GPU is simulated and says so. Wants the environment of
`make test` and Debian's chromium. To be run again, and to be looked at, when what people see has changed.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from PIL import Image
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.jupyter.browser.chromium import chromium_path, running_chromium
from tests.jupyter.browser.quiet_page import write_quiet_settings
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.jupyter_server import ServerProcess
from tests.support.machine import scaled
from tools.labextension import BUNDLE, ROOT

SIZE: ViewportSize = {"width": 1180, "height": 600}
LARGEST = 1_500_000  # bytes of the animation
TRAIN = """\
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
import time

images, labels = load_digits(return_X_y=True)
network = MLPClassifier([64], random_state=0)
for epoch in range(1, 7):
    network.partial_fit(images / 16, labels, classes=range(10))
    print(f"epoch {epoch}: {network.score(images / 16, labels):.0%} right", flush=True)
    time.sleep(0.7)"""
POINTER = """([x, y]) => {
    let dot = document.getElementById('pointer');
    if (!dot) {
        dot = document.body.appendChild(Object.assign(document.createElement('div'), { id: 'pointer' }));
        dot.style = 'position:fixed;width:22px;height:22px;margin:-11px;border-radius:50%;z-index:99999;' +
            'background:#f3730080;border:2px solid #f37300;pointer-events:none;box-sizing:border-box';
    }
    dot.style.left = x + 'px';
    dot.style.top = y + 'px';
    dot.style.display = x < 0 ? 'none' : 'block';
}"""


class Film:
    """Pictures of a page, each with the time for which it is shown."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []

    def show(self, milliseconds: int) -> None:
        """The page as it is now; one that looks like the last picture is shown longer in place of it."""
        frame = Image.open(io.BytesIO(self.page.screenshot(animations="disabled"))).convert("RGB")
        if self.frames and frame.tobytes() == self.frames[-1].tobytes():
            self.durations[-1] += milliseconds
        else:
            self.frames.append(frame)
            self.durations.append(milliseconds)

    def follow(self, seconds: int) -> None:
        """What goes on by itself."""
        for _ in range(seconds * 2):
            self.show(500)
            self.page.wait_for_timeout(500)

    def click(self, target: Locator) -> None:
        """With the pointer shown before."""
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        assert box is not None
        self.page.evaluate(POINTER, [box["x"] + min(40, box["width"] / 2), box["y"] + box["height"] / 2])
        self.show(1100)
        self.page.evaluate(POINTER, [-1, -1])
        target.click()

    def save(self, path: Path) -> None:
        """As an animated WebP that begins again at its end."""
        self.frames[0].save(
            path,
            save_all=True,
            append_images=self.frames[1:],
            duration=self.durations,
            loop=0,
            quality=70,
            method=6,
            minimize_size=True,
        )


def story(page: Page, film: Film, pool: Pool, still: Path) -> None:
    """A size, a wait, a lease, the release."""
    chip = page.locator(".bf-mod-toolbar .bf-Chip")
    menu = page.locator(".bf-Menu .lm-Menu-item")
    cell = page.locator(".jp-Notebook .jp-CodeCell").first
    output = cell.locator(".jp-OutputArea-output").first
    expect(chip).to_contain_text("no GPU")
    chip.click()
    menu.filter(has_text="Show the GPU Pool").click()
    with pool.held("language-model.ipynb"):
        page.locator("#bitfusion-pool .bf-IconButton").first.click()
        expect(page.locator("#bitfusion-pool")).to_contain_text("language-model.ipynb")
        page.evaluate("document.activeElement.blur()")
        film.show(1800)
        film.click(chip)
        half = menu.filter(has_text="½ GPU").first
        half.hover()
        film.show(1500)
        film.click(half)
        page.locator(".Toastify__toast").first.wait_for()
        page.locator(".Toastify__toast").first.wait_for(state="hidden")
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        expect(chip).to_contain_text("1 of 1")
        expect(output).to_contain_text("Held by")
        film.follow(4)
    expect(output).to_contain_text("epoch 1")
    film.follow(3)
    expect(page.locator("#bitfusion-pool")).to_contain_text("train.ipynb (1 GPU × 50 %")
    film.show(500)
    picture = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    picture.quantize(200, dither=Image.Dither.NONE).save(still, optimize=True)
    expect(cell).to_contain_text("epoch 6")
    film.follow(2)
    film.click(chip)
    film.click(menu.filter(has_text="Release").first)
    expect(chip).to_contain_text("no GPU")
    film.follow(2)
    film.show(1500)


def lab(folder: Path, pool: Pool) -> ServerProcess:
    """A JupyterLab with the kernel, our part of the page, and a notebook."""
    write_quiet_settings(folder / "settings")
    install = [sys.executable, "-m", "bitfusion_kernel.cli", "install", "--prefix", str(folder / "prefix")]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    data = folder / "prefix" / "share" / "jupyter"
    shutil.copytree(BUNDLE, data / "labextensions" / "kubeflow-bitfusion")
    (folder / "work").mkdir()
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(TRAIN)],
        metadata={"kernelspec": {"name": "bitfusion", "display_name": "Bitfusion"}},
    )
    nbformat.write(notebook, folder / "work" / "train.ipynb")
    extensions = {"jupyterlab": True, "jupyter_ext.server": True, "jupyter_lsp": False}
    return ServerProcess(
        "jupyterlab",
        folder,
        [f"--ServerApp.root_dir={folder / 'work'}", f"--ServerApp.jpserver_extensions={extensions}"],
        {
            **pool.environment,
            "JUPYTER_PATH": str(data),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "BITFUSION_POOL_GPUS": "simulated",
            "TZ": "UTC",
        },
    )


def main() -> None:
    """Read the arguments, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory(prefix="bfd-") as name:
        folder = Path(name)
        (folder / "run").mkdir(mode=0o700)
        pool = Pool(folder / "pool")
        pool.write(gpus=1)
        server = lab(folder, pool)
        try:
            with running_chromium(chromium_path(), folder / "run") as browser:
                page = browser.new_page(viewport=SIZE, timezone_id="UTC")
                page.set_default_timeout(scaled(30) * 1000)
                expect.set_options(timeout=scaled(30) * 1000)
                page.goto(f"{server.address}/lab/tree/train.ipynb?reset")
                expect(page.locator("#jp-main-statusbar")).to_contain_text("Bitfusion | Idle")
                page.get_by_role("tab", name="File Browser").first.click()  # it closes
                film = Film(page)
                story(page, film, pool, out / "lab.png")
                film.save(out / "lab.webp")
        finally:
            server.stop()
    size = (out / "lab.webp").stat().st_size
    print(f"{out / 'lab.webp'}: {size / 1024:.0f} KiB, {len(film.frames)} pictures")
    if size > LARGEST:
        raise SystemExit(f"it has more than {LARGEST} bytes")


if __name__ == "__main__":
    main()
