"""After its first seconds a proxy imports no module of ours any more: an update may replace the files."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bitfusion_kernel
from bitfusion_kernel.proxy import late_imports
from bitfusion_kernel.proxy.event_loop import EventLoop
from tests.support.machine import scaled

ROOT = Path(bitfusion_kernel.__file__).parents[1]
OF_THE_LAUNCHER = {
    f"bitfusion_kernel.processes.{name}" for name in ("kernel_guard", "kernel_process", "work_watch")
}
"""What `launcher` imports when it runs, in a process of its own."""

LOADED = (
    "import importlib, sys\n"
    "from bitfusion_kernel.processes import meeting_point, supervisor\n"  # of the start: joined, or forked
    "from bitfusion_kernel.proxy import process, proxy\n"
    "for name in sys.argv[1:]: importlib.import_module(name)\n"
    "print(*sys.modules)"
)


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported_by(node: ast.AST) -> Iterator[str]:
    """The modules of ours that a module's code imports, in functions, too; not those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.ImportFrom) and child.module and child.module.startswith("bitfusion_"):
            for alias in child.names:
                name = f"{child.module}.{alias.name}"
                yield name if file_of(name).exists() else child.module
        yield from imported_by(child)


def reachable(module: str) -> set[str]:
    found: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += imported_by(ast.parse(file_of(name).read_text(encoding="utf-8")))
    return found


def test_whatever_a_proxy_may_ever_import_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *late_imports.MODULES, late_imports.CONFIG_MODULE],
        capture_output=True,
        text=True,
        timeout=scaled(20),
        check=True,
    )
    needed = reachable("bitfusion_kernel.proxy.process")
    assert {late_imports.CONFIG_MODULE, "bitfusion_client.command.client_failure"} <= needed
    assert sorted(needed - OF_THE_LAUNCHER - set(done.stdout.split())) == []


def test_no_module_is_named_that_no_function_imports() -> None:
    by_functions: set[str] = set()
    for module in reachable("bitfusion_kernel.proxy.process"):
        tree = ast.parse(file_of(module).read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                by_functions.update(imported_by(function))
    assert set(late_imports.MODULES) <= by_functions


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_imports, "BEGIN_AFTER", 0.0)
    monkeypatch.setattr(late_imports, "PAUSE", 0.0)


def imported_while_other_timers_run(
    monkeypatch: pytest.MonkeyPatch, *failing: str, config: bool
) -> list[str]:
    """The order of imports and of another timer that is always due."""
    order: list[str] = []

    def import_module(name: str) -> None:
        order.append(name)
        if name in failing:
            raise ImportError(name)

    def other() -> None:
        order.append("other")
        loop.set_timer("other", time.monotonic(), other)

    monkeypatch.setattr("importlib.import_module", import_module)
    monkeypatch.setattr(late_imports, "config_files_exist", lambda environ: config)
    loop = EventLoop()
    late_imports.begin(loop, ("a", "b", "c"))
    loop.set_timer("other", time.monotonic(), other)
    loop.run(until=lambda: order.count("other") == 10)
    return order


@pytest.mark.usefixtures("soon")
def test_they_are_imported_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    order = imported_while_other_timers_run(monkeypatch, config=False)
    assert [name for name in order if name != "other"] == ["a", "b", "c"]
    assert "other" in order[order.index("a") : order.index("b")]
    assert "other" in order[order.index("b") : order.index("c")]


@pytest.mark.usefixtures("soon")
def test_config_files_are_prepared_for_only_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    order = imported_while_other_timers_run(monkeypatch, config=True)
    assert [name for name in order if name != "other"] == ["a", "b", "c", late_imports.CONFIG_MODULE]


@pytest.mark.usefixtures("soon")
def test_files_that_are_being_replaced_do_not_end_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    order = imported_while_other_timers_run(monkeypatch, "b", config=False)
    assert [name for name in order if name != "other"] == ["a", "b"]
