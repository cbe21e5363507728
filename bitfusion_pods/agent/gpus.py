"""What this pod has to compute on: the names of its GPUs, the driver's library, frameworks that use it.

Read from files in a millisecond or two, for `agent` while it starts the program; nothing here uses a GPU.
What cannot be read is passed over: a name stays general then, and nothing is said to be missing.
"""

from __future__ import annotations

import json
import os

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_pods import pythons
from bitfusion_pods.environment import DEVICES_VARIABLE, DRIVERS_LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

DRIVERS_FOLDER = "/proc/driver/nvidia/gpus"
"""A folder for each GPU with a file `information`, as NVIDIA's driver writes it."""
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""By NVIDIA's device plugin: the uuids of this container's; the driver may tell of all of the node."""

LIBRARY = "libcuda.so.1"
LIBRARY_CACHE = "/etc/ld.so.cache"
LIBRARY_FOLDERS = (
    *("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"),
    *("/usr/lib", "/usr/lib/wsl/lib", "/usr/local/cuda/compat"),
)

MOST_GPUS = 64
LONGEST_MODEL = 80
MOST_FOUND = 4
_LONGEST_FILE, _LONGEST_CACHE = 4096, 4 << 20


def models(pod: Mapping[str, str], folder: str = DRIVERS_FOLDER) -> list[str]:
    """What the driver calls this pod's GPUs, ``NVIDIA A100-SXM4-40GB``, in the order of its list of them."""
    found: dict[str, str] = {}
    for name in _names(folder)[:MOST_GPUS]:
        text = _read(os.path.join(folder, name, "information"), _LONGEST_FILE).decode(errors="replace")
        told = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in text.splitlines())
        }
        if told.get("Model"):
            found[told.get("GPU UUID") or name] = one_line(told["Model"], LONGEST_MODEL)
    visible = [uuid for uuid in pod.get(VISIBLE_DEVICES, "").split(",") if uuid in found]
    return [found[uuid] for uuid in visible or sorted(found)]


def named(devices: str, models: Sequence[str]) -> str:
    """The text of `DEVICES_VARIABLE` with the driver's names, as far as it is clear which belongs to which.

    A slice of a card (MIG) keeps its own name behind the card's.
    """
    try:
        listed = json.loads(devices)
    except (ValueError, RecursionError):
        return devices
    if not isinstance(listed, list) or not all(isinstance(device, dict) for device in listed):
        return devices
    if len(set(models)) != 1 and len(models) != len(listed):
        return devices
    names = models if len(models) == len(listed) else [models[0]] * len(listed)
    for device, name in zip(listed, names, strict=True):
        own = str(device.get("name"))
        device["name"] = f"{name} ({own})" if "/mig-" in own else name
    return json.dumps(listed)


def name_devices(given: Mapping[str, str], pod: Mapping[str, str]) -> dict[str, str]:
    """The variable of a program with these variables in which its GPUs have names."""
    devices = given.get(DEVICES_VARIABLE)
    return {DEVICES_VARIABLE: named(devices, models(pod))} if devices else {}


def has_driver(
    given: Mapping[str, str], folders: Sequence[str] = LIBRARY_FOLDERS, cache: str = LIBRARY_CACHE
) -> bool:
    """Whether a program with these variables finds the library by which all of CUDA reaches a GPU."""
    own = [folder for folder in given.get(DRIVERS_LIBRARIES, "").split(":") if folder]
    if any(os.path.exists(os.path.join(folder, LIBRARY)) for folder in (*own, *folders)):
        return True
    return f"{LIBRARY}\0".encode() in _read(cache, _LONGEST_CACHE)


def for_cpus_only(argv: Iterable[str], given: Mapping[str, str]) -> tuple[str, ...]:
    """TensorFlow and PyTorch where they are built for the CPU: ``torch 2.9.0+cpu``.

    Looked for in the environments of the Pythons that a command line names. JAX says it by itself.
    """
    found: dict[str, None] = {}
    for prefix in dict.fromkeys(map(pythons.prefix, pythons.paths(argv, given).values())):
        library = os.path.join(prefix, "lib")
        for version in (name for name in _names(library) if name.startswith("python3")):
            for name in _names(os.path.join(library, version, "site-packages")):
                found |= dict.fromkeys(_of_wheel(name))
        for name in _names(os.path.join(prefix, "conda-meta")):
            found |= dict.fromkeys(_of_conda(name))
    return tuple(found)[:MOST_FOUND]


def _of_wheel(name: str) -> Iterator[str]:
    """``tensorflow_cpu-2.20.0.dist-info``, ``torch-2.9.0+cpu.dist-info``."""
    package, _, version = name.removesuffix(".dist-info").partition("-")
    if name.endswith(".dist-info") and (
        package == "tensorflow_cpu" or (package == "torch" and version.endswith("+cpu"))
    ):
        yield one_line(f"{package.replace('_', '-')} {version}", LONGEST_MODEL)


def _of_conda(name: str) -> Iterator[str]:
    """``pytorch-2.9.0-cpu_generic_py312_0.json`` of conda-forge, ``pytorch-2.5.1-py3.12_cpu_0.json``."""
    package, _, rest = name.removesuffix(".json").partition("-")
    version, _, build = rest.partition("-")
    if name.endswith(".json") and package in ("pytorch", "tensorflow") and "cpu" in build.split("_"):
        yield one_line(f"{package} {version} ({build})", LONGEST_MODEL)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except (OSError, ValueError):
        return b""
