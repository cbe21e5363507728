"""The fixture `cluster` for every test that names it: a real Kubernetes, started once a test process, lazily.

Under pytest-xdist one worker in three has a cluster, as tests on it wait most of their time, and runs whole
files: what a file's fixtures install on the cluster is there once. `tests/conftest.py` registers this plugin,
so it uses the standard library only until a test asks for the cluster.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.binaries import Binaries, ClusterUnavailable, binaries, cached, why_unavailable

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

_built_key = pytest.StashKey[Binaries]()
_failed_key = pytest.StashKey[str]()
_lines_key = pytest.StashKey[list[str]]()


def needs_cluster(item: pytest.Item) -> bool:
    """Whether the test, or a fixture of it, uses the fixture `cluster`."""
    return "cluster" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark them, so that ``-m "not cluster"`` leaves them out; share their files out among some workers."""
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    clusters = max(1, workers // 3)
    files = sorted({item.path for item in items if needs_cluster(item)})
    groups = {path: f"cluster {number % clusters + 1}" for number, path in enumerate(files)}
    for item in items:
        if needs_cluster(item):
            item.add_marker("cluster")
        if item.path in groups:
            item.add_marker(pytest.mark.xdist_group(groups[item.path]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Build before the first test, in no test's time limit, when a test of this run needs the cluster."""
    config = session.config
    config.stash[_lines_key] = []
    worker_output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if worker_output is not None:
        worker_output["cluster_lines"] = config.stash[_lines_key]
    if session.config.option.collectonly:
        return
    if not any(needs_cluster(item) for item in session.items):
        return
    reason = why_unavailable()
    if reason is not None:
        config.stash[_failed_key] = reason
        return
    if cached() is not None:
        config.stash[_built_key] = binaries()
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")

    def say(line: str) -> None:
        if reporter is None:  # in a worker
            print(line, file=sys.stderr, flush=True)
        else:
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()

    if capture is not None:
        capture.suspend_global_capture(in_=True)
    try:
        config.stash[_built_key] = binaries(say)
    except ClusterUnavailable as unavailable:
        config.stash[_failed_key] = str(unavailable)
    finally:
        if capture is not None:
            capture.resume_global_capture()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """All tests that are skipped for want of a cluster are one line of pytest's summary."""
    report = yield
    reason = item.config.stash.get(_failed_key, None)
    if (
        reason is not None
        and report.skipped
        and isinstance(report.longrepr, tuple)
        and reason in report.longrepr[2]
    ):
        report.longrepr = (__file__, 0, report.longrepr[2])
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the lines of a worker that has ended."""
    output: dict[str, Any] = getattr(node, "workeroutput", {})
    node.config.stash[_lines_key] += output.get("cluster_lines", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_lines_key, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A real Kubernetes with the Notebook CRD, for all tests of this process; see `tests/cluster/README.md`.

    Skipped where it cannot be built, with one line that says why; with CI=true that is a failure.
    """
    reason = pytestconfig.stash.get(_failed_key, None)
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    from tests.cluster.cluster import Cluster

    running = Cluster.start(pytestconfig.stash[_built_key])
    line = f"cluster: {running.binaries.told}, up in {running.start_s:.1f} s"
    pytestconfig.stash[_lines_key].append(line)
    try:
        yield running
    finally:
        running.end()
