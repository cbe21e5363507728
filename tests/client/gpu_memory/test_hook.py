"""PyTorch, TensorFlow and JAX in a program with a share of a card: what they are told, what stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_client.gpu_memory.limits import HOOK_FOLDER, VARIABLE
from tests.support.machine import scaled

TORCH = """\
class cuda:
    queued = []
    told = []

    def _lazy_call(call):
        cuda.queued.append(call)

    def device_count():
        return {count}

    def set_per_process_memory_fraction(fraction, device):
        cuda.told.append((fraction, device))
"""

TENSORFLOW = """\
from types import SimpleNamespace as Made

options = Made(ClearField=lambda name: setattr(options, name, 0))
compat = Made(v1=Made(ConfigProto=lambda: Made(gpu_options=options)))
config = Made(set_logical_device_configuration=print)
config.experimental = Made(set_virtual_device_configuration=print)
__version__ = "2.99"
"""


NVML = """\
#include <stdint.h>
static int64_t sizes[] = {%s};
int nvmlInit_v2(void) { return %d; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = sizeof sizes / sizeof *sizes; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **device) { *device = &sizes[number]; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, uint64_t *memory) { *memory = *(int64_t *) device; return 0; }
"""
"""A stand-in for the driver's library, in the words of nvml.h."""


def python(
    code: str, folder: Path, limits: str = "0.25,0.5", path: str = "", **given: str
) -> tuple[str, str]:
    """What a Python under a lease prints; `folder` is on the user's PYTHONPATH."""
    environ = {**os.environ, VARIABLE: limits, "PYTHONPATH": f"{HOOK_FOLDER}:{folder}{path}", **given}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=scaled(60),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def fake_torch(folder: Path, text: str) -> None:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(text)


def test_pytorch_is_told_when_it_first_uses_cuda(tmp_path: Path) -> None:
    fake_torch(tmp_path, TORCH.format(count=2))
    out, err = python(
        "import torch; print(torch.cuda.told); torch.cuda.queued[0](); print(torch.cuda.told)", tmp_path
    )
    assert (out, err) == ("[]\n[(0.25, 0), (0.5, 1)]\n", "")


def test_gpus_that_the_program_has_hidden_are_left_out(tmp_path: Path) -> None:
    fake_torch(tmp_path, TORCH.format(count=1))
    assert (
        python("import torch; torch.cuda.queued[0](); print(torch.cuda.told)", tmp_path)[0] == "[(0.25, 0)]\n"
    )


@pytest.mark.parametrize("text", ["", "class cuda:\n    _lazy_call = lambda call: call()\n"])
def test_a_pytorch_that_cannot_be_told_works_and_it_is_said(tmp_path: Path, text: str) -> None:
    fake_torch(tmp_path, text)
    out, err = python("import torch; print(torch.__name__)", tmp_path)
    assert out == "torch\n"
    assert err.startswith("bitfusion: the share of GPU memory could not be set in PyTorch: AttributeError(")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("state", "is_told"),
    [
        ("_config=None, _initialized=False", True),
        ("_config=None, _initialized=True", False),  # it has been used: too late
        ("_initialized=False", False),
    ],
)
def test_tensorflow_is_told_before_its_runtime_is_made(tmp_path: Path, state: str, is_told: bool) -> None:
    eager = tmp_path / "tensorflow" / "python" / "eager"
    eager.mkdir(parents=True)
    (tmp_path / "tensorflow" / "__init__.py").write_text(TENSORFLOW)
    (eager / "context.py").write_text(
        f"import types\nruntime = types.SimpleNamespace({state})\ndef context(): return runtime\n"
    )
    out, err = python(
        "import tensorflow\nfrom tensorflow.python.eager.context import runtime\n"
        "told = getattr(runtime, '_config', None) and runtime._config.gpu_options\n"
        "print(told and told.per_process_gpu_memory_fraction)\n"
        "tensorflow.config.set_logical_device_configuration('cpu')\n"
        "print(told and told.per_process_gpu_memory_fraction)\n",
        tmp_path,
    )
    assert out == ("0.25\ncpu\n0\n" if is_told else "None\ncpu\nNone\n")
    assert ("TensorFlow 2.99 keeps its options elsewhere" in err) == (not is_told)


@pytest.fixture
def nvml(tmp_path: Path) -> Callable[..., str]:
    """Makes an NVML that tells these sizes in MiB, and returns its folder."""
    if shutil.which("cc") is None:
        pytest.skip("needs a compiler of C")

    def make(*mib: int, error: int = 0) -> str:
        folder = tmp_path / "driver"
        folder.mkdir()
        text = NVML % (", ".join(f"{each}LL * 1048576" for each in mib), error)
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "libnvidia-ml.so.1")]
        subprocess.run(command, input=text, text=True, check=True)
        return str(folder)

    return make


def test_an_amount_is_a_fraction_of_the_largest_card_there(tmp_path: Path, nvml: Callable[..., str]) -> None:
    fake_torch(tmp_path, TORCH.format(count=2))
    out, err = python(
        "import torch; torch.cuda.queued[0](); print(torch.cuda.told)",
        tmp_path,
        "4096MiB,4096MiB",
        LD_LIBRARY_PATH=nvml(16384, 8192),
    )
    assert (out, err) == ("[(0.25, 0), (0.25, 1)]\n", "")


@pytest.mark.parametrize(
    ("limits", "own", "told"),
    [
        ("4096MiB", {}, "None 0.2500"),
        ("99999MiB", {}, "None 1.0000"),
        ("4096MiB", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1"}, "None 0.1000"),
        ("4096MiB", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "much"}, "None 0.2500"),
        ("4096MiB", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "-1"}, "None 0.2500"),
        ("4096MiB", {"XLA_CLIENT_MEM_FRACTION": "0.9"}, "0.2500 None"),
    ],
)
def test_jax_reads_an_amount_as_a_fraction(
    tmp_path: Path, nvml: Callable[..., str], limits: str, own: dict[str, str], told: str
) -> None:
    (tmp_path / "jax.py").write_text("")
    out, err = python(
        "import jax, os; print(*map(os.environ.get, "
        "('XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION')))",
        tmp_path,
        limits,
        LD_LIBRARY_PATH=nvml(16384),
        **own,
    )
    assert (out, err) == (f"{told}\n", "")


def test_an_amount_without_a_driver_is_told_and_harms_nothing(
    tmp_path: Path, nvml: Callable[..., str]
) -> None:
    (tmp_path / "jax.py").write_text("")
    for folder, why in ((str(tmp_path), "libnvidia-ml.so.1"), (nvml(1, error=9), "nvmlInit_v2: error 9")):
        out, err = python("import jax; print('runs')", tmp_path, "4096MiB", LD_LIBRARY_PATH=folder)
        assert out == "runs\n"
        assert err.startswith("bitfusion: the share of GPU memory could not be set in JAX: ")
        assert why in err


def test_a_program_looks_as_without_it(tmp_path: Path) -> None:
    fake_torch(tmp_path, TORCH.format(count=1))
    code = (
        "import sys, torch, importlib.util\n"
        "print([f for f in sys.path if 'gpu_memory' in f], type(torch.__loader__).__name__,"
        " torch.__spec__.loader is torch.__loader__, importlib.util.find_spec('nothing'))"
    )
    assert python(code, tmp_path)[0] == "[] SourceFileLoader True None\n"


def test_the_users_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.seen = 'mine'\n")
    out, err = python("import sitecustomize; print(seen, sitecustomize.__file__)", tmp_path)
    assert (out, err) == (f"mine {tmp_path}/sitecustomize.py\n", "")


def test_an_error_in_the_users_own_is_told_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("1 / 0\n")
    out, err = python("print('runs')", tmp_path)
    assert out == "runs\n"
    assert err.startswith("Error in sitecustomize; set PYTHONVERBOSE for traceback:\nZeroDivisionError")


@pytest.mark.parametrize("limits", ["", "0.5"])
def test_nothing_is_imported_before_it_is_needed(tmp_path: Path, limits: str) -> None:
    code = "import sys; print(sorted({'json', 'typing', 'torch', 'tensorflow', 'numpy'} & set(sys.modules)))"
    assert python(code, tmp_path, limits)[0] == "[]\n"
