"""For every test: a place of its own, nothing left behind, time limits that fit the machine.

After each test, and once more at the end of each test process, no process that a test started may be alive
that was not there before, no private folder may lie in ``XDG_RUNTIME_DIR``, and no lease may be held in the
pool (`tests.support.place`). In a pool that a test has for itself a lease lives as long as its process, which
is looked for, or is thrown away with the pool's folder.

Tests may run in several processes (``-n``, pytest-xdist). Each has its own place and makes its own session
fixtures. Tests that share what takes long to make, as a browser or a controller on the cluster, are marked as
one `xdist_group`, which runs in one process.

Helpers of a package's tests are imported as ``tests.<package>.<helper>``, those of all as
``tests.support.<helper>``.
"""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import VARIABLE, scaled, share_time_factor, time_factor
from tests.support.place import NOTHING, Contents, Place, current_place
from tests.support.waiting import wait_until

pytest_plugins = [
    # The fixture `cluster`. Its processes live as long as the test process: they don't carry the mark, and it
    # looks for leftovers itself.
    "tests.cluster.plugin",
    "tests.support.groups",
    "tests.support.no_skips",
    "tests.support.kernel_ports",
    "tests.support.one_case",
    "tests.support.run_blocks",
]

_complaints_key = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    # A kernel's chain has 5 s to go while a server lives that might restart it.
    parser.addini("leftovers_limit", "seconds in which what a test started must be gone", default="8")


def pytest_configure(config: pytest.Config) -> None:
    # Started in the background, or by nohup, everything under us would ignore these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # A make that a test runs is a user's, not a part of the one above us.
    for name in ("MAKEFLAGS", "MAKELEVEL"):
        os.environ.pop(name, None)
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        share_time_factor(config.getoption("numprocesses", None) or 1)
        place = Place()
    else:
        os.environ[VARIABLE] = worker["time_factor"]
        place = Place(worker["workerid"], worker["place"])
    place.enter()
    config.stash[_complaints_key] = []
    from hypothesis import settings

    # Time limits are pytest-timeout's; a database would make one run depend on another.
    settings.register_profile("suite", deadline=None, database=None)
    settings.load_profile("suite")


def pytest_unconfigure() -> None:
    current_place().leave()


def pytest_report_header(config: pytest.Config) -> str:
    return f"time limits: × {time_factor():.2f} on this machine"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The workers of ``-n auto``: tests wait most of their time, for processes or the clock."""
    return 3 * len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker, before it starts, where its place is."""
    node.workerinput["place"] = current_place().address
    node.workerinput["time_factor"] = os.environ[VARIABLE]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker found at its end, and whether it died before."""
    output: dict[str, Any] = getattr(node, "workeroutput", {})
    node.config.stash[_complaints_key] += output.get("left_behind", [])
    if error:
        node.config.stash[_complaints_key].append(f"tests that did not run: a test process died: {error}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test its time limit on this machine; with workers, let groups and slow tests begin first.

    The files of the others follow in no order, so that those that wait run beside those that compute.
    """
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0] if marker else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(scaled(limit_s)), append=False)
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if any(item.get_closest_marker(name) for name in ("xdist_group", "slow", "long")):
        return 0
    return 1 + zlib.crc32(str(item.path.relative_to(item.config.rootpath)).encode())


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Look for what is left behind by the process, or by its workers after they have ended."""
    yield
    config = session.config
    complaints = config.stash[_complaints_key]
    left = _left_behind(config, NOTHING)
    if left:
        complaints.append(str(left))
    worker_output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if worker_output is not None:
        worker_output["left_behind"] = complaints
    elif complaints:
        print("\nleft behind by the whole run:\n  " + "\n  ".join(complaints))
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR  # no test's alone


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process, a private folder or a lease, and remove what it left.

    Fixtures of a wider scope are set up before this one, so their servers are not the test's.
    """
    before = current_place().contents()
    yield
    left = _left_behind(request.config, before)
    if left:
        pytest.fail(f"the test left behind:\n  {left}", pytrace=False)


@pytest.fixture
def pool_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty pool folder of the test's own, which its processes use."""
    folder = tmp_path / "pool"
    monkeypatch.setenv("BITFUSION_POOL_DIR", str(folder))
    return folder


def _left_behind(config: pytest.Config, before: Contents) -> Contents:
    """What has come since and stays, which is removed."""
    place = current_place()
    left = NOTHING

    def clean() -> bool:
        nonlocal left
        left = place.contents() - before
        return not left

    try:
        wait_until(clean, limit_s=float(config.getini("leftovers_limit")))
    except AssertionError:
        place.clear(left)
    return left
