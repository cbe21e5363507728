"""`bitfusion list_gpus` and `bitfusion smi`."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.first_contact import claim
from bitfusion_pool.client.log_output import VERSION, Speaker, say
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.snapshot import Snapshot, take_snapshot
from bitfusion_pool.text_table import box

if TYPE_CHECKING:
    from collections.abc import Mapping


def list_gpus(environ: Mapping[str, str]) -> int:
    """Servers, GPUs and free memory on stdout; what else the client says goes where its manners say."""
    say(1, list_gpus_text(_snapshot(environ)))
    return 0


def list_gpus_text(snapshot: Snapshot) -> str:
    """In the shape remembered of the real client, the device's name added."""
    lines = []
    for position, server in enumerate(snapshot.servers):
        lines.append(f"- server {position} [{server.key}]: running {len(snapshot.tasks(server))} tasks")
        for device in server.devices:
            free = max(0, snapshot.free[server.key, device.number])
            memory = f"free memory {free} MiB / {device.memory_mib} MiB"
            lines.append(f"   |- GPU {device.number}: {memory} ({device.shown_name})")
    return "\n".join(lines) + "\n"


def smi(environ: Mapping[str, str]) -> int:
    """A table of GPUs and one of leases on stdout."""
    say(1, smi_text(_snapshot(environ)))
    return 0


def smi_text(snapshot: Snapshot) -> str:
    """The same as text."""
    gpus = []
    for server in snapshot.servers:
        for device in server.devices:
            used = device.memory_mib - snapshot.free[server.key, device.number]
            memory = f"{used}MiB / {device.memory_mib}MiB"
            gpus.append((server.key, str(device.number), device.shown_name, memory))
    leases = [
        (share.server, str(share.number), entry.holder.user, entry.holder.label, f"{share.memory_mib}MiB")
        for entry in snapshot.held
        for share in entry.shares
    ]
    text = f"BITFUSION-SMI {VERSION}   embedded pool{', simulated GPUs' if snapshot.simulated else ''}\n"
    text += box(("Server", "GPU", "Name", "Memory-Usage"), gpus)
    if leases:
        return text + box(("Server", "GPU", "User", "Task", "Memory"), leases)
    return text + "No running tasks found\n"


def _snapshot(environ: Mapping[str, str]) -> Snapshot:
    with Ledger(environ) as ledger:
        claim(ledger, Speaker(ledger.manners.stream))
        return take_snapshot(ledger)
