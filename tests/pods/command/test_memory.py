"""What a program in a GPU pod is told of its share, and its user of an image that cannot use GPUs."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_pods.agent.gpus import LIBRARY
from tests.cluster.cluster import Cluster
from tests.pods.command.notebook import Notebook, notebook_in

pytestmark = pytest.mark.timeout(120)

IMPORTS_WITHIN_S = 100
"""TensorFlow, on two CPUs that others use, too."""

RULE = {
    "name": "any",
    "serves": {"whole": True, "share": True, "memory": True},
    "container": {"resources": {"limits": {"nvidia.com/gpu": "{gpus}"}}},
    "gpu_memory": "16Gi",
    "isolated": False,
}


@pytest.fixture
def notebook(cluster: Cluster, tmp_path: Path) -> Iterator[Notebook]:
    with notebook_in(cluster, tmp_path) as made:
        yield made


def environment_of(notebook: Notebook, *size: str, **rule: object) -> dict[str, str]:
    """That of a program in a pod."""
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    done = notebook.run("run", *size, "--", sys.executable, "-c", code, rules=[{**RULE, **rule}])
    assert done.returncode == 0, done.told
    found: dict[str, str] = json.loads(done.said)
    return found


def test_a_share_is_told_to_the_frameworks_and_the_hook_lies_in_the_pod(notebook: Notebook) -> None:
    found = environment_of(notebook, "-n", "2", "-m", "4096")
    assert found["BITFUSION_POOL_MEMORY_LIMITS"] == "0.2187,0.2187"
    assert found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.2187"
    assert found["PYTHONPATH"].endswith("/agent.zip/bitfusion_client/gpu_memory/hook")
    device = {"name": "nvidia.com/gpu", "server": "gpu-node", "simulated": False}
    memory = {"memory_mib": 4096, "total_mib": 16384}
    assert json.loads(found["BITFUSION_POOL_DEVICES"]) == [
        {"id": number, **device, **memory} for number in range(2)
    ]


def test_who_has_a_whole_gpu_or_is_kept_to_a_share_is_told_nothing(notebook: Notebook) -> None:
    for found in (
        environment_of(notebook, "-n", "1"),
        environment_of(notebook, "-n", "1", "-p", "0.5", keeps_memory=True),
    ):
        assert not {"BITFUSION_POOL_MEMORY_LIMITS", "PYTHONPATH", "TF_FORCE_GPU_ALLOW_GROWTH"} & set(found)


@pytest.mark.tensorflow
@pytest.mark.long
def test_tensorflow_in_a_pod_keeps_to_its_share(notebook: Notebook) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("tensorflow is not installed: the demo extra is missing")
        pytest.skip("needs the demo extra")
    code = (
        "import tensorflow as tf\n"
        "from tensorflow.python.eager import context\n"
        "print(context.context().config.gpu_options.per_process_gpu_memory_fraction,"
        " float(tf.reduce_sum(tf.ones((3, 3)))))"
    )
    done = notebook.start("run", "-n", "1", "-p", "0.5", "--", sys.executable, "-c", code, rules=[RULE])
    done.finish(IMPORTS_WITHIN_S)
    assert done.said == b"0.4687 9.0\n", done.told


@pytest.fixture
def framework(tmp_path: Path) -> list[str]:
    """A program that has the driver, and a Python whose PyTorch is for the CPU."""
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / LIBRARY).touch()
    (tmp_path / "lib" / "python3.12" / "site-packages" / "torch-2.9.0+cpu.dist-info").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\necho runs\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    return [str(tmp_path / "bin" / "python3")]


def test_an_image_without_a_driver_is_told_once_before_the_program_says_something(
    notebook: Notebook,
) -> None:
    done = notebook.run("run", "-n", "1", "--", "sh", "-c", "echo runs >&2")
    (said,) = [line for line in done.told.splitlines() if line.startswith("[WARN]")]
    assert "The image docker.io/team/notebook:1 has no CUDA libraries" in said
    assert "programs compute on the CPU (libcuda.so.1 not found). What to do: " in said
    assert done.told.index(said) < done.told.index("\nruns\n")


def test_a_framework_for_the_cpu_is_told(
    notebook: Notebook, framework: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = notebook.environment
    monkeypatch.setattr(
        notebook, "environment", lambda **each: given(**each) | {"LD_LIBRARY_PATH": f"{tmp_path}/driver"}
    )
    done = notebook.run("run", "-n", "1", "--", *framework)
    assert done.said == b"runs\n"
    (said,) = [line for line in done.told.splitlines() if line.startswith("[WARN]")]
    assert "torch 2.9.0+cpu in the image docker.io/team/notebook:1: built for the CPU" in said
    done = notebook.run("run", "-n", "1", "--", "true")
    assert "[WARN]" not in done.told
