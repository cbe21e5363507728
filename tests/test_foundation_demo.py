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


def notebook(path: Path, *sources: str, tag: str = "") -> Path:
    """One with these cells; the last one has the tag, if one is given."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    if tag:
        cells[-1].metadata["tags"] = [tag]
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
        pytest.skip("needs the demo extra: pip install '.[demo]'")
    result = demo("--output", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    for words in (
        "3 under `bitfusion run`, 2 %bitfusion",
        "8080 of 16160 MiB",
        "simulated",
        "s, behind another holder",
        "of the pool are free",
    ):
        assert words in result.stdout
    page = (tmp_path / "tensorflow_digits.html").read_text()
    for words in ("Simulated Tesla V100", "language-model.ipynb", "accuracy on digits it has never seen"):
        assert words in page
    cells = nbformat.read(tmp_path / "tensorflow_digits.ipynb", as_version=4).cells
    assert len(cells) == 8
    assert "8080 of 16160" in cells[5].outputs[0].text
    given_back, free = cells[7].outputs
    assert given_back.text.startswith("1 GPU × 50 % given back")
    assert free.data["text/plain"].count("16160 of 16160 MiB") == 2


@pytest.mark.usefixtures("kernel")
def test_a_failing_cell_fails_the_demo(tmp_path: Path) -> None:
    path = notebook(tmp_path / "bad.ipynb", "1 / 0")
    result = demo("--output", tmp_path / "out", "--notebook", path)
    assert result.returncode == 1
    assert "a cell failed: ZeroDivisionError" in result.stdout
    assert "all 32320 MiB of the pool are free" in result.stdout


@pytest.mark.long
@pytest.mark.usefixtures("kernel")
def test_a_notebook_that_learns_nothing_fails_the_demo(tmp_path: Path) -> None:
    text = "accuracy on digits it has never seen: 12.0%"
    path = notebook(tmp_path / "dull.ipynb", f"print('{text}')", "!bitfusion release_gpus -f /nowhere")
    result = demo("--output", tmp_path / "out", "--notebook", path)
    assert result.returncode == 1
    assert "TensorFlow learned too little: 12.0 %" in result.stdout
    assert "the bitfusion client printed an error" in result.stdout


@pytest.mark.long
@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("tag", "source", "failure"),
    [
        ("waits", "import time; time.sleep(3.5)", "cell 2 did not wait for anybody"),
        pytest.param(
            *("waits", "print('Waiting for GPUs')", "cell 2 did not wait for anybody"), marks=pytest.mark.long
        ),
        pytest.param(
            *("gives-back", "%bitfusion release -y", "the notebook does not show 16160 of 16160 MiB free"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("gives-back", "%bitfusion pool", "cell 2 did not give the GPU back"), marks=pytest.mark.long
        ),
    ],
)
def test_a_notebook_that_does_not_do_what_its_tags_say_fails_the_demo(
    tmp_path: Path, tag: str, source: str, failure: str
) -> None:
    path = notebook(tmp_path / "tagged.ipynb", "print('hello')", source, tag=tag)
    result = demo("--output", tmp_path / "out", "--notebook", path)
    assert result.returncode == 1
    assert failure in result.stdout


@pytest.mark.long
@pytest.mark.usefixtures("kernel")
def test_another_kernel_fails_the_demo(tmp_path: Path) -> None:
    path = notebook(tmp_path / "plain.ipynb", "print('hello')")
    result = demo("--output", tmp_path / "out", "--notebook", path, "--kernel", "python3")
    assert result.returncode == 1
    assert "cell 1 ran in no process under `bitfusion run`" in result.stdout
