"""The fixtures `cluster`, `node` and others: a real Kubernetes, and ones in which pods really run.

Each is started once a test process, lazily, for every test that names it. Under pytest-xdist one worker in
three has a cluster, as tests on it wait most of their time, and runs whole files: what a file's fixtures
install on the cluster is there once. All tests with the node run in one worker, those with two of their own
in another. `tests/conftest.py` registers this plugin, so it uses the standard library only until a test asks
for the cluster.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.binaries import (
    CONTROL_PLANE,
    HELM,
    KUBE_STATE_METRICS,
    KUEUE,
    NODE,
    Binaries,
    ClusterUnavailable,
    Parts,
    binaries,
    why_unavailable,
)

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster
    from tests.cluster.helm import Helm
    from tests.cluster.kube_state_metrics import KubeStateMetrics
    from tests.cluster.kueue import Kueue
    from tests.cluster.node import Node

_BESIDE = {"helm_binaries": HELM, "kueue": KUEUE, "kube_state_metrics": KUBE_STATE_METRICS}
"""By fixture: what runs beside a cluster, or in one of its own."""
_built_key = pytest.StashKey[dict[str, Binaries]]()
_failed_key = pytest.StashKey[dict[str, str]]()
"""By fixture: why there is none."""
_lines_key = pytest.StashKey[list[str]]()


def needs_cluster(item: pytest.Item) -> bool:
    """Whether the test, or a fixture of it, uses the fixture `cluster`, or one of `_BESIDE`."""
    return not {"cluster", *_BESIDE}.isdisjoint(getattr(item, "fixturenames", ()))


def nodes_of(item: pytest.Item) -> str:
    """The fixture of nodes that the test, or a fixture of it, uses; "" if there is none."""
    return next((name for name in ("node", "two_nodes") if name in getattr(item, "fixturenames", ())), "")


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
        if nodes := nodes_of(item):
            item.add_marker("node")
            item.add_marker(pytest.mark.xdist_group(nodes))
        elif item.path in groups:
            item.add_marker(pytest.mark.xdist_group(groups[item.path]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Build before the first test, in no test's time limit, when a test of this run needs the cluster."""
    config = session.config
    config.stash[_lines_key] = []
    worker_output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if worker_output is not None:
        worker_output["cluster_lines"] = config.stash[_lines_key]
    config.stash[_built_key] = {}
    config.stash[_failed_key] = {}
    if session.config.option.collectonly:
        return
    node = any(nodes_of(item) for item in session.items)
    if node or any(needs_cluster(item) for item in session.items):
        _prepare(config, "cluster", CONTROL_PLANE)
    if node:
        _prepare(config, "node", NODE)
    for fixture, parts in _BESIDE.items():
        if any(fixture in getattr(item, "fixturenames", ()) for item in session.items):
            _prepare(config, fixture, parts)


def _prepare(config: pytest.Config, fixture: str, parts: Parts) -> None:
    from tests.cluster.debian_packages import PackagesUnavailable
    from tests.cluster.node import prepare_packages, why_no_node

    reason = why_unavailable(parts)
    if fixture != "cluster":
        reason = config.stash[_failed_key].get("cluster") or reason
    if fixture == "node":
        reason = reason or why_no_node()
    if reason is not None:
        config.stash[_failed_key][fixture] = reason
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
        config.stash[_built_key][fixture] = binaries(say, parts)
        if fixture == "node":
            prepare_packages(say)
    except (ClusterUnavailable, PackagesUnavailable) as unavailable:
        config.stash[_failed_key][fixture] = str(unavailable)
    finally:
        if capture is not None:
            capture.resume_global_capture()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """All tests that are skipped for want of a cluster, or of a node, are one line of pytest's summary."""
    report = yield
    reasons = item.config.stash.get(_failed_key, {}).values()
    if (
        report.skipped
        and isinstance(report.longrepr, tuple)
        and any(reason in report.longrepr[2] for reason in reasons)
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
    _leave_out_without(pytestconfig, "cluster")
    from tests.cluster.cluster import Cluster

    running = Cluster.start(pytestconfig.stash[_built_key]["cluster"])
    line = f"cluster: {running.binaries.told}, up in {running.start_s:.1f} s"
    pytestconfig.stash[_lines_key].append(line)
    try:
        yield running
    finally:
        running.end()


@pytest.fixture(scope="session")
def node(pytestconfig: pytest.Config) -> Iterator[Node]:
    """A node on which pods really run, in a cluster of its own (`node.cluster`), for all tests that name it.

    Skipped where it cannot run, with one line that says why; with CI=true that is a failure.
    """
    _leave_out_without(pytestconfig, "node")
    from tests.cluster.node import cluster_with_node

    built = pytestconfig.stash[_built_key]
    with cluster_with_node(built["cluster"], built["node"]) as running:
        yield running
        line = f"node: {built['node'].told}, cluster up in {running.cluster.start_s:.1f} s, "
        line += f"node ready {running.start_s:.1f} s later"
        if pods := running.pod_starts_s:
            line += f", a pod {statistics.median(pods):.1f} s after its creation (median of {len(pods)})"
        pytestconfig.stash[_lines_key].append(line)


@pytest.fixture(scope="module")
def two_nodes(pytestconfig: pytest.Config) -> Iterator[list[Node]]:
    """Two nodes in a cluster of their own, for the tests of one file.

    Skipped where they cannot run, with one line that says why; with CI=true that is a failure.
    """
    _leave_out_without(pytestconfig, "node")
    from tests.cluster.node import cluster_with_nodes

    built = pytestconfig.stash[_built_key]
    with cluster_with_nodes(built["cluster"], built["node"], ["n2"]) as running:
        yield running


@pytest.fixture(scope="module")
def kueue(pytestconfig: pytest.Config) -> Iterator[Kueue]:
    """A real Kueue in a cluster of its own (`kueue.cluster`), for the tests of one file.

    Skipped where it cannot be built, with one line that says why; with CI=true that is a failure.
    """
    _leave_out_without(pytestconfig, "kueue")
    from tests.cluster.kueue import kueue_on

    built = pytestconfig.stash[_built_key]
    with kueue_on(built["cluster"], built["kueue"]) as running:
        yield running


@pytest.fixture(scope="module")
def kube_state_metrics(pytestconfig: pytest.Config) -> Iterator[KubeStateMetrics]:
    """A real kube-state-metrics, to be started, in a cluster of its own, for the tests of one file.

    Skipped where it cannot be built, with one line that says why; with CI=true that is a failure.
    """
    _leave_out_without(pytestconfig, "kube_state_metrics")
    from tests.cluster.cluster import Cluster
    from tests.cluster.kube_state_metrics import KubeStateMetrics

    built = pytestconfig.stash[_built_key]
    cluster = Cluster.start(built["cluster"])
    program = KubeStateMetrics(cluster, built["kube_state_metrics"])
    try:
        yield program
    finally:
        program.end()
        cluster.end()


@pytest.fixture(scope="session")
def helm_binaries(pytestconfig: pytest.Config) -> Binaries:
    """Those with `helm`.

    Skipped where it cannot be built, with one line that says why; with CI=true that is a failure.
    """
    _leave_out_without(pytestconfig, "helm_binaries")
    return pytestconfig.stash[_built_key]["helm_binaries"]


@pytest.fixture(scope="session")
def helm(helm_binaries: Binaries, cluster: Cluster) -> Helm:
    """The program helm, for the fixture `cluster`."""
    from tests.cluster.helm import Helm

    return Helm(helm_binaries, cluster)


def _leave_out_without(config: pytest.Config, fixture: str) -> None:
    reason = config.stash[_failed_key].get(fixture)
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
