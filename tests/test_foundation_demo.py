"""`make demo`, and that its checks can fail."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool_folder: Path) -> None:
    """The Bitfusion kernel, installed for this test only, on a pool of its own."""
    prefix = tmp_path / "prefix"
    command = Path(sys.executable).with_name("bitfusion-kernel")
    subprocess.run([command, "install", "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    monkeypatch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))


def demo(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "examples" / "run_demo.py", *options]
    return subprocess.run(command, capture_output=True, text=True)


def notebook(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("kernel")
def test_the_notebook_learns_on_a_gpu_and_gives_it_back(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("tensorflow is not installed: the demo extra is missing")
        pytest.skip("needs the demo extra: pip install kubeflow-bitfusion[demo]")
    result = demo("--output", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    for words in ("under `bitfusion run`", "8,080 of 16,160 MiB", "simulated", "of the pool are free"):
        assert words in result.stdout
    page = (tmp_path / "tensorflow_digits.html").read_text()
    assert "Simulated Tesla V100" in page
    assert "accuracy on digits it has never seen" in page


@pytest.mark.usefixtures("kernel")
def test_a_failing_cell_fails_the_demo(tmp_path: Path) -> None:
    path = notebook(tmp_path / "bad.ipynb", "1 / 0")
    result = demo("--output", tmp_path / "out", "--notebook", path)
    assert result.returncode == 1
    assert "a cell failed: ZeroDivisionError" in result.stdout
    assert "all 32,320 MiB of the pool are free" in result.stdout


@pytest.mark.usefixtures("kernel")
def test_a_notebook_that_learns_nothing_fails_the_demo(tmp_path: Path) -> None:
    text = "accuracy on digits it has never seen: 12.0%"
    path = notebook(tmp_path / "dull.ipynb", f"print('{text}')", "!bitfusion release_gpus -f /nowhere")
    result = demo("--output", tmp_path / "out", "--notebook", path)
    assert result.returncode == 1
    assert "TensorFlow learned too little: 12.0 %" in result.stdout
    assert "the bitfusion client printed an error" in result.stdout


@pytest.mark.usefixtures("kernel")
def test_another_kernel_fails_the_demo(tmp_path: Path) -> None:
    path = notebook(tmp_path / "plain.ipynb", "print('hello')")
    result = demo("--output", tmp_path / "out", "--notebook", path, "--kernel", "python3")
    assert result.returncode == 1
    assert "cell 1 ran in no process under `bitfusion run`" in result.stdout
