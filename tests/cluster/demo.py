"""From nothing to the executed TensorFlow notebook in a pod, and back: what `make cluster-demo` shows.

A Kubernetes with one real node is started, everything of this project is installed on it from `manifests/`,
a Notebook is created as Kubeflow's form does, its JupyterLab executes `examples/tensorflow_digits.ipynb` in
the Bitfusion kernel, and the stop button gives everything back. What was seen is checked and told in a table;
the executed notebook is written to `build/cluster-demo/`.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

from bitfusion_client.text_table import box
from tests.cluster.binaries import CONTROL_PLANE, NODE, VERSION, ClusterUnavailable, binaries
from tests.cluster.components import ComponentFailed
from tests.cluster.debian_packages import PackagesUnavailable
from tests.cluster.image_builder import BuildFailed
from tests.cluster.installation import Installation, Notebook, installed
from tests.cluster.node import Node, cluster_with_node, why_no_node
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "build" / "cluster-demo"
NOTEBOOK = "tensorflow_digits.ipynb"
NAMESPACE, NAME = "team-vision", "digits"
SIZE = {"bitfusion.io/gpu-50": "1"}
ACCURACY = 95.0


class Steps:
    """One run of a demo: its steps are told as they end, and what was seen in a table at the end."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self._began = self._last = self._cell_began = time.monotonic()

    def done(self, step: str) -> None:
        """Tell that a step is over, and keep what it took."""
        now = time.monotonic()
        took, self._last = now - self._last, now
        print(f"  ✓ {step:<60} {took:6.1f} s", flush=True)
        self.rows.append((step, f"{took:.1f} s"))

    def check(self, held: object, failure: str) -> None:
        """Keep the failure if something did not hold."""
        if not held:
            self.failures.append(failure)

    def run(self) -> int:
        """The whole way; returns the exit status."""
        raise NotImplementedError

    def begin(self) -> None:
        """What is built once is there; from now on it counts."""
        self._began = self._last = time.monotonic()

    def end(self) -> int:
        """Tell all that was seen; returns the exit status."""
        self.rows.append(("from nothing, in all", f"{time.monotonic() - self._began:.0f} s"))
        print(box(["what", "seen"], self.rows), end="")
        for failure in self.failures:
            print(f"✗ {failure}")
        print("✓ all checks held" if not self.failures else f"✗ {len(self.failures)} checks failed")
        return 1 if self.failures else 0

    def cell_begins(self, notebook: Any) -> Callable[[int, str], None]:
        """For `ServedKernel.execute`: tells each code cell of the notebook; `cell_ended` tells its end."""
        cells = sum(cell.cell_type == "code" for cell in notebook.cells)

        def before(number: int, title: str) -> None:
            self._cell_began = time.monotonic()
            print(f"      [{number:2d}/{cells}] {title[:50]:<52}", end="", flush=True)

        return before

    def cell_ended(self, number: int) -> None:
        """Cell `number` has ended."""
        print(f"{time.monotonic() - self._cell_began:6.1f} s", flush=True)


class Demo(Steps):
    """On a pool."""

    def run(self) -> int:
        """The whole way; returns the exit status."""
        print("cluster-demo: a notebook on half a GPU, in a pod of a real node", flush=True)
        built = {name: binaries(say, each) for name, each in (("cluster", CONTROL_PLANE), ("node", NODE))}
        self.begin()
        with cluster_with_node(built["cluster"], built["node"]) as node:
            self.done(f"Kubernetes {VERSION} with one node")
            with installed(node, self.done) as installation:
                self._user(node, installation)
        self.done("all of it ended")
        return self.end()

    def _user(self, node: Node, installation: Installation) -> None:
        with installation.user(NAMESPACE) as user:
            self.done(f"namespace {NAMESPACE} opted in, its token is there")
            notebook = user.notebook(NAME, SIZE)
            pod = notebook.wait_ready()
            self.done("Notebook created, its pod runs")
            executed = self._execute(notebook, installation)
            self.done("notebook executed in JupyterLab's server")
            notebook.stop()
            wait_until(lambda: not installation.pool.leases(), installation.pool.leases, 30)
            self.done("stopped: pod gone, lease back")
            devices = [each for server in installation.pool.status()["servers"] for each in server["devices"]]
            free, total = (sum(each[key] for each in devices) for key in ("free_mib", "memory_mib"))
            self.check(free == total, f"{total - free} MiB of the pool are not back")
            self.rows.append(("returned", f"all {total} MiB of the pool are free" if free == total else "NO"))
        self._tell(node, pod, executed)

    def _execute(self, notebook: Notebook, installation: Installation) -> Any:
        server = notebook.jupyter()
        self.done("JupyterLab answers")
        source = nbformat.read(ROOT / "examples" / NOTEBOOK, as_version=4)
        server.upload(NOTEBOOK, source)
        kernel = server.open(NOTEBOOK, "bitfusion")
        leases: list[dict[str, Any]] = []

        def after(number: int) -> None:
            self.cell_ended(number)
            leases[:] = leases or installation.pool.leases()

        try:
            executed = kernel.execute(source, self.cell_begins(source), after)
        except CellExecutionError as error:
            print()
            self.failures.append(f"a cell failed: {error.ename}: {error.evalue}")
            executed = source
        self.check(leases, "the pool never showed a lease")
        for lease in leases[:1]:
            self.rows.append(("lease, as the pool shows it", f"{lease['user']}: {lease['label']}"))
            self.check(lease["user"].endswith(f"/{NAMESPACE}"), f"the lease is {lease['user']}'s")
            self.check(f"{NAMESPACE}/{NAME}" in lease["label"], f"the lease is called {lease['label']}")
        return executed

    def _tell(self, node: Node, pod: Any, executed: Any) -> None:
        text = "\n".join(output_text(cell) for cell in executed.cells if cell.cell_type == "code")
        found = re.search(r"accuracy on digits it has never seen: ([\d.]+)%", text)
        self.check(found, "no accuracy was printed")
        self.check(
            found and float(found[1]) >= ACCURACY, f"TensorFlow learned too little: {found and found[1]} %"
        )
        for error in re.findall(r"^Error: .*", text, re.MULTILINE):
            self.failures.append(f"a command of the notebook failed: {error}")
        self.check("simulated" in text.lower(), "the notebook does not say that its GPU is simulated")
        limits = next(each for each in pod["spec"]["containers"] if each["name"] == NAME)["resources"][
            "limits"
        ]
        self.check(limits.get("bitfusion.io/gpu") == "50", f"the pod counts {limits} units")
        self.rows += [
            ("pod", f"{NAMESPACE}/{NAME}-0"),
            ("node", f"{node.name}, kubelet {VERSION}, containerd"),
            ("size", f"1 GPU × 50 %, {limits.get('bitfusion.io/gpu')} units"),
            ("accuracy", f"{found[1]} %" if found else "none"),
            ("kind", "simulated, TensorFlow computed on the CPU"),
        ]
        self.rows.append(("executed notebook", write(executed, NOTEBOOK)))


def write(executed: Any, name: str) -> str:
    """Keep an executed notebook, as a page, too; returns where."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    nbformat.write(executed, OUTPUT / name)
    page, _ = HTMLExporter(template_name="lab").from_notebook_node(executed)
    (OUTPUT / name).with_suffix(".html").write_text(page)
    return str((OUTPUT / name).relative_to(ROOT))


def output_text(cell: Any) -> str:
    """All that a person reads below a cell."""
    parts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        parts.append(output.get("text", "") or data.get("text/markdown", "") or data.get("text/plain", ""))
    return "\n".join(parts)


def say(line: str) -> None:
    print(line, flush=True)


def main_of(demo: type[Steps]) -> int:
    """Run one; 3 where no node can run here, with one line that says why."""
    reason = why_no_node()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 3
    try:
        return demo().run()
    except (AssertionError, BuildFailed, ClusterUnavailable, ComponentFailed, PackagesUnavailable) as failed:
        print(f"✗ {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cluster-demo: stopped; nothing of it is left", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main_of(Demo))
