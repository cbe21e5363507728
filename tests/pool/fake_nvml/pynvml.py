"""nvidia-ml-py as it is, on a driver that a test invents.

This folder is for BITFUSION_POOL_NVML. The real module is loaded; its structures, checks and exceptions are
used, and only the shared library behind it is replaced, at the place where the module keeps it. The file that
FAKE_NVML names says what machine it is:

    {"driver": "580.95.05", "cuda": 13000, "count": 1, "cards": [{"uuid": …, "name": …, "total": MiB,
     "reserved": MiB, "used": MiB, "percent": 7, "processes": [[pid, MiB or null]], "graphics": [],
     "mig": [cards], "fails": {function: code}}], "fails": {function: code}, "hangs": {function: seconds},
     "dies": function, "library": false}

`fails` of a card are for the functions that get its handle.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20


def _load_real_module() -> Any:
    path = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    spec = PathFinder.find_spec("pynvml", path)
    assert spec is not None, "nvidia-ml-py is not installed"
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["pynvml"] = module  # what the import of this file returns
    spec.loader.exec_module(module)
    return module


class Library:
    """What the module takes for libnvidia-ml.so.1: functions of C, with pointers to fill."""

    def __init__(self, nvml: Any, machine: dict[str, Any]) -> None:
        self._nvml = nvml
        self._machine = machine
        self._handles: list[dict[str, Any]] = []  # a handle is a place in this list, from 1

    def __getattr__(self, name: str) -> Any:
        function = getattr(Library, f"_{name}", None)
        if function is None:
            raise AttributeError(name)  # ctypes says so too; the module makes FunctionNotFound of it

        def call(*args: Any) -> int:
            time.sleep(self._machine.get("hangs", {}).get(name, 0))
            if self._machine.get("dies") == name:
                os.abort()
            card = self._card(args[0]) if args and "DeviceGet" in name and _is_handle(args[0]) else {}
            code = card.get("fails", {}).get(name) or self._machine.get("fails", {}).get(name)
            return int(code or function(self, *args) or 0)

        return call

    def _card(self, handle: Any) -> dict[str, Any]:
        return self._handles[int(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1]

    def _give(self, pointer: Any, card: dict[str, Any]) -> None:
        self._handles.append(card)
        place = ctypes.c_void_p(len(self._handles))
        ctypes.memmove(pointer, ctypes.byref(place), ctypes.sizeof(place))

    def _nvmlInitWithFlags(self, flags: int) -> None:
        assert flags == 0

    def _nvmlShutdown(self) -> None:
        pass

    def _nvmlErrorString(self, code: int) -> bytes:
        return f"error {code}".encode()

    def _nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> None:
        text.value = self._machine.get("driver", "580.95.05").encode()[: size.value - 1]

    def _nvmlSystemGetCudaDriverVersion_v2(self, number: Any) -> None:
        number._obj.value = self._machine.get("cuda", 13000)

    def _nvmlDeviceGetCount_v2(self, number: Any) -> None:
        number._obj.value = self._machine.get("count", len(self._machine["cards"]))

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        if index.value >= len(self._machine["cards"]):
            return int(self._nvml.NVML_ERROR_INVALID_ARGUMENT)
        card = self._machine["cards"][index.value]
        self._give(handle, card)
        return int(card.get("fails", {}).get("nvmlDeviceGetHandleByIndex_v2", 0))

    def _nvmlDeviceGetUUID(self, handle: Any, text: Any, size: Any) -> None:
        text.value = self._card(handle)["uuid"].encode()[: size.value - 1]

    def _nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> None:
        text.value = self._card(handle)["name"].encode()[: size.value - 1]

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> None:
        card = self._card(handle)
        memory._obj.total = card["total"] * MIB
        memory._obj.used = (card.get("used", 0) + card.get("reserved", 0)) * MIB

    def _nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:
        card = self._card(handle)
        if memory._obj.version != self._nvml.nvmlMemory_v2:
            return int(self._nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        memory._obj.total = card["total"] * MIB
        memory._obj.reserved = card.get("reserved", 0) * MIB
        memory._obj.used = card.get("used", 0) * MIB
        return 0

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        percent = self._card(handle).get("percent")
        rates._obj.gpu = percent or 0
        return int(self._nvml.NVML_ERROR_NOT_SUPPORTED) if percent is None else 0

    def _nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        parts = self._card(handle).get("mig")
        current._obj.value = pending._obj.value = int(parts is not None)
        return int(self._nvml.NVML_ERROR_NOT_SUPPORTED) if parts is None else 0

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, number: Any) -> None:
        number._obj.value = 7  # of which some are there

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, part: Any) -> int:
        parts = self._card(handle)["mig"]
        if index.value >= len(parts):
            return int(self._nvml.NVML_ERROR_NOT_FOUND)
        self._give(part, parts[index.value])
        return 0

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        return self._list(self._card(handle).get("processes", []), count, found)

    def _nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        return self._list(self._card(handle).get("graphics", []), count, found)

    def _list(self, processes: list[Any], count: Any, found: Any) -> int:
        room, count._obj.value = count._obj.value, len(processes)
        if room < len(processes):
            return int(self._nvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for place, (pid, mib) in enumerate(processes):
            unknown = self._nvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
            found[place].pid, found[place].usedGpuMemory = pid, unknown if mib is None else mib * MIB
        return 0


def _is_handle(value: Any) -> bool:
    return isinstance(value, ctypes._Pointer)


_nvml = _load_real_module()
with open(os.environ["FAKE_NVML"], encoding="utf-8") as _file:
    _described = json.load(_file)
if _described.get("library", True):
    _nvml.nvmlLib = Library(_nvml, _described)
