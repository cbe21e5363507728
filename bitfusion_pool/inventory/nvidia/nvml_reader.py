"""One reading of all cards through NVML, with the functions of nvidia-ml-py (its module is called pynvml).

Whatever a driver does not know or may not tell leaves a gap in the reading; a card that is lost is in it with
its problem, if the driver still knows its uuid. Runs in the reading process only: NVML may hang or crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitfusion_pool.inventory.nvidia.cards import Card, CardProcess, Reading
from bitfusion_pool.inventory.nvidia.nvml_problems import problem_of_card

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20


def read_all(nvml: Any) -> Reading:
    """All cards now.

    A card in MIG mode is left out: its MIG devices are there in its place.

    Args:
        nvml: The module pynvml.

    Raises:
        nvml.NVMLError: NVML as a whole cannot be used.
    """
    nvml.nvmlInit()
    try:
        driver = str(nvml.nvmlSystemGetDriverVersion())
        version = _or(nvml, 0, nvml.nvmlSystemGetCudaDriverVersion_v2)
        cards: list[Card] = []
        notes: list[str] = []
        for number, handle in _handles(nvml, notes):
            cards += _cards_of(nvml, number, handle, notes)
        return Reading(driver, f"{version // 1000}.{version % 1000 // 10}", tuple(cards), tuple(notes))
    finally:
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass  # what was read is read


def _handles(nvml: Any, notes: list[str]) -> Iterator[tuple[int, Any]]:
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            yield number, nvml.nvmlDeviceGetHandleByIndex(number)
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.NVML_ERROR_NOT_FOUND):
                notes.append(f"GPU {number}: {problem_of_card(error.value, str(error))}")
            # else the count changed meanwhile


def _cards_of(nvml: Any, number: int, handle: Any, notes: list[str]) -> list[Card]:
    """The card itself, or its MIG devices."""
    if _or(nvml, 0, lambda: nvml.nvmlDeviceGetMigMode(handle)[0]) != nvml.NVML_DEVICE_MIG_ENABLE:
        card = _card(nvml, number, handle, notes)
        return [card] if card else []
    found = []
    for index in range(_or(nvml, 0, nvml.nvmlDeviceGetMaxMigDeviceCount, handle)):
        part = _or(nvml, None, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        card = _card(nvml, number, part, notes) if part is not None else None
        found += [card] if card else []
    if not found:
        notes.append(f"GPU {number}: it is in MIG mode without MIG devices; make some: nvidia-smi mig -cgi …")
    return found


def _card(nvml: Any, number: int, handle: Any, notes: list[str]) -> Card | None:
    try:
        uuid = str(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        notes.append(f"GPU {number}: {problem_of_card(error.value, str(error))}")
        return None
    name = str(_or(nvml, "NVIDIA GPU", nvml.nvmlDeviceGetName, handle))
    try:
        memory_mib, used_mib = _memory(nvml, handle)
    except nvml.NVMLError as error:
        return Card(uuid, name, 0, problem=problem_of_card(error.value, str(error)))
    percent = _or(nvml, None, lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
    return Card(uuid, name, memory_mib, used_mib, percent, _processes(nvml, handle))


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """What programs can have, and what they have. The driver keeps some for itself."""
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        reserved = int(found.reserved)
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):
        found = nvml.nvmlDeviceGetMemoryInfo(handle)  # drivers before 510
        reserved = 0
    return (int(found.total) - reserved) // MIB, int(found.used) // MIB


def _processes(nvml: Any, handle: Any) -> tuple[CardProcess, ...]:
    found: dict[int, int | None] = {}
    for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        for process in _or(nvml, [], ask, handle):
            memory = None if process.usedGpuMemory is None else int(process.usedGpuMemory) // MIB
            known = found.get(int(process.pid))
            # a process that computes and draws is in both lists, with the same memory
            found[int(process.pid)] = memory if known is None else max(known, memory or 0)
    return tuple(CardProcess(pid, memory) for pid, memory in sorted(found.items()))


def _or(nvml: Any, default: Any, ask: Callable[..., Any], *args: Any) -> Any:
    """The answer; `default` where the driver does not know or may not tell."""
    try:
        return ask(*args)
    except nvml.NVMLError:
        return default
