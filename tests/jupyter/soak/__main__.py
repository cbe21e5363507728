"""`python -m tests.jupyter.soak --minutes 60`: prints what was done and every anomaly; 0 if there is none."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

from tests.jupyter.conftest import FIRST_CELL, HALF, SPECS, START, bitfusion_kernel_command
from tests.jupyter.embedded_pool import CLIENT, Pool
from tests.jupyter.jupyter_server import Server
from tests.jupyter.soak.actions import WEIGHTS, next_action
from tests.jupyter.soak.invariants import Watcher, device_load, what_is_left
from tests.jupyter.soak.notebooks import IDLE_RELEASE, Managed, Notebook, Served
from tests.jupyter.tools import TOOLS, ToolRun, limits
from tests.support.machine import VARIABLE, measure

GPUS = 2
NOTEBOOKS = 5
GIVES_BACK = 2
"""The notebook whose kernel gives back an idle GPU."""
BATCH = ("x = 6", "y = 7", "print(x * y)")
BATCH_S = 600
"""Seconds for them: everybody who holds a GPU gives it back long before that."""


class Soak:
    """One run."""

    def __init__(self, seed: int, minutes: float) -> None:
        self._random = Random(seed)
        self._until = time.monotonic() + minutes * 60
        self._began = time.monotonic()
        self._done: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.anomalies: list[str] = []

    def tell(self, text: str) -> None:
        """Of an anomaly, at once."""
        with self._lock:
            self.anomalies.append(text)
            print(f"ANOMALY at {time.monotonic() - self._began:.0f} s: {text}", flush=True)

    def use(self, notebook: Notebook) -> None:
        """What happens to one notebook, in its own thread."""
        try:
            notebook.start()
            while time.monotonic() < self._until:
                action = next_action(notebook)
                notebook.note(action.__name__)
                try:
                    action(notebook)
                except Exception:
                    told = (traceback.format_exc(), *notebook.diary, "its log:", notebook.log())
                    self.tell("\n".join((f"{notebook.name}, {action.__name__}:", *told)))
                    notebook.shut_down()
                    notebook.start()
                with self._lock:
                    self._done[action.__name__] += 1
            notebook.shut_down()
        except Exception:
            self.tell(f"{notebook.name} cannot go on: {traceback.format_exc()}")

    def compete(self) -> None:
        """Programs without a notebook take GPUs now and then."""
        random = Random(self._random.random())
        while time.monotonic() < self._until:
            size = random.choice(("-n 1", "-n 2", "-p 0.5 -n 1")).split()
            program = ["sleep", f"{random.uniform(0, 3):.1f}"]
            asked = subprocess.Popen(
                [CLIENT, "run", *size, "--", *program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"BITFUSION_LABEL": "a program"},
            )
            try:
                asked.wait(random.uniform(1, 30))
            except subprocess.TimeoutExpired:
                asked.kill() if random.random() < 0.5 else asked.terminate()
                asked.wait()
            with self._lock:
                self._done["bitfusion run"] += 1
            time.sleep(random.uniform(0, 10))

    def batch(self, folder: Path) -> None:
        """A notebook that nobody watches: its tool waits as long as it has to, and runs it to its end."""
        random = Random(self._random.random())
        while time.monotonic() < self._until:
            tool = random.choice(list(TOOLS))
            started = ToolRun(
                tool, FIRST_CELL, folder, *BATCH, options=limits(tool, cell=BATCH_S, start=BATCH_S)
            )
            try:
                told = started.finish(BATCH_S)
                assert started.process.returncode == 0, told
                assert started.outputs()[-1][0]["text"] == "42\n", started.outputs()
            except (AssertionError, subprocess.TimeoutExpired):
                self.tell(f"{tool}: {traceback.format_exc()}")
                started.process.kill()
                started.process.wait()
            with self._lock:
                self._done["batch"] += 1
            time.sleep(random.uniform(0, 20))

    def progress(self) -> None:
        """A line a minute."""
        while time.monotonic() < self._until:
            time.sleep(min(60, max(0.1, self._until - time.monotonic())))
            with self._lock:
                minutes, actions = (time.monotonic() - self._began) / 60, sum(self._done.values())
                left = f"{actions} actions, {len(self.anomalies)} anomalies, {device_load()}"
            print(f"{minutes:5.1f} min: {left}", flush=True)

    def run(self, folder: Path) -> None:
        """All of it."""
        pool = Pool(folder / "pool")
        pool.write(gpus=GPUS)
        runtime, state = folder / "run", folder / "state"
        for each in (runtime, state):
            each.mkdir(mode=0o700)
        os.environ |= pool.environment | {"XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(state)}
        install_kernels(folder / "prefix")
        server = Server(folder)
        notebooks: list[Notebook] = []
        for number in range(NOTEBOOKS):
            spec = (FIRST_CELL, HALF, START)[number % 3]
            name, random = f"soak-{os.getpid()}-{number}.ipynb", Random(self._random.random())
            if number % 2:
                notebooks.append(Served(name, random, spec, server))
            else:
                settings = {IDLE_RELEASE: "1m"} if number == GIVES_BACK else {}
                notebooks.append(Managed(name, random, spec, folder, **settings))
        watcher = Watcher(pool, self.tell)
        watcher.start()
        threads = [threading.Thread(target=self.use, args=(notebook,)) for notebook in notebooks]
        threads += [threading.Thread(target=each) for each in (self.compete, self.progress)]
        threads.append(threading.Thread(target=self.batch, args=(folder,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        watcher.end()
        server.stop()
        for text in what_is_left(pool, [runtime, state]):
            self.tell(text)
        self._report(watcher.looks)

    def _report(self, looks: int) -> None:
        minutes = (time.monotonic() - self._began) / 60
        print(f"\n{minutes:.0f} min, {NOTEBOOKS} notebooks on {GPUS} GPUs, {looks} looks at the pool")
        for name in (*(action.__name__ for action in WEIGHTS), "bitfusion run", "batch"):
            print(f"  {name.replace('_', ' '):<26}{self._done[name]:>6}")
        print(f"  {'anomalies':<26}{len(self.anomalies):>6}")


def install_kernels(prefix: Path) -> None:
    """The kernels of the tests, found by what is started from here on."""
    for name, options in SPECS.items():
        install = ["install", "--prefix", str(prefix), "--name", name, *options]
        subprocess.run([*bitfusion_kernel_command(), *install], check=True, capture_output=True)
    os.environ["JUPYTER_PATH"] = str(prefix / "share" / "jupyter")


def main() -> int:
    """Run it and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.jupyter.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="of the choices; the order of events differs")
    given = parser.parse_args()
    seed = Random().randrange(10**6) if given.seed is None else given.seed
    os.environ.setdefault(VARIABLE, f"{max(2.0, measure(NOTEBOOKS)):.2f}")
    print(f"seed {seed}, time limits × {os.environ[VARIABLE]}", flush=True)
    soak = Soak(seed, given.minutes)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak.run(Path(folder))
    return 1 if soak.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
