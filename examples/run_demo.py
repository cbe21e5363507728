"""Executes tensorflow_digits.ipynb in the Bitfusion kernel and checks from outside what it shows.

    python examples/run_demo.py             # what `make demo` calls

It relies on `/proc` and the pool's status, not on the notebook's output alone.

Writes build/demo/tensorflow_digits.ipynb and .html, prints a table, ends with 0 only if every check held.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

sys.path.insert(0, str(Path(__file__).resolve().parent))
from process_tree import Chain, Process, computed_ns, descendants, environment, find_chain, look

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "tensorflow_digits.ipynb"
OUTPUT = HERE.parent / "build" / "demo"
ACCURACY = 0.95
# A kernel's chain is gone, and its lease free, a second after a shutdown; on a busy machine so long at most.
GONE_S = 30.0
# Tags of cells: one that must wait for others, so long at least; one that gives the GPU back, and shows it.
WAITS, GIVES_BACK = "waits", "gives-back"
WAITED_S = 3.0


class Demo:
    """One execution, with what was seen of it."""

    def __init__(self, notebook: Path, kernel_name: str) -> None:
        self.notebook = nbformat.read(notebook, as_version=4)
        self.kernel_name = kernel_name
        self.cells = [cell for cell in self.notebook.cells if cell.cell_type == "code"]
        self.client: NotebookClient
        self.chain: Chain | None = None
        self.given: list[dict[str, Any]] = []
        self.lease = ""
        self.seen: dict[int, Process] = {}
        self.failures: list[str] = []
        self.times: list[float] = []
        self.in_kernel = 0
        self.by_proxy = 0
        self.computed = 0
        self.waited = ""
        self.gone = True

    def run(self) -> None:
        """Execute the notebook; what fails is kept for the table."""
        self.client = NotebookClient(
            self.notebook,
            kernel_name=self.kernel_name,
            timeout=600,
            resources={"metadata": {"path": str(HERE)}},
            on_cell_execute=self.before_cell,
            on_cell_executed=self.after_cell,
            on_cell_error=self.on_error,
        )
        try:
            self.client.execute()
        except CellExecutionError as error:
            self.failures.append(f"a cell failed: {error.ename}: {error.evalue}")
        except Exception as error:  # a kernel that died or never answered: shown in the table
            self.failures.append(f"the notebook stopped: {type(error).__name__}: {error}")
        self.wait_until_gone()

    def before_cell(self, cell: Any, cell_index: int) -> None:
        """Print the cell's title and note when it begins."""
        if cell.cell_type != "code":
            return
        number = len(self.times) + 1
        title = cell.source.strip().splitlines()[0].lstrip("# ")
        print(f"  [{number:2d}/{len(self.cells)}] {title[:66]:<68}", end="", flush=True)
        self.times.append(time.monotonic())
        kernel = look(self.chain.kernel.pid) if self.chain else None
        self.computed = computed_ns(kernel.pid) if kernel else 0

    def after_cell(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        """Print the cell's time and check which process computed it."""
        self.times[-1] = time.monotonic() - self.times[-1]
        print(f"{self.times[-1]:6.1f} s", flush=True)
        self.look_at_work(cell)
        text = output_text(cell)
        if "!bitfusion" in cell.source and re.search(r"(?m)^Error:", text):
            self.failures.append(f"cell {len(self.times)}: the bitfusion client printed an error:\n{text}")
        if WAITS in tags(cell):
            if "Waiting for GPUs" not in text or self.times[-1] < WAITED_S:
                self.failures.append(f"cell {len(self.times)} did not wait for anybody:\n{text}")
            self.waited = f"{self.times[-1]:.1f} s, behind another holder"
        if GIVES_BACK in tags(cell) and any(each["id"] == self.lease for each in pool_status()["leases"]):
            self.failures.append(f"cell {len(self.times)} did not give the GPU back")

    def on_error(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        """Print the traceback of a cell."""
        print("\n" + "\n".join(execute_reply["content"].get("traceback", [])))

    def look_at_work(self, cell: Any) -> None:
        """Check that this cell was computed by the one kernel under `bitfusion run`."""
        manager: Any = self.client.km
        proxy = manager.provisioner.pid
        self.seen.update(descendants(proxy))
        chain = find_chain(proxy)
        if all(line.startswith("%bitfusion") for line in cell.source.strip().splitlines()):
            self.by_proxy += 1  # needs no GPU
            return
        number = len(self.times)
        if chain is None:
            self.failures.append(f"cell {number} ran in no process under `bitfusion run`")
            return
        if self.chain is None:
            self.chain = chain
            variables = environment(chain.kernel.pid)
            self.given = json.loads(variables.get("BITFUSION_POOL_DEVICES", "[]"))
            self.lease = variables.get("BITFUSION_POOL_LEASE", "")
        if chain.kernel.pid != self.chain.kernel.pid:
            self.failures.append(f"cell {number} ran in another kernel: the first one ended")
        elif computed_ns(chain.kernel.pid) <= self.computed:
            self.failures.append(f"cell {number}: the kernel under `bitfusion run` did not compute")
        else:
            self.in_kernel += 1

    def cells_text(self) -> str:
        """How many cells ran where, for the table."""
        return f"{self.in_kernel} under `bitfusion run`, {self.by_proxy} %bitfusion"

    def check_afterwards(self) -> str:
        """What the outputs say, and that everything was given back. Returns the accuracy as text."""
        text = "\n".join(output_text(cell) for cell in self.cells)
        found = re.search(r"accuracy on digits it has never seen: ([\d.]+)%", text)
        if not found:
            self.failures.append("no accuracy was printed")
        elif float(found[1]) < 100 * ACCURACY:
            self.failures.append(f"TensorFlow learned too little: {found[1]} %")
        for cell in self.cells:
            if GIVES_BACK in tags(cell):
                self.check_that_it_shows_the_pool(output_text(cell))
        for error in re.findall(r"^Error: .*", text, re.MULTILINE):
            self.failures.append(f"a command of the notebook failed: {error}")
        for gpu in self.given:
            if gpu["name"] not in text or (gpu["simulated"] and "SIMULATED" not in text):
                self.failures.append(f"the notebook does not say what it was given: {gpu['name']}")
        return f"{found[1]} %" if found else "none"

    def check_that_it_shows_the_pool(self, text: str) -> None:
        """What is free now, this notebook's GPU included, is what was free when the cell ran."""
        for server in pool_status()["servers"]:
            for device in server["devices"]:
                free = f"{device['free_mib']} of {device['memory_mib']} MiB"
                if free not in text.replace(",", ""):
                    self.failures.append(f"the notebook does not show {free} free on a GPU:\n{text}")

    def wait_until_gone(self) -> None:
        """Until no process of the demo is left."""
        started = time.monotonic()
        while left := [p for p in self.seen.values() if (now := look(p.pid)) and now.words == p.words]:
            if time.monotonic() - started > GONE_S:
                self.failures += [f"process {p.pid} is left: {' '.join(p.words)[:100]}" for p in left]
                self.gone = False
                return
            time.sleep(0.02)


def tags(cell: Any) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def output_text(cell: Any) -> str:
    """All that a person reads below a cell."""
    parts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        parts.append(output.get("text", "") or data.get("text/markdown", "") or data.get("text/plain", ""))
    return "\n".join(parts)


def pool_status() -> dict[str, Any]:
    """The pool as its admin's command tells it."""
    command = Path(sys.executable).with_name("bitfusion-pool")
    answer = subprocess.run(
        [command, "status", "--json"], capture_output=True, text=True, check=True, timeout=30
    )
    status: dict[str, Any] = json.loads(answer.stdout)
    return status


def table(rows: list[tuple[str, str]]) -> str:
    left = max(len(name) for name, _ in rows)
    right = max(len(value) for _, value in rows)
    lines = [f"│ {name:<{left}} │ {value:<{right}} │" for name, value in rows]
    edges = "─" * (left + 2), "─" * (right + 2)
    return "\n".join(["┌{}┬{}┐".format(*edges), *lines, "└{}┴{}┘".format(*edges)])


def lease_row(demo: Demo) -> str:
    """Is the lease back, and is the pool as free as it was before?"""
    if not demo.lease:
        return "ended with the wrapper" if demo.chain else "none was taken"
    status = pool_status()
    if any(lease["id"] == demo.lease for lease in status["leases"]):
        demo.failures.append(f"the lease {demo.lease} is still held")
        return "NO, still held"
    devices = [device for server in status["servers"] for device in server["devices"]]
    free = sum(device["free_mib"] for device in devices)
    total = sum(device["memory_mib"] for device in devices)
    if status["leases"]:
        return f"yes; {free} of {total} MiB are free, others hold the rest"
    return f"yes; all {total} MiB of the pool are free"


def main() -> int:
    parser = argparse.ArgumentParser(description="Execute the TensorFlow notebook in the Bitfusion kernel.")
    parser.add_argument("--kernel", default="bitfusion", help="the kernelspec's name (bitfusion)")
    parser.add_argument("--notebook", type=Path, default=NOTEBOOK, help="another notebook of this kind")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the executed notebook goes")
    options = parser.parse_args()
    started = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    print(f"{os.path.relpath(options.notebook)} in the kernel “{options.kernel}”", flush=True)
    demo = Demo(options.notebook, options.kernel)
    demo.run()
    accuracy = demo.check_afterwards()
    lease = lease_row(demo)

    executed = options.output / options.notebook.name
    nbformat.write(demo.notebook, executed)
    page, _ = HTMLExporter(template_name="lab").from_notebook_node(demo.notebook)
    executed.with_suffix(".html").write_text(page)

    gpus = [f"{gpu['name']}" for gpu in demo.given]
    shares = [f"{gpu['memory_mib']} of {gpu['total_mib']} MiB" for gpu in demo.given]
    kinds = [
        "simulated, TensorFlow computed on the CPU" if gpu["simulated"] else "real" for gpu in demo.given
    ]
    unknown = ["as the client's server gave it"] if demo.chain else ["none"]
    print(
        table(
            [
                ("Cells", f"{len(demo.times)} of {len(demo.cells)}: {demo.cells_text()}"),
                ("Accuracy", accuracy),
                ("Waited", demo.waited or "for nobody"),
                ("Time", f"{time.monotonic() - started:.1f} s"),
                ("GPU", ", ".join(gpus or unknown)),
                ("Share", ", ".join(shares or unknown)),
                ("Server", ", ".join({gpu["server"] for gpu in demo.given} or unknown)),
                ("Kind", ", ".join(sorted(set(kinds)) or ["real" if demo.chain else "none"])),
                ("Lease returned", lease),
                ("Processes left", "none" if demo.gone else "SOME"),
                ("Notebook", os.path.relpath(executed)),
                ("Page", os.path.relpath(executed.with_suffix(".html"))),
            ]
        )
    )
    for failure in demo.failures:
        print(f"✗ {failure}")
    print("✓ all checks held" if not demo.failures else f"✗ {len(demo.failures)} checks failed")
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
