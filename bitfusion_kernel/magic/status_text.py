"""The text of `%bitfusion`: what the kernel asks for, holds and waits for. Pure but for the clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bitfusion_client.errors import BitfusionError
from bitfusion_kernel.gpu.waiting_notice import elapsed_text

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.gpu.kernel_starter import KernelStarter


def text(starter: KernelStarter, running: bool) -> str:
    """All of it, a line each: `name   value`."""
    rows: list[tuple[str, str]] = []
    acquisition = starter.acquisition
    if acquisition is None:
        rows.append(("Kernel", "no GPU; the next cell asks for one"))
        try:
            rows.append(("Request", starter.request.describe()))
        except BitfusionError as error:
            rows.append(("Request", error.user_message))
    elif running:
        rows.append(("Kernel", "running on its GPU"))
        rows += lease_rows(acquisition)
    else:
        rows.append(("Kernel", "starting" if acquisition.granted else "waiting for a GPU"))
        rows.append(("Request", acquisition.request.describe()))
        if acquisition.place is not None:
            rows.append(("Place", f"{acquisition.place} of {acquisition.of}"))
        rows += [("Ahead", who) for who in acquisition.ahead]
        rows.append(("Waiting", elapsed_text(time.monotonic() - acquisition.asked_at)))
    try:
        client = starter.find_client()
        embedded = " (embedded pool on this machine)" if client.kind == "embedded" else ""
        rows.append(("Client", client.path + embedded))
    except BitfusionError as error:
        rows.append(("Client", error.user_message.splitlines()[0]))
    return _aligned(rows)


def lease_text(acquisition: Acquisition) -> str:
    """What was got, for `%bitfusion acquire`."""
    return _aligned(lease_rows(acquisition))


def lease_rows(acquisition: Acquisition) -> list[tuple[str, str]]:
    """Request, GPUs, server, since when."""
    rows = [("Request", acquisition.request.describe())]
    if acquisition.devices:
        rows += [
            ("GPU" if number == 0 else "", device.describe())
            for number, device in enumerate(acquisition.devices)
        ]
    elif acquisition.gpu_ids:
        numbers = ", ".join(str(number) for number in acquisition.gpu_ids)
        memory = f" – {acquisition.memory_mib} MiB each" if acquisition.memory_mib else ""
        rows.append(("GPU", numbers + memory))
    if acquisition.server:
        rows.append(("Server", acquisition.server))
    if acquisition.lock_file:
        rows.append(("Lock file", acquisition.lock_file))
    if acquisition.launched_at is not None:
        rows.append(("Held for", elapsed_text(time.monotonic() - acquisition.launched_at)))
    return rows


def _aligned(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}   {value}" for name, value in rows)
