"""`bitfusion list_gpus` and `bitfusion smi`: servers, GPUs, free memory and leases as text."""

from __future__ import annotations

from bitfusion_client.command.log_output import VERSION, write_text
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.text_table import box
from bitfusion_pool.client.pools.first_contact import claim_client_id
from bitfusion_pool.client.pools.pool_choice import open_pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.inventory.servers import Device, Server
    from bitfusion_pool.ledger.snapshot import Snapshot


COOPERATIVE = (
    "Shares of memory are cooperative: PyTorch, TensorFlow and JAX keep to them, other programs may not\n"
)


def list_gpus(environ: Mapping[str, str]) -> int:
    """Servers, GPUs and free memory on stdout; log lines go where the emulation says."""
    write_text(1, list_gpus_text(_snapshot(environ)))
    return 0


def list_gpus_text(snapshot: Snapshot) -> str:
    """The report in the form remembered of the real client.

    Added are the device's name, who holds how much of it, and who waits.
    """
    lines = []
    for position, server in enumerate(snapshot.servers):
        lines.append(f"- server {position} [{server.key}]: running {len(snapshot.leases_on(server))} tasks")
        for device in server.devices:
            free = max(0, snapshot.free[server.key, device.number])
            memory = f"free memory {free} MiB / {device.memory_mib} MiB"
            lines.append(f"   |- GPU {device.number}: {memory} ({device.shown_name})")
            use = snapshot.use_of(server, device)
            if use and use.text():
                lines.append(f"   |  |- {use.text()}")
            lines += [
                f"   |  |- {share.memory_mib} MiB held by {entry.summary(snapshot.taken_at)}"
                for entry in snapshot.held
                for share in entry.shares
                if (share.server, share.number) == (server.key, device.number)
            ]
    lines += [
        f"- waiting, position {position}: {entry.summary(snapshot.taken_at)}"
        for position, entry in zip(snapshot.positions, snapshot.waiting, strict=True)
    ]
    if snapshot.left_out:
        lines.append(f"- {_left_out(snapshot)}")
    return "\n".join(lines) + "\n"


def smi(environ: Mapping[str, str]) -> int:
    """A table of GPUs and one of leases on stdout; log lines go where the emulation says."""
    write_text(1, smi_text(_snapshot(environ)))
    return 0


def smi_text(snapshot: Snapshot) -> str:
    """The tables as text."""
    gpus = []
    for server in snapshot.servers:
        for device in server.devices:
            used = device.memory_mib - snapshot.free[server.key, device.number]
            memory = f"{used}MiB / {device.memory_mib}MiB"
            gpus.append(
                (server.key, str(device.number), device.shown_name, memory, *_use(snapshot, server, device))
            )
    leases = [
        (share.server, str(share.number), entry.holder.user, entry.holder.label, f"{share.memory_mib}MiB")
        for entry in snapshot.held
        for share in entry.shares
    ]
    text = f"BITFUSION-SMI {VERSION}   embedded pool{', simulated GPUs' if snapshot.simulated else ''}\n"
    real = snapshot.has_real_devices
    text += box(("Server", "GPU", "Name", "Memory-Usage", *(("GPU-Util",) if real else ())), gpus)
    text += "".join(f"{line}\n" for line in snapshot.use_lines())
    if leases:
        text += box(("Server", "GPU", "User", "Task", "Memory"), leases)
    else:
        text += "No running tasks found\n"
    text += f"{_left_out(snapshot)}\n" if snapshot.left_out else ""
    return text + (COOPERATIVE if real else "")


def _left_out(snapshot: Snapshot) -> str:
    return f"and {snapshot.left_out} more leases or requests"


def _use(snapshot: Snapshot, server: Server, device: Device) -> tuple[str, ...]:
    """The cell of a table with real devices that says how busy this one is."""
    if not snapshot.has_real_devices:
        return ()
    use = snapshot.use_of(server, device)
    return ("" if use is None or use.percent is None else f"{use.percent}%",)


def _snapshot(environ: Mapping[str, str]) -> Snapshot:
    with open_pool(environ) as pool:
        claim_client_id(pool)
        return pool.snapshot()
