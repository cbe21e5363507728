"""JupyterLab with our part of it and without, in a real browser: start, questions of an open page, CPU."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil  # type: ignore[import-untyped]  # ships no types
from playwright.sync_api import Browser, Page

from benchmarks.effort import Effort
from benchmarks.measure import MILLISECOND, AtMost, AtMostMore, AtMostTimes, Goal, Row, Samples, interleave
from benchmarks.workplace import FIRST_CELL, PLAIN, SPEC_OF, Workplace
from tests.jupyter.browser.chromium import chromium_path, running_chromium
from tests.jupyter.browser.quiet_page import HIDE, write_quiet_settings
from tests.jupyter.jupyter_server import ServerProcess
from tools.labextension import BUNDLE, ROOT

TOPIC = "lab_page"
OURS = "ours"
NAME = "kubeflow-bitfusion"
OPEN_PAGES = 10
FEW = 2
"""Pages in the place of `OPEN_PAGES`, where a run only shows that it works."""

_COUNTING = """#!{python} -IS
import os, sys
if sys.argv[1:2] == ["list_gpus"]:
    os.write(os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), b"x")
os.execv({client!r}, [{client!r}, *sys.argv[1:]])
"""


@dataclass(frozen=True, slots=True)
class Lab:
    """A JupyterLab that runs, with our part or without, and the file that counts looks at the pool."""

    server: ServerProcess
    looks_file: Path

    @property
    def looks(self) -> int:
        """How often the client has been asked for the pool."""
        return self.looks_file.stat().st_size if self.looks_file.exists() else 0

    def open(self, browser: Browser, path: str = "") -> Page:
        """A page, ready."""
        page = browser.new_page(viewport={"width": 1200, "height": 700})
        page.goto(f"{self.server.address}/lab{path}")
        page.locator(".jp-Notebook .jp-CodeCell" if path else ".jp-Launcher").first.wait_for(timeout=60_000)
        return page


@contextmanager
def lab(workplace: Workplace, name: str) -> Iterator[Lab]:
    """One of the two, with a notebook whose kernel is ours, or plain where ours is not there."""
    folder = workplace.folder / f"lab-{name}"
    work, settings, config = folder / "work", folder / "settings", folder / "config"
    write_quiet_settings(settings)
    (config / "labconfig").mkdir(parents=True)
    work.mkdir()
    spec = SPEC_OF[FIRST_CELL if name == OURS and not workplace.control else PLAIN]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("6 * 7")],
        metadata={"kernelspec": {"name": spec, "display_name": spec}},
    )
    nbformat.write(notebook, work / "x.ipynb")
    data = [workplace.folder / "prefix" / "share" / "jupyter"]
    with_ours = name == OURS and not workplace.control
    if with_ours:
        shutil.copytree(BUNDLE, folder / "data" / "labextensions" / NAME)
        data.append(folder / "data")
    else:  # an environment may have it installed
        (config / "labconfig" / "page_config.json").write_text(
            json.dumps({"disabledExtensions": {NAME: True}})
        )
    client = folder / "bitfusion"
    looks = folder / "looks"
    own = str(ROOT / "bitfusion_pool" / "bin" / "bitfusion")
    client.write_text(_COUNTING.format(python=sys.executable, log=str(looks), client=own))
    client.chmod(0o755)
    server = ServerProcess(
        "jupyterlab",
        folder,
        [
            f"--ServerApp.root_dir={work}",
            f"--ServerApp.jpserver_extensions={ {'jupyterlab': True, 'jupyter_ext.server': with_ours} }",
            f"--BitfusionServer.client={client}",
        ],
        {
            **workplace.environ,
            "JUPYTER_PATH": os.pathsep.join(map(str, data)),
            "JUPYTER_CONFIG_DIR": str(config),
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "PYTHONPATH": str(ROOT),
        },
    )
    try:
        yield Lab(server, looks)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def until_server(workplace: Workplace, name: str) -> float:
    """Seconds from the command until the server answers."""
    began = time.perf_counter()
    with lab(workplace, name):
        return time.perf_counter() - began


def until_launcher(browser: Browser, one: Lab) -> float:
    """Seconds from the address until the launcher is shown; each time as if for the first time."""
    began = time.perf_counter()
    page = one.open(browser)
    took = time.perf_counter() - began
    page.close()
    return took


@dataclass(frozen=True, slots=True)
class Watched:
    """What an open page did in some time."""

    questions: int
    cpu: float
    """Seconds of all processes of the browser."""


def watch(page: Page, seconds: float) -> Watched:
    """Look at a page that nobody touches."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/bitfusion/api" in request.url else None)
    before = _cpu_of_browser()
    page.wait_for_timeout(seconds * 1000)
    return Watched(len(asked), _cpu_of_browser() - before)


def _cpu_of_browser() -> float:
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                times = process.cpu_times()
                used += times.user + times.system
        except psutil.NoSuchProcess:
            pass
    return used


def looks_of_pages(browser: Browser, one: Lab, pages: int, seconds: float) -> int:
    """How often the pool is looked at while so many pages are open."""
    opened = [one.open(browser, "/tree/x.ipynb") for _ in range(pages)]
    opened[0].wait_for_timeout(1000)
    before = one.looks
    opened[0].wait_for_timeout(seconds * 1000)
    looks = one.looks - before
    for page in opened:
        page.close()
    return looks


def _once(what: str, unit: str, ours: float, goal: Goal, plain: float | None = None, note: str = "") -> Row:
    compared = None if plain is None else Samples((plain,))
    return Row(TOPIC, what, unit, Samples((ours,)), compared, goal, note)


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Start of server and page in turns; then one page of each, and ten of ours."""
    names: Mapping[str, str] = {PLAIN: PLAIN, OURS: OURS}
    starts = interleave(names, max(1, effort.starts // 2), lambda name: until_server(workplace, name))
    rows = [
        Row(
            TOPIC,
            "jupyter lab -> it answers",
            "ms",
            starts[OURS],
            starts[PLAIN],
            AtMostMore(150 * MILLISECOND),
        )
    ]
    seconds = effort.page_seconds
    with ExitStack() as stack:
        labs = {name: stack.enter_context(lab(workplace, name)) for name in names}
        browser = stack.enter_context(running_chromium(chromium_path(), workplace.folder / "run"))
        opened = interleave(labs, effort.starts, lambda one: until_launcher(browser, one))
        rows.append(Row(TOPIC, "address -> launcher", "ms", opened[OURS], opened[PLAIN], AtMostTimes(1.1)))
        watched: dict[str, Watched] = {}
        for name, one in labs.items():
            page = one.open(browser, "/tree/x.ipynb")
            if name == OURS and not workplace.control:
                page.locator(".bf-mod-toolbar .bf-Chip").wait_for()
            page.wait_for_timeout(min(5.0, seconds) * 1000)
            watched[name] = watch(page, seconds)
            if name == OURS:
                page.evaluate(HIDE, True)
                hidden = watch(page, seconds)
            page.close()
        ours, plain = watched[OURS], watched[PLAIN]
        rows += [
            _once(
                f"questions of an idle page in {seconds:g} s", "n", ours.questions, AtMost(seconds / 10, "n")
            ),
            _once(f"questions of a hidden page in {seconds:g} s", "n", hidden.questions, AtMost(0, "n")),
            _once(
                f"CPU of a browser with an idle page in {seconds:g} s",
                "ms",
                ours.cpu,
                AtMostMore(seconds / 100),
                plain.cpu,
            ),
        ]
        pages = OPEN_PAGES if effort.starts > 1 else FEW
        one_page = looks_of_pages(browser, labs[OURS], 1, seconds)
        many = looks_of_pages(browser, labs[OURS], pages, seconds)
        what = f"looks at the pool in {seconds:g} s, {pages} pages; plain: one page"
        rows.append(_once(what, "n", many, AtMost(one_page + 1, "n"), one_page))
    scripts = [path.read_bytes() for path in (BUNDLE / "static").glob("*.js")]
    size = sum(len(gzip.compress(script)) for script in scripts)
    rows.append(_once("bundle, gzipped", "MB", size, AtMost(200_000, "MB")))
    return rows
