"""Draws docs/images/*.mmd, the diagrams of the documents in Mermaid's words, as SVG files beside them.

    python tools/draw_diagrams.py  # draws what is stale; wants npm, Debian's chromium and a network

The pictures are committed: GitHub, the site and a reader without a network show the same file, and only who
changes a diagram needs Mermaid.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
MERMAID = "mermaid@11.17.2"
# Labels are SVG text, not HTML, which an image shows nowhere.
OPTIONS = """{
    startOnLoad: false, theme: 'neutral', fontFamily: 'DejaVu Sans, Arial, sans-serif', htmlLabels: false,
    deterministicIds: true, markdownAutoWrap: false,
    themeCSS: '.edgeLabel rect { opacity: 1 !important; fill: white !important; }',
    flowchart: { htmlLabels: false, wrappingWidth: 400, useMaxWidth: false },
    state: { useMaxWidth: false }, sequence: { useMaxWidth: false, actorMargin: 30, mirrorActors: false },
}"""
DRAW = f"""async (text) => {{
    mermaid.initialize({OPTIONS});
    return (await mermaid.render('diagram', text)).svg;
}}"""


def digest(source: Path) -> str:
    """What stands in a picture that was drawn from this very source by this Mermaid, with these options."""
    return hashlib.sha256("\0".join((source.read_text(encoding="utf-8"), MERMAID, DRAW)).encode()).hexdigest()


def stale(folder: Path = IMAGES) -> list[Path]:
    """The sources whose picture is missing or was drawn from another text; also asked by the tests."""
    return [each for each in sorted(folder.glob("*.mmd")) if not _is_drawn(each)]


def _is_drawn(source: Path) -> bool:
    picture = source.with_suffix(".svg")
    return picture.is_file() and digest(source) in picture.read_text(encoding="utf-8")


def draw(sources: list[Path]) -> None:
    """Write the picture of each."""
    from playwright.sync_api import sync_playwright  # not for the tests that only compare

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        install = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            folder,
            MERMAID,
        ]
        subprocess.run(install, check=True, stdout=sys.stderr)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=Path(folder, "node_modules/mermaid/dist/mermaid.min.js"))
        for source in sources:
            svg = page.evaluate(DRAW, source.read_text(encoding="utf-8"))
            white = svg.replace("background-color: transparent", "background-color: white")
            picture = f"{white}\n<!-- {source.name} {digest(source)} -->\n"
            source.with_suffix(".svg").write_text(picture, encoding="utf-8")
            print(source.with_suffix(".svg"))
        browser.close()


if __name__ == "__main__":
    draw(stale())
