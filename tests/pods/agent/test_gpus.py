"""What the agent finds in the pod: names of GPUs, the driver, frameworks for the CPU."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bitfusion_pods.agent.gpus import LIBRARY, for_cpus_only, has_driver, models, name_devices, named
from tests.support.machine import scaled

INFORMATION = """\
Model: \t\t {}
IRQ:   \t\t 201
GPU UUID: \t {}
Video BIOS: \t 96.00.5e.00.01
Bus Type: \t PCIe
Bus Location: \t 0000:{}:00.0
Device Minor: \t 0
GPU Excluded:\t No
"""
"""As driver 550 writes it."""

A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"


def driver(folder: Path, *cards: tuple[str, str]) -> str:
    for number, (model, uuid) in enumerate(cards):
        card = folder / f"0000:{number:02x}:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text(INFORMATION.format(model, uuid, number))
    return str(folder)


def test_names_are_the_drivers_and_only_of_this_containers_gpus(tmp_path: Path) -> None:
    folder = driver(tmp_path / "gpus", (A100, "GPU-2"), (H100, "GPU-1"))
    assert models({"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, folder) == [H100]
    assert models({"NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-1"}, folder) == [A100, H100]
    assert models({"NVIDIA_VISIBLE_DEVICES": "all"}, folder) == [H100, A100]
    assert models({}, str(tmp_path / "none")) == []


def test_a_name_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    folder = driver(tmp_path / "gpus", ("A\x1b[31m" + "x" * 5000, "GPU-1"))
    (name,) = models({}, folder)
    assert name.isprintable()
    assert len(name) <= 80
    (tmp_path / "gpus" / "odd").mkdir()
    (tmp_path / "gpus" / "odd" / "information").write_bytes(b"\xff\0:::\nModel\n")
    assert models({}, folder) == [name]


@pytest.mark.parametrize(
    ("own", "models", "told"),
    [
        (["nvidia.com/gpu"], [A100], [A100]),
        (["GPU", "GPU"], [A100, H100], [A100, H100]),
        (["GPU", "GPU"], [A100], [A100, A100]),
        (["nvidia.com/mig-1g.5gb"], [A100], [f"{A100} (nvidia.com/mig-1g.5gb)"]),
        (["GPU"], [A100, A100, A100], [A100]),  # a node's, all alike
        (["GPU"], [A100, H100], ["GPU"]),  # which of the two, nobody knows
        (["GPU"], [], ["GPU"]),
        ([], [A100], []),
    ],
)
def test_devices_get_the_names_that_are_sure(own: list[str], models: list[str], told: list[str]) -> None:
    devices = [{"id": number, "name": name, "server": "n1"} for number, name in enumerate(own)]
    found = json.loads(named(json.dumps(devices), models))
    assert [device["name"] for device in found] == told
    assert [{**device, "name": ""} for device in found] == [{**device, "name": ""} for device in devices]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[" * 100_000, "null"])
def test_devices_of_somebody_elses_form_stay(text: str) -> None:
    assert named(text, [A100]) == text
    assert name_devices({}, {}) == {}


def test_the_drivers_library_is_found_where_programs_find_it(tmp_path: Path) -> None:
    cache = tmp_path / "ld.so.cache"
    nowhere = ([str(tmp_path / "usual")], str(cache))
    assert not has_driver({"LD_LIBRARY_PATH": f":{tmp_path}/own"}, *nowhere)
    cache.write_bytes(b"\0libcuda.so.11\0libcudart.so.1\0")
    assert not has_driver({}, *nowhere)
    cache.write_bytes(b"\0libcuda.so.1\0/usr/lib/libcuda.so.1\0")
    assert has_driver({}, *nowhere)
    cache.unlink()
    for folder in ("own", "usual"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / LIBRARY).touch()
        assert has_driver({"LD_LIBRARY_PATH": f":{tmp_path}/own"}, *nowhere)
        (tmp_path / folder / LIBRARY).unlink()


WHEELS = (
    "tensorflow_cpu-2.20.0",
    "torch-2.9.0+cpu",
    "torch-2.9.0",
    "tensorflow-2.20.0",
    "torchvision-0.2+cpu",
)
CONDA = (
    "pytorch-2.5.1-py3.12_cpu_0",
    "pytorch-2.9.0-cpu_generic_py312_h1_0",
    "pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0",
    "tensorflow-2.18.0-cuda126py312h1_201",
    "cpuonly-2.0-0",
)


def environment(prefix: Path) -> str:
    """An environment with these packages; the path of its Python."""
    for name in WHEELS:
        (prefix / "lib" / "python3.12" / "site-packages" / f"{name}.dist-info").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    for name in CONDA:
        (prefix / "conda-meta" / f"{name}.json").touch()
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python3").touch(0o755)
    return str(prefix / "bin" / "python3")


def test_frameworks_for_the_cpu_are_found_beside_the_pythons_of_a_command_line(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    found = (
        "tensorflow-cpu 2.20.0",
        "torch 2.9.0+cpu",
        "pytorch 2.5.1 (py3.12_cpu_0)",
        "pytorch 2.9.0 (cpu_generic_py312_h1_0)",
    )
    assert for_cpus_only(["/usr/bin/python3", "-I", "launcher.py", "--", python, "-m", "x"], {}) == found
    assert for_cpus_only(["python3"], {"PATH": f"/nowhere::relative:{tmp_path}/env/bin"}) == found
    assert for_cpus_only(["sh", "-c", python], {"PATH": f"{tmp_path}/env/bin"}) == found
    assert for_cpus_only(["sh", "-c", "python3 x.py"], {"PATH": f"{tmp_path}/env/bin"}) == ()
    assert for_cpus_only(["python3", "python\0", "/python"], {}) == ()


def test_it_takes_no_time_in_a_large_environment(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    for number in range(1000):
        (tmp_path / "env" / "lib" / "python3.12" / "site-packages" / f"package{number}").mkdir()
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        for_cpus_only([python], {})
        has_driver({})
        times.append(time.perf_counter() - begin)
    assert min(times) < scaled(0.002)
