"""`make gpu-check` where there is no GPU, and as far as it comes with a driver that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.pool.inventory.nvidia.fake_machine import NOT_LOADED, FakeMachine, card
from tests.support.machine import scaled
from tools import gpu_check as tool
from tools.gpu_check_cells import said

TOOL = Path(__file__).resolve().parents[2] / "tools" / "gpu_check.py"

TORCH = """\
import os
class OutOfMemory(Exception): pass
class Tensor:
    def __init__(self, value=0.0): self.value = value
    def sum(self, *a, **k): return self
    def mean(self): return self
    def backward(self): pass
    def item(self):
        Tensor.steps = getattr(Tensor, "steps", 0) + 1
        return 1.0 / Tensor.steps
    def __sub__(self, other): return self
    def __pow__(self, other): return self
class cuda:
    queued, limit = [], 1.0
    def _lazy_call(call): cuda.queued.append(call)
    def device_count(): return len([p for p in os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",") if p])
    def max_memory_reserved(): return 100 << 20
    def set_per_process_memory_fraction(fraction, device): cuda.limit = fraction
class nn:
    class Sequential:
        def __init__(self, *parts): pass
        def __call__(self, x): return x
        def cuda(self): return self
        def parameters(self): return []
    def Linear(*a): return None
    def ReLU(): return None
class optim:
    class Adam:
        def __init__(self, *a): pass
        def zero_grad(self): pass
        def step(self): pass
uint8, given = None, 0
def manual_seed(number): pass
def randn(*a, **k): return Tensor()
class ones:
    def __init__(self, size, device): self.size = size
    def sum(self): return self.size
def sin(x): return x
def zeros(size, dtype, device):
    global given
    if not given:
        [call() for call in cuda.queued]
    given += size
    if given > cuda.limit * (16000 << 20):
        raise OutOfMemory(f"CUDA out of memory. {cuda.limit * 16000:.0f} MiB allowed")
    return size
"""


def gpu_check(
    machine: FakeMachine, *options: str, path: Path | None = None, **variables: str
) -> tuple[int, str]:
    environ = {**os.environ, **machine.variables, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(path or "")}
    environ.update(variables)
    done = subprocess.run(
        [sys.executable, str(TOOL), *options],
        env=environ,
        capture_output=True,
        text=True,
        timeout=scaled(90),
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize(("options", "status"), [([], 1), (["--allow-none"], 0)])
def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path: Path, options: list[str], status: int) -> None:
    machine = FakeMachine(tmp_path, fails={"nvmlInitWithFlags": NOT_LOADED})
    assert gpu_check(machine, *options) == (
        status,
        "Nothing was checked: this machine's NVIDIA GPUs cannot be used: the NVIDIA driver is not loaded. "
        "What to do: load it: sudo modprobe nvidia; after an update: restart\n",
    )


def test_two_halves_and_one_that_wants_more(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    status, out = gpu_check(FakeMachine(tmp_path, card()), path=tmp_path)
    own, _, served = out.partition("✓ service: ")
    lines = own.splitlines()
    assert status == 0, out
    assert lines[0] == "✓ driver 580.95.05, CUDA 13.0: NVIDIA Test (16000 MiB)"
    assert [line[:9] for line in lines[3:5]] == ["✓ half a:", "✓ half b:"]
    assert lines[5].startswith("✓ both at the same time on GPU-1111")
    assert lines[6] == (
        "✓ more than its share: 3456 MiB of a share of 4000 MiB, then: CUDA out of memory. 3488 MiB allowed"
    )
    # and the same with a service
    assert '"simulated": false' in served.splitlines()[0]
    assert [line[:9] for line in served.splitlines()[2:4]] == ["✓ half a:", "✓ half b:"]
    assert served.splitlines()[4:6] == lines[5:7]
    assert "embedded pool\n" in served  # as smi shows it
    cells = [line.partition(":")[0] for line in lines_of_cells(out)]
    assert cells == [
        "✓ first cell, which imports the framework",
        "✓ more than its share in a cell",
        "✓ after a restart the kernel has the GPU that it had",
        "✓ given back",
        "✓ the next cell has a GPU, and no variables of the one before",
    ]
    if not os.geteuid():
        assert "\n✓ over the stream of GPU pods: 300 steps in " in out


def test_the_notice_of_a_wait_is_no_output_of_the_cell() -> None:
    """Where a GPU takes more than a second; it is cleared as JupyterLab clears it."""
    shown = {"data": {"text/plain": "Asked for 1 GPU"}}
    printed = {"name": "stdout", "text": "False\n"}
    messages = (("display_data", shown), ("clear_output", {"wait": False}), ("stream", printed))

    class Client:
        def execute_interactive(
            self, code: str, output_hook: Callable[[dict[str, object]], None], timeout: float
        ) -> None:
            for kind, content in messages:
                output_hook({"msg_type": kind, "content": content})

    assert said(cast(Any, Client()), "1") == "False"


def lines_of_cells(out: str) -> list[str]:
    """What the report says of a kernel's cells, which is its end."""
    return out.partition('✓ Installed kernel "bitfusion"')[2].splitlines()[1:]


@pytest.mark.long
def test_who_is_not_root_is_told_what_was_not_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    report = tool.Check()
    tool.check_stream(dict(os.environ), sys.executable, "GPU-1", report)
    assert capsys.readouterr().out.startswith("– over the stream of GPU pods: not checked, as only root")
    assert report.good, "nothing is wrong"


def test_a_service_that_cannot_start_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    machine = FakeMachine(tmp_path, card())
    status, out = gpu_check(machine, path=tmp_path, BITFUSION_POOL_CONNECTIONS="no")
    assert status == 1
    assert (
        '✗ service: Error: wrong setting connections="no" (from BITFUSION_POOL_CONNECTIONS): '
        "must be a whole number, at least 1"
    ) in out.splitlines()


def test_a_framework_that_does_not_keep_to_its_share_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH.replace("cuda.limit = fraction", "pass"))
    status, out = gpu_check(FakeMachine(tmp_path, card()), path=tmp_path)
    assert status == 1
    assert "✗ more than its share: 8000 MiB of a share of 4000 MiB, then: \n" in out


def test_without_a_framework_the_rest_is_left_out(tmp_path: Path) -> None:
    for name in ("torch", "tensorflow"):
        (tmp_path / f"{name}.py").write_text("raise ImportError\n")
    status, out = gpu_check(FakeMachine(tmp_path, card()), path=tmp_path)
    assert status == 1
    assert (
        out.splitlines().count(
            f"✗ neither PyTorch nor TensorFlow of {sys.executable} sees a GPU: nothing was trained; "
            "name another Python"
        )
        == 2
    )  # in the own pool, and with a service
