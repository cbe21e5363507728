"""Mutation testing: changes one thing in the code at a time and looks whether the module's own tests see it.

    make mutants MUTANTS="--seed 7 --count 100"
    make mutants MUTANTS="--at bitfusion_pool/own_files.py:233"  # all that can be changed in a line

A mutant is a comparison changed, a `not` added or removed, `and` for `or`, a returned truth flipped, a number
changed. It is put into a copy of the tree, never into the checkout, and the tests of the module's folder run
until one fails: first those that name the module. A test that fails without the mutant, too, kills nothing
and is left out. The end shows each mutant that lived: either a test has to see it, or it changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import json
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "bitfusion_client",
    "bitfusion_cluster",
    "bitfusion_device_plugin",
    "bitfusion_kernel",
    "bitfusion_pods",
    "bitfusion_pool",
    "jupyter_ext",
    "kubeflow_bitfusion",
    "notebook_controller_patch",
)
# Where the folder of a package's tests is not called as the package is.
FOLDERS = {
    "bitfusion_client": "client",
    "bitfusion_kernel": "kernel",
    "bitfusion_pods": "pods",
    "bitfusion_pool": "pool",
}
NOT_THESE = "not long and not cluster and not browser"
KILLED, LIVED, TIMEOUT = "killed", "lived", "timeout"
MOST_FAILING = 5  # tests that fail without the mutant, too; more of them and nothing can be said

COMPARISONS: dict[type[ast.cmpop], tuple[str, Sequence[str]]] = {
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: the bytes from `start` to `end` of a file become `new`."""

    path: str  # from the root
    line: int
    start: int
    end: int
    new: str
    kind: str


@dataclass(frozen=True)
class Result:
    """What the tests made of a mutant; `test` is the one that saw it."""

    outcome: str
    seconds: float
    test: str = ""


def mutants(path: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines. Pure."""
    found = _Finder(path, source)
    found.visit(ast.parse(source))
    return sorted(found.mutants)


def changed(source: str, mutant: Mutant) -> str:
    """The module with the change."""
    text = source.encode()
    return (text[: mutant.start] + mutant.new.encode() + text[mutant.end :]).decode()


def difference(source: str, mutant: Mutant) -> str:
    """The change as a diff without context."""
    lines = difflib.unified_diff(
        source.splitlines(), changed(source, mutant).splitlines(), mutant.path, mutant.path, n=0, lineterm=""
    )
    return "\n".join(list(lines)[2:])


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.mutants: set[Mutant] = set()
        self._path = path
        self._text = source.encode()
        self._starts = [0]
        for line in self._text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def _start(self, node: ast.expr) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _add(self, kind: str, start: int, end: int, new: str) -> None:
        line = self._text[:start].count(b"\n") + 1
        self.mutants.add(Mutant(self._path, line, start, end, new, kind))

    def _between(self, left: ast.expr, right: ast.expr, word: str) -> tuple[int, int]:
        """Where an operator stands: between two operands there are else only brackets and comments."""
        start = self._end(left)
        gap = re.sub(
            rb"#[^\n]*", lambda comment: b" " * len(comment[0]), self._text[start : self._start(right)]
        )
        found = re.search(rb"\s+".join(map(re.escape, word.encode().split())), gap)
        assert found, (self._path, left.lineno, word)
        return start + found.start(), start + found.end()

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            word, others = COMPARISONS[type(operator)]
            for other in others:
                self._add("comparison", *self._between(left, right, word), other)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._add("and/or", *self._between(left, right, word), other)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("not", self._start(node), self._start(node) + len("not"), "")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test).endswith("TYPE_CHECKING"):
            return  # of no moment while it runs
        self._condition(node)

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        test = node.test
        # comparisons, `not`, `and` and `or` are changed themselves
        if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant, ast.NamedExpr)):
            self._add("not", self._start(test), self._start(test), "not ")
        self.generic_visit(node)

    visit_While = visit_IfExp = _condition  # noqa: N815

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
            self._add("truth", self._start(node.value), self._end(node.value), repr(not node.value.value))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            more = node.value + 1 if node.value + 1 != node.value else node.value * 2
            self._add("number", self._start(node), self._end(node), repr(more))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Left out: before Python 3.12 nobody says where in the text they stand."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        """The defaults, not the annotations."""
        for default in [*node.defaults, *node.kw_defaults]:
            if default is not None:
                self.visit(default)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in [*node.decorator_list, node.args, *node.body]:
            self.visit(part)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815


def test_folder(path: str, folders: set[str]) -> str:
    """The folder of a module's own tests: the deepest of `folders` that mirrors where it lies. Pure."""
    package, *below = path.split("/")[:-1]
    parts = ["tests", FOLDERS.get(package, package), *below]
    while "/".join(parts) not in folders and len(parts) > 1:
        parts.pop()
    return "/".join(parts)


def in_order(path: str, tests: dict[str, str]) -> list[str]:
    """The files of `tests` (name and text) that run for a module, those first that name it. Pure.

    Of the folders below only those files run that import the module: they mirror other folders.
    """
    names = path.removesuffix(".py").removesuffix("/__init__").split("/")
    package, stem = ".".join(names[:-1]), names[-1]
    imports = re.compile(rf"{re.escape('.'.join(names))}\b|from {re.escape(package)} import .*\b{stem}\b")
    folder = test_folder(path, {name.rpartition("/")[0] for name in tests})
    ranks = {}
    for name, text in tests.items():
        place, _, file = name.rpartition("/")
        if f"{place}/".startswith(f"{folder}/") and (place == folder or imports.search(text)):
            ranks[name] = (
                file != f"test_{stem}.py",
                not imports.search(text),
                not re.search(rf"\b{stem.strip('_')}", text),
                name,
            )
    return sorted(ranks, key=ranks.__getitem__)


class Copy:
    """A copy of the checkout with an environment of its own, in which mutants are tried one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._times = 0
        for name in _git("ls-files", "--cached", "--others", "--exclude-standard"):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self._python = self._environment(Path(sys.prefix))

    def _environment(self, real: Path) -> Path:
        """The packages of the environment we run in, and commands that import the project from the copy."""
        own = self.folder / "build" / "venv"
        packages = Path(*Path(ast.__file__).parts[-3:-1]) / "site-packages"  # lib/python3.11/site-packages
        (own / packages).mkdir(parents=True)
        (own / "bin").mkdir()
        shutil.copy2(real / "pyvenv.cfg", own)
        for found in [*(real / packages).iterdir(), *real.iterdir(), *(real / "bin").iterdir()]:
            place = own / found.relative_to(real)
            text = found.read_bytes() if found.is_file() and not found.is_symlink() else b""
            if place.exists():
                continue
            if text.startswith(b"#!") or found.suffix == ".pth":
                place.write_bytes(text.replace(str(ROOT).encode(), str(self.folder).encode()))
                place.chmod(found.stat().st_mode)
            else:
                place.symlink_to(found.readlink() if found.is_symlink() else found)
        return own / "bin" / "python"

    def tests(self) -> dict[str, str]:
        """Name and text of all test files."""
        files = sorted((self.folder / "tests").rglob("test_*.py"))
        return {file.relative_to(self.folder).as_posix(): file.read_text() for file in files}

    def attempt(self, mutant: Mutant, limit_s: float) -> Result:
        """Run the module's tests with the mutant, for `limit_s` seconds at most."""
        started = time.monotonic()
        tests, left_out = in_order(mutant.path, self.tests()), list[str]()
        while True:
            rest_s = limit_s - (time.monotonic() - started)
            with self._with(mutant):
                outcome, failed = self._pytest(tests, left_out, rest_s)
            if outcome == KILLED and failed and self._pytest([failed], [], limit_s)[0] != LIVED:
                left_out.append(failed)
                if len(left_out) < MOST_FAILING:
                    continue
                outcome = TIMEOUT
            return Result(outcome, time.monotonic() - started, failed)

    @contextlib.contextmanager
    def _with(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.path
        source = path.read_text()
        self._write(path, changed(source, mutant))
        try:
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, text: str) -> None:
        """With a date of its own: bytecode is taken for that of the text where date and size are the same."""
        path.write_text(text)
        self._times += 1
        os.utime(path, (self._times, self._times))

    def _pytest(self, tests: Sequence[str], left_out: Sequence[str], limit_s: float) -> tuple[str, str]:
        """What became of the tests, and which of them failed."""
        command = [str(self._python), "-m", "pytest", "-x", "-q", "-n", "0", "-m", NOT_THESE]
        cache = self.folder / "build" / "pytest"
        shutil.rmtree(cache, ignore_errors=True)
        command += [f"--override-ini=cache_dir={cache}"]
        with subprocess.Popen(
            [*command, *(f"--deselect={test}" for test in left_out), *tests],
            cwd=self.folder,
            env={**os.environ, "PATH": f"{self._python.parent}:{os.environ['PATH']}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                process.wait(max(limit_s, 1.0))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # pytest ends what its tests have started
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                return TIMEOUT, ""
        found = cache / "v" / "cache" / "lastfailed"
        failed = list(json.loads(found.read_text())) if found.exists() else []
        # 5: no test was left to be run
        return (LIVED if process.returncode in (0, 5) else KILLED), failed[0] if failed else ""


def _git(*command: str) -> list[str]:
    return subprocess.run(
        ["git", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split("\n")


def draw(sources: dict[str, str], seed: int, count: int) -> list[Mutant]:
    """So many mutants of all modules (path and source); a seed draws the same from the same sources. Pure."""
    everything = [mutant for path in sorted(sources) for mutant in mutants(path, sources[path])]
    return sorted(random.Random(seed).sample(everything, min(count, len(everything))))


def _chosen(options: argparse.Namespace, sources: dict[str, str]) -> list[Mutant]:
    if not options.at:
        return draw(sources, options.seed, options.count)[options.first :]
    path, _, line = options.at.partition(":")
    return [mutant for mutant in mutants(path, sources[path]) if not line or mutant.line == int(line)]


def main() -> None:
    """Try mutants, a line for each, then show those that lived."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20, help="how many are drawn")
    parser.add_argument("--first", type=int, default=0, help="leave out so many of those drawn")
    parser.add_argument("--at", metavar="FILE[:LINE]", help="all of a file or of a line, in place of a draw")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of one mutant")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at a time")
    options = parser.parse_args()
    files = [name for name in _git("ls-files", *PACKAGES) if name.endswith(".py")]
    sources = {name: (ROOT / name).read_text() for name in files if (ROOT / name).exists()}
    chosen = _chosen(options, sources)
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()

    def attempt(mutant: Mutant) -> Result:
        copy = copies.get()
        try:
            return copy.attempt(mutant, options.limit)
        finally:
            copies.put(copy)

    results: dict[Mutant, Result] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            copies.put(Copy(Path(folder, str(number))))
        for mutant, result in zip(chosen, pool.map(attempt, chosen), strict=True):
            results[mutant] = result
            where = f"{mutant.path}:{mutant.line}"
            print(
                f"{result.outcome:8}{result.seconds:5.0f} s  {mutant.kind:11}{where}  {result.test}",
                flush=True,
            )
    for outcome in (LIVED, TIMEOUT):
        for mutant in [mutant for mutant in chosen if results[mutant].outcome == outcome]:
            print(f"\n{outcome}: {mutant.path}\n{difference(sources[mutant.path], mutant)}")
    outcomes = [result.outcome for result in results.values()]
    print("\n" + ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in (KILLED, LIVED, TIMEOUT)))


if __name__ == "__main__":
    main()
