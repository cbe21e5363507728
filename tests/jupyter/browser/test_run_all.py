"""Run All in a real JupyterLab shows what nbclient gets: the same order, numbers and texts in every cell."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Page, expect

from tests.jupyter.browser.executed_notebook import ExecutedCell, executed_cells
from tests.jupyter.browser.notebook_page import NotebookPage, Picture
from tests.jupyter.conftest import FIRST_CELL, PLAIN
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import without_pytest
from tests.support.machine import scaled

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "tensorflow_digits.ipynb"

CELLS = (
    "%bitfusion pool\n%bitfusion request -n 1 -p 0.5",
    "import sys, time\nfrom IPython.display import HTML, Markdown, clear_output, display\nprint('out')",
    "%bitfusion",
    "print('1')\ntime.sleep(0.3)\nprint('2', file=sys.stderr)\ndisplay(Markdown('**3**'))\nprint('4')\n6 * 7",
    "screen = display('training', display_id=True)\nfor step in range(3):\n    screen.update(f'step {step}')",
    "%bitfusion log",
    "%bitfusion nonsense",
    "for step in range(3):\n    clear_output(wait=True)\n    print('step', step)",
    "",
    "x = 1  # nothing to show",
    "%bitfusion status\n%bitfusion pool",
    "!bitfusion run -n 1 -p 0.25 -- python3 -c 'print(\"beside\")'",
    "HTML('<b>bold</b>')",
    "%bitfusion list_gpus",
    "time.sleep(0.3)\nx / 0",
    "'never'",
    "%bitfusion",
)
KEEP_FOR_THE_PICTURE = """
    for (const cell of document.querySelectorAll(".jp-Cell")) {
        const code = cell.querySelector(".jp-InputArea-editor")?.innerText.trim() ?? "";
        const drawn = code.startsWith("# Train");
        if (drawn) cell.querySelector(".jp-Cell-inputWrapper").remove();
        if (!drawn && !code.startsWith("%bitfusion request") && !code.startsWith("# What")) cell.remove();
    }
    document.querySelector("main").style.padding = "12px";
"""
FRESH = 5
"""Notebooks, each opened for the first time."""
WATCH_STATUS = """() => {
    window.states = [];
    const say = state => states.at(-1)?.[0] === state || states.push([state, performance.now() / 1000]);
    setInterval(() => {
        const output = document.querySelector(".jp-Notebook .jp-OutputArea-output");
        const bar = document.querySelector("#jp-main-statusbar").textContent;
        const runs = document.querySelector(".jp-CodeCell .jp-InputPrompt").textContent === "[*]:";
        if (output?.textContent.includes("imported")) say("imported");
        else if (runs) say(bar.match(/\\| (Idle|Busy|\\w*)/)?.[1] ?? "");
    }, 10);
}"""
MAY_FAIL = {"tags": ["raises-exception"]}
"""With this JupyterLab and nbclient go on after an error."""


def by_nbclient(path: Path) -> tuple[Any, list[ExecutedCell]]:
    """The notebook after nbclient has run it, to its end or to the first error; and its cells."""
    notebook = nbformat.read(path, as_version=4)
    numbers: dict[int, int | None] = {}

    def keep_number(cell: Any, cell_index: int, execute_reply: Any) -> None:
        numbers[cell_index] = execute_reply["content"].get("execution_count") or None

    client = NotebookClient(
        notebook,
        kernel_name=FIRST_CELL,
        timeout=None,
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_executed=keep_number,
    )
    with contextlib.suppress(CellExecutionError):
        client.execute(env=without_pytest({**os.environ, "JPY_SESSION_NAME": str(path)}))
    # nbclient itself numbers what it has run, whatever the kernel says
    replied = [numbers.get(index) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    cells = [
        cell._replace(number=number) for cell, number in zip(executed_cells(notebook), replied, strict=True)
    ]
    return notebook, cells


def run_all(page: Page, path: Path, expected: list[ExecutedCell], limit_s: float) -> list[ExecutedCell]:
    """The cells as JupyterLab saves them after Run All, once all have the numbers that are expected."""
    notebook = NotebookPage(page)
    notebook.open_file(path.name)
    notebook.choose("Run", "Run All Cells")
    prompts = [f"[{cell.number or ' '}]:" for cell in expected]
    expect(notebook.prompts).to_have_text(prompts, timeout=scaled(limit_s * 1000))
    notebook.wait_until_idle()
    notebook.save()
    notebook.wait_until_saved()
    return executed_cells(nbformat.read(path, as_version=4))


def compare(found: list[ExecutedCell], expected: list[ExecutedCell]) -> None:
    assert [(cell.title, cell.number) for cell in found] == [(cell.title, cell.number) for cell in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.shown == other.shown, one.title


@pytest.mark.long
@pytest.mark.timeout(120)
def test_run_all_shows_what_nbclient_gets(page: Page, pool: Pool, lab_folder: Path) -> None:
    cells = [new_code_cell(code, metadata=MAY_FAIL if "nonsense" in code else {}) for code in CELLS]
    kernelspec = {"name": FIRST_CELL, "display_name": "Bitfusion"}
    path = lab_folder / "all.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernelspec}), path)
    _, expected = by_nbclient(path)
    compare(run_all(page, path, expected, 40), expected)


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("name", "title"),
    [pytest.param(PLAIN, "Python 3 (ipykernel)", marks=pytest.mark.apart), (FIRST_CELL, "Bitfusion")],
)
def test_the_status_bar_never_says_idle_while_the_first_cell_of_run_all_imports(
    page: Page, pool: Pool, lab_folder: Path, name: str, title: str
) -> None:
    """JupyterLab makes and deletes subshells then, and shows the newest status of all."""
    pool.write(gpus=FRESH)
    (lab_folder / "slow.py").write_text("import time\ntime.sleep(3)")
    notebook = NotebookPage(page)
    for number in range(FRESH):
        path = lab_folder / f"{number}.ipynb"
        cells = [new_code_cell(code) for code in ("import slow\nprint('imported')", "6 * 7")]
        kernelspec = {"name": name, "display_name": title}
        nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernelspec}), path)
        notebook.open_file(path.name, title)
        page.evaluate(WATCH_STATUS)
        notebook.choose("Run", "Run All Cells")
        expect(notebook.prompts).to_have_text(["[1]:", "[2]:"])
        seen = page.evaluate("states")
        since_busy = seen[[state for state, _ in seen].index("Busy") :]
        idle = [end - begin for (state, begin), (_, end) in itertools.pairwise(since_busy) if state == "Idle"]
        assert since_busy[-1][0] == "imported", seen
        # what is answered beside a cell may show for a moment
        assert sum(idle) < (since_busy[-1][1] - since_busy[0][1]) / 4, seen


@pytest.mark.tensorflow
@pytest.mark.long
@pytest.mark.apart
@pytest.mark.timeout(600)
def test_run_all_of_the_example_shows_what_nbclient_gets(
    page: Page, pool: Pool, lab_folder: Path, picture: Picture
) -> None:
    pool.write(gpus=2)
    path = lab_folder / EXAMPLE.name
    shutil.copy(EXAMPLE, path)
    executed, expected = by_nbclient(path)
    compare(run_all(page, path, expected, 240), expected)

    expect(NotebookPage(page).cell(len(expected) - 1)).to_contain_text("1 GPU × 50 % given back")
    assert not pool.leases(), "as the notebook says"
    picture(page, "all free")

    exported, _ = HTMLExporter(template_name="lab").from_notebook_node(executed)
    html = path.with_suffix(".html")
    html.write_text(exported)
    page.route("http*://**", lambda route: route.abort())  # fonts and formulas from elsewhere
    page.goto(html.as_uri())
    page.evaluate(KEEP_FOR_THE_PICTURE)
    expect(page.locator(".jp-Cell:visible")).to_have_count(3)
    picture(page.locator("main"), "notebook")
