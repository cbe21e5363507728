"""Checks on a machine with an NVIDIA GPU what no test without one can: two programs with half a card each.

    make gpu-check                                  # fails where there is no GPU
    make gpu-check GPU=--allow-none                 # one sentence and status 0 where there is none
    python3 tools/gpu_check.py --python /path/to/python3    # whose PyTorch or TensorFlow computes

Needs no network and no environment of this project, only nvidia-ml-py and a PyTorch or TensorFlow that sees
the GPU. Makes a user's own pool in a temporary folder, trains two programs side by side on the first card,
lets a third one ask for more than its share, and does the same with a service. As root it trains one more in
namespaces of its own, as in a GPU pod, with all between here and there over the stream. Where that Python has
ipykernel it runs cells in a Bitfusion kernel. Prints what it saw, and ends with 0 only if every check held.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bitfusion_pods.command.keys import make_pair  # noqa: E402  # after the path
from bitfusion_pool.inventory.nvidia.reading_process import NvidiaUnusable, read_cards  # noqa: E402

COMMAND = ROOT / "bitfusion_pool" / "bin" / "bitfusion"
ADMIN = [sys.executable, "-m", "bitfusion_pool.admin.cli"]
START_S = 30.0  # for a service: the driver may take 8 s
LIMIT_S = 300.0
SEEN = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "tensorflow": "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))",
}

# Each waits for the other before it trains, and after, so that both hold their half at the same time.
_MEET = """
import json, os, pathlib, sys, time
folder, me, other = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def meet(where):
    (folder / (where + me)).touch()
    end = time.time() + 240
    while not (folder / (where + other)).exists():
        if time.time() > end:
            sys.exit("the other program did not come")
        time.sleep(0.01)
def report(first, last, seconds, mib):
    print(json.dumps({"uuid": os.environ["CUDA_VISIBLE_DEVICES"], "first": first, "last": last,
                      "seconds": seconds, "mib": mib}))
"""
TRAIN = {
    "torch": _MEET
    + """
import torch
torch.manual_seed(1)
x = torch.randn(4096, 256, device="cuda")
y = torch.sin(x.sum(1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
losses = []
meet("begin")
begin = time.time()
for step in range(300):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
seconds = time.time() - begin
meet("end")
report(losses[0], losses[-1], seconds, torch.cuda.max_memory_reserved() / 2**20)
""",
    "tensorflow": _MEET
    + """
import tensorflow as tf
tf.random.set_seed(1)
x = tf.random.normal((4096, 256))
y = tf.sin(tf.reduce_sum(x, 1, keepdims=True))
model = tf.keras.Sequential([tf.keras.layers.Dense(1024, "relu"), tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
model.train_on_batch(x, y)
losses = []
meet("begin")
begin = time.time()
for step in range(300):
    losses.append(float(model.train_on_batch(x, y)))
seconds = time.time() - begin
meet("end")
report(losses[0], losses[-1], seconds, tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20)
""",
}
# asks for twice what it holds, in pieces of 64 MiB; prints how far it came and the framework's words
_GREED = """
import json, os
device = json.loads(os.environ["BITFUSION_POOL_DEVICES"])[0]
kept, words = [], ""
try:
    while 64 * len(kept) < 2 * device["memory_mib"]:
        kept.append(piece())
except Exception as error:
    words = " ".join(str(error).split())[:300]
print(json.dumps({"share": device["memory_mib"], "got": 64 * len(kept), "words": words}))
"""
GREED = {
    "torch": "import torch\ndef piece(): return torch.zeros(64 << 20, dtype=torch.uint8, device='cuda')\n"
    + _GREED,
    "tensorflow": "import tensorflow as tf\ndef piece(): return tf.zeros((64 << 20,), tf.uint8) + 1\n"
    + _GREED,
}

CELLS = ROOT / "tools" / "gpu_check_cells.py"
HAS_KERNEL = "import ipykernel, jupyter_client"
INSTALL = "from bitfusion_kernel.cli import main; main()"

NO_ROOT = (
    "over the stream of GPU pods: not checked, as only root can make the namespaces that stand for a pod"
)


class Check:
    """The lines of the report, and whether all of them are good."""

    def __init__(self) -> None:
        self.good = True

    def line(self, good: bool, text: str) -> bool:
        """Print one line; returns whether it is good."""
        print(f"{'✓' if good else '✗'} {text}", flush=True)
        self.good = self.good and good
        return good


def check_own_pool(environ: dict[str, str], python: str, report: Check) -> None:
    """All checks with the pool of a user that `environ` names, which is made for it."""
    made = run([*ADMIN, "init", "--nvidia"], environ)
    if report.line(made.returncode == 0, (made.stdout or made.stderr).splitlines()[0]):
        check_programs(environ, python, report)


def check_service(environ: dict[str, str], python: str, report: Check) -> None:
    """All checks with a service, which is started for it."""
    folder = environ["TMPDIR"]
    with service(folder, environ) as log:
        started = last_line(log.read_text())
        good = '"service started"' in started and '"simulated": false' in started
        if report.line(good, f"service: {started}"):
            check_programs({**environ, "BITFUSION_POOL": f"{folder}/socket"}, python, report)


@contextmanager
def service(folder: str, environ: dict[str, str]) -> Iterator[Path]:
    """A service that hands out the cards, for as long as the context lasts; its log, once it has started."""
    log = Path(folder) / "service.log"
    options = ["--dir", f"{folder}/served", "serve", "--socket", f"{folder}/socket", "--gpus", "nvidia"]
    with log.open("wb") as writing:
        process = subprocess.Popen([*ADMIN, *options], env=environ, cwd=ROOT, stderr=writing)
    try:
        end = time.monotonic() + START_S
        while process.poll() is None and "service started" not in log.read_text():
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        yield log
    finally:
        process.terminate()
        process.wait(START_S)


def check_programs(environ: dict[str, str], python: str, report: Check) -> None:
    """Two programs with half a card each, and one that wants more, with the pool that `environ` names."""
    framework = next((name for name in TRAIN if _sees_gpu(name, environ, python)), "")
    if not report.line(bool(framework), _framework_text(framework, python)):
        return
    with tempfile.TemporaryDirectory() as folder:
        both = [
            subprocess.Popen(
                leased("0.5", python, TRAIN[framework], folder, me, other),
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for me, other in (("a", "b"), ("b", "a"))
        ]
        answers = [process.communicate(timeout=LIMIT_S) for process in both]
    found = [answer_of(out) for out, _ in answers]
    for name, answer, (_, err) in zip("ab", found, answers, strict=True):
        learned = bool(answer) and answer["last"] < answer["first"]
        report.line(learned, f"half {name}: {_training_text(answer) or last_line(err)}")
    if all(found):
        report.line(found[0]["uuid"] == found[1]["uuid"], f"both at the same time on {found[0]['uuid']}")
    greedy = run(leased("0.25", python, GREED[framework]), environ)
    answer = answer_of(greedy.stdout)
    refused = bool(answer) and bool(answer["words"]) and answer["got"] <= answer["share"]
    report.line(refused, f"more than its share: {_greed_text(answer) or last_line(greedy.stderr)}")
    print(run([str(COMMAND), "smi"], environ).stdout, end="")


def check_stream(environ: dict[str, str], python: str, uuid: str, report: Check) -> None:
    """A program on the first card, as in a GPU pod: in other namespaces, behind the agent and the stream."""
    framework = next((name for name in TRAIN if _sees_gpu(name, environ, python)), "")
    if os.geteuid():
        print(f"– {NO_ROOT}", flush=True)
        return
    if not framework:
        return  # said before
    with tempfile.TemporaryDirectory() as folder:
        for side in ("client", "pod", "agent", "run"):
            os.makedirs(f"{folder}/{side}")
        make_pair(f"{folder}/client")
        make_pair(f"{folder}/pod")
        shutil.copy(f"{folder}/client/tls.crt", f"{folder}/agent/client.crt")
        for name in ("tls.key", "tls.crt"):
            shutil.copy(f"{folder}/pod/{name}", f"{folder}/agent/{name}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        given = {
            **environ,
            **{"PODS_KEYS": folder, "PODS_PORT": port, "PODS_AGENT_PORT": port, "PODS_GPU": uuid},
            **{"PODS_HEARD": f"{folder}/heard", "XDG_RUNTIME_DIR": f"{folder}/run"},
        }
        command = [sys.executable, "-m", "tests.pods.command.run_in_namespace", "run", "-n", "1", "--"]
        done = run([*command, python, "-c", TRAIN[framework], folder, "a", "a"], given)
    answer = answer_of(done.stdout)
    learned = bool(answer) and answer["last"] < answer["first"]
    report.line(learned, f"over the stream of GPU pods: {_training_text(answer) or last_line(done.stderr)}")


def check_kernel(environ: dict[str, str], python: str, report: Check) -> None:
    """Cells on half of a card: more than its share, a restart, given back, taken again."""
    framework = next((name for name in TRAIN if _sees_gpu(name, environ, python)), "")
    if not framework:
        return  # said before
    if run([python, "-c", HAS_KERNEL], environ).returncode:
        print(f"– cells of a kernel: not checked, as {python} has no ipykernel", flush=True)
        return
    prefix = f"{environ['TMPDIR']}/prefix"
    size = ["--num_gpus", "1", "--partial", "0.5", "--filter", "device.id=0"]
    installed = run([python, "-c", INSTALL, "install", "--prefix", prefix, *size], environ)
    said = (installed.stdout or installed.stderr).partition("\n")[0]
    if not report.line(installed.returncode == 0, said):
        return
    done = run([python, str(CELLS), framework], {**environ, "JUPYTER_PATH": f"{prefix}/share/jupyter"})
    answer = answer_of(done.stdout)
    if not answer:
        report.line(False, f"cells of a kernel: {last_line(done.stderr)}")
        return
    right = str(1 << 20)
    first = "first cell, which imports the framework: {computed} after {seconds:.1f} s".format(**answer)
    report.line(answer["computed"].endswith(right), first)
    report.line("memory" in answer["refused"], f"more than its share in a cell: {answer['refused'][:200]}")
    report.line(answer["kept"], "after a restart the kernel has the GPU that it had")
    report.line("no GPU" in answer["status"], f"given back: {answer['status']}")
    again = answer["again"].split()
    report.line(again[-2:] == ["False", right], "the next cell has a GPU, and no variables of the one before")


def leased(partial: str, python: str, code: str, *arguments: str) -> list[str]:
    """The command line of a program with a part of the first card."""
    options = ["run", "-n", "1", "-p", partial, "--filter", "device.id=0", "--"]
    return [str(COMMAND), *options, python, "-c", code, *arguments]


def run(command: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command, ended."""
    return subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)


def answer_of(out: str) -> dict[str, Any]:
    """The JSON in the last line of a program's output; empty if there is none."""
    try:
        found = json.loads(last_line(out))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def last_line(text: str) -> str:
    """The last line with something on it."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _sees_gpu(name: str, environ: dict[str, str], python: str) -> bool:
    done = run([python, "-c", SEEN[name]], environ)
    return done.returncode == 0 and last_line(done.stdout) not in ("", "0")


def _framework_text(framework: str, python: str) -> str:
    if framework:
        return f"{framework} of {python} computes"
    return f"neither PyTorch nor TensorFlow of {python} sees a GPU: nothing was trained; name another Python"


def _training_text(answer: dict[str, Any]) -> str:
    if not answer:
        return ""
    return "300 steps in {seconds:.2f} s, loss {first:.4f} → {last:.4f}, {mib:.0f} MiB".format(**answer)


def _greed_text(answer: dict[str, Any]) -> str:
    return "{got} MiB of a share of {share} MiB, then: {words}".format(**answer) if answer else ""


def main() -> int:
    """Print the report; returns the exit status."""
    parser = argparse.ArgumentParser("gpu_check", description="Check the pool on a real NVIDIA GPU.")
    parser.add_argument("--allow-none", action="store_true", help="without a GPU end with status 0")
    parser.add_argument(
        "--python", default=sys.executable, metavar="PATH", help="whose PyTorch or TensorFlow"
    )
    options = parser.parse_args()
    try:
        reading = read_cards(os.environ)
    except NvidiaUnusable as error:
        print(f"Nothing was checked: {error}")
        return 0 if options.allow_none else 1
    report = Check()
    names = ", ".join(f"{card.name} ({card.memory_mib} MiB)" for card in reading.cards) or "none"
    report.line(bool(reading.cards), f"driver {reading.driver_version}, CUDA {reading.cuda_version}: {names}")
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            **os.environ,
            "BITFUSION_POOL_DIR": f"{folder}/pool",
            "BITFUSION_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
            "TMPDIR": folder,
        }
        check_own_pool(environ, options.python, report)
        check_service(environ, options.python, report)
        check_stream(environ, options.python, reading.cards[0].uuid if reading.cards else "", report)
        check_kernel(environ, options.python, report)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
