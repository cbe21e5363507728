"""The pictures of JupyterLab in README and guide: small, and drawn again by their script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.jupyter.browser.chromium import chromium_path
from tools import draw_jupyterlab

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "docs" / "images"


def check(folder: Path) -> None:
    film = folder / "lab.webp"
    assert film.stat().st_size <= draw_jupyterlab.LARGEST
    with Image.open(film) as moving, Image.open(folder / "lab.png") as still:
        assert getattr(moving, "n_frames", 1) > 10
        assert moving.size == still.size == tuple(draw_jupyterlab.SIZE.values())


def test_the_readme_opens_with_a_small_animation() -> None:
    first = (ROOT / "README.md").read_text().partition("](docs/images/")[2]
    assert first.startswith("lab.webp)")
    check(IMAGES)


@pytest.mark.long
@pytest.mark.apart
@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.timeout(180)
def test_the_script_draws_them(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")  # what the cell computes with
    chromium_path()  # skips where there is none
    script = [sys.executable, draw_jupyterlab.__file__, str(tmp_path)]
    done = subprocess.run(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    check(tmp_path)
