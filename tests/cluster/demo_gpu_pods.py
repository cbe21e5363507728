"""`make cluster-demo GPUS=cluster`: from nothing to a notebook's TensorFlow in a pod on the node with GPUs.

A Kubernetes with two real nodes is started, one of them with two GPUs of a plugin of the tests; what an admin
installs is installed; a Notebook is created as Kubeflow's form does, and its JupyterLab executes
`examples/tensorflow_digits.ipynb` in the Bitfusion kernel, in a pod that is made for it on the GPU node. Then
the GPU is given back and taken again by the next cell. The executed notebook is written to
`build/cluster-demo/`.
"""

from __future__ import annotations

import re
import time
from typing import Any

import nbformat
from nbclient.exceptions import CellExecutionError

from tests.cluster.binaries import CONTROL_PLANE, NODE, VERSION, binaries
from tests.cluster.demo import (
    ACCURACY,
    NAME,
    NAMESPACE,
    NOTEBOOK,
    ROOT,
    Steps,
    main_of,
    output_text,
    say,
    write,
)
from tests.cluster.gpu_cluster import GPUS, GpuCluster, GpuNotebook, GpuUser, gpus_installed
from tests.cluster.gpu_plugin import GPU
from tests.cluster.live_kernel import LiveKernel
from tests.cluster.node import cluster_with_nodes
from tests.cluster.served_notebook import JupyterServer
from tests.support.waiting import wait_until

EXECUTED = "gpu_pods.ipynb"
TRAINING = "# Train a small network"
WHERE = "import socket; print(socket.gethostname())"
MOST_BACK_S = 3.0


class GpuDemo(Steps):
    """On the GPUs of the cluster itself."""

    def run(self) -> int:
        """The whole way; returns the exit status."""
        say("cluster-demo: a notebook on a node without GPUs, its TensorFlow in a pod on the node with GPUs")
        built = {name: binaries(say, each) for name, each in (("cluster", CONTROL_PLANE), ("node", NODE))}
        self.begin()
        with cluster_with_nodes(built["cluster"], built["node"], ["n2"]) as nodes:
            self.done(f"Kubernetes {VERSION} with two nodes")
            with gpus_installed(nodes, self.done) as gpus, gpus.user(NAMESPACE) as user:
                self.done(f"namespace {NAMESPACE}: restricted, the rights of kubeflow-edit")
                self._user(gpus, user)
        self.done("all of it ended")
        return self.end()

    def _user(self, gpus: GpuCluster, user: GpuUser) -> None:
        notebook = user.notebook(NAME)
        pod = notebook.wait_ready()
        self.done("Notebook created, its pod runs")
        where = pod["spec"]["nodeName"]
        self.check(where == gpus.nodes[0].name, f"the notebook is on {where}")
        server = notebook.jupyter()
        self.done("JupyterLab answers")
        self.rows.append(("notebook", f"pod {pod['metadata']['name']} on {where}, which has no GPU"))
        self._execute(gpus, user, server)
        self._give_back(gpus, user, server)
        notebook.delete()
        user.wait_no_gpu_pod()
        self.done("notebook deleted, its pods gone")
        self.check(not gpus.held(), f"GPUs are still held: {gpus.held()}")
        self._stopped(notebook)

    def _execute(self, gpus: GpuCluster, user: GpuUser, server: JupyterServer) -> None:
        source = training_notebook()
        server.upload(NOTEBOOK, source)
        kernel = server.open(NOTEBOOK, "bitfusion")
        pods: list[Any] = []

        def after(number: int) -> None:
            self.cell_ended(number)
            pods[:] = pods or user.gpu_pods()

        executed = source
        try:
            executed = kernel.execute(source, self.cell_begins(source), after)
        except CellExecutionError as error:
            say("")
            self.failures.append(f"a cell failed: {error.ename}: {error.evalue}")
        self.done("notebook executed in JupyterLab's server")
        self.check(pods, "there was no GPU pod")
        for pod in pods[:1]:
            node, held = pod["spec"].get("nodeName"), sum(gpus.held().values())
            self.rows.append(
                ("GPU pod", f"{pod['metadata']['name']} on {node}, which holds {held} of {GPUS} {GPU}")
            )
            self.check(node == gpus.gpu_node.name, f"the GPU pod is on {node}")
            self.check(held == 1, f"{held} GPUs are held, not 1")
        text = "\n".join(output_text(cell) for cell in executed.cells if cell.cell_type == "code")
        found = re.search(r"accuracy on digits it has never seen: ([\d.]+)%", text)
        self.check(found, "no accuracy was printed")
        learned = float(found[1]) if found else 0.0
        self.check(learned >= ACCURACY, f"TensorFlow learned too little: {learned} %")
        for line in re.findall(r"^Error: .*", text, re.MULTILINE):
            self.failures.append(f"a command of the notebook failed: {line}")
        self.rows += [
            ("accuracy", f"{learned} %"),
            ("kind", f"{GPU} of a plugin of the tests, TensorFlow computed on the CPU"),
            ("executed notebook", write(executed, EXECUTED)),
        ]
        kernel.end()
        user.wait_no_gpu_pod()
        self.done("kernel shut down, its GPU pod gone")

    def _give_back(self, gpus: GpuCluster, user: GpuUser, server: JupyterServer) -> None:
        with LiveKernel(server) as kernel:
            first = kernel.run(WHERE)
            name = user.one_gpu_pod()["metadata"]["name"]
            self.check(first.text.endswith(f"{name}\n"), f"the cell ran in {first.all}")
            self.rows.append(("first cell of a kernel", f"{first.seconds:.1f} s, image on the node"))
            began = time.monotonic()
            release = kernel.start("%bitfusion release -y")
            wait_until(lambda: not gpus.held(), gpus.held, 30)
            back_s = time.monotonic() - began
            release.finish()
            self.done("%bitfusion release: the GPU is free again")
            self.check(back_s <= MOST_BACK_S, f"the GPU came back after {back_s:.1f} s")
            self.rows.append(("released", f"GPU free after {back_s:.1f} s"))
            again = kernel.run(WHERE)
            other = user.one_gpu_pod()["metadata"]["name"]
            self.check(again.text.endswith(f"{other}\n") and other != name, f"the cell ran in {again.all}")
            self.done("the next cell has a GPU again")

    def _stopped(self, notebook: GpuNotebook) -> None:
        self.check(notebook.pod() is None, "the notebook's pod is still there")


def training_notebook() -> nbformat.NotebookNode:
    """The example's training, with what a notebook on the cluster's own GPUs is told around it.

    The rest of the example is about shares of a pool.
    """
    example = nbformat.read(ROOT / "examples" / NOTEBOOK, as_version=4)
    (training,) = (cell.source for cell in example.cells if cell.source.startswith(TRAINING))
    cells = [
        "# What there is, before anything computes\n%bitfusion",
        training.replace("\n", "\nimport os\n", 1),
        "# Where it computes\n%bitfusion",
        "# The cluster's GPUs\n!bitfusion list_gpus",
    ]
    made: nbformat.NotebookNode = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(each) for each in cells]
    )
    return made


if __name__ == "__main__":
    raise SystemExit(main_of(GpuDemo))
