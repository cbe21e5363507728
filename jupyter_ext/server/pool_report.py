"""What `bitfusion list_gpus` prints, as the JSON of the pool. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitfusion_client.command.client_reports import (
    GpuStatus,
    parse_list_gpus,
    parse_notes,
    parse_waiting,
)
from bitfusion_client.one_line import one_line

Json = dict[str, Any]

MOST_SERVERS = 200
MOST_GPUS = 64  # of one server
MOST_NAMED = 64  # holders of one GPU, and those who wait
LONGEST_TEXT = 4000  # characters of what has an unknown form

_HELD_BY = "held by "
_POSITION = "position "


def pool_report(output: str, mine: Sequence[str]) -> Json:
    """Servers, GPUs, who holds them and who waits: the fields that the client's output tells.

    Args:
        output: Of the client, whole.
        mine: With what the names of this server's user begin; see `own_names`.

    Returns:
        ``servers``, ``waiting``, ``notes``, ``simulated`` and ``text``; the last is None unless nothing of
        the output was understood.
    """
    servers = parse_list_gpus(output)[:MOST_SERVERS]
    waiting = [_waiter(text, mine) for text in parse_waiting(output)[:MOST_NAMED]]
    notes = [one_line(note) for note in parse_notes(output)[:MOST_NAMED]]
    gpus = [gpu for server in servers for gpu in server.gpus]
    understood = servers or waiting or notes
    return {
        "servers": [
            {
                "address": one_line(server.address),
                "gpus": [_gpu(gpu, mine) for gpu in server.gpus[:MOST_GPUS]],
            }
            for server in servers
        ],
        "waiting": waiting,
        "notes": notes,
        "simulated": bool(gpus) and all(gpu.simulated for gpu in gpus),
        "text": None if understood else output[:LONGEST_TEXT],
    }


def figures(report: Json) -> Json:
    """What the history keeps of a report: how many GPUs there are, what of them is held, how many wait.

    A GPU of which half is held counts as a half; one whose memory nobody tells as a whole.
    """
    gpus = [gpu for server in report["servers"] for gpu in server["gpus"]]
    held = sum(map(_held, gpus))
    return {"held": round(held, 3), "total": len(gpus), "waiting": len(report["waiting"])}


def _held(gpu: Json) -> float:
    total = gpu["total_mib"]
    if not total:
        return float(bool(gpu["holders"]))
    return float(min(1.0, max(0.0, (total - gpu["free_mib"]) / total)))


def is_mine(text: str, mine: Sequence[str]) -> bool:
    """Whether a holder or waiter is this server's user, by the names that the client tells."""
    return any(text.startswith(beginning) for beginning in mine)


def _gpu(gpu: GpuStatus, mine: Sequence[str]) -> Json:
    return {
        "index": gpu.id,
        "name": one_line(gpu.name),
        "simulated": gpu.simulated,
        "free_mib": gpu.free_mib,
        "total_mib": gpu.total_mib,
        "holders": [_holder(line, mine) for line in gpu.holders[:MOST_NAMED]],
        "notes": [one_line(note) for note in gpu.notes[:MOST_NAMED]],
    }


def _holder(line: str, mine: Sequence[str]) -> Json:
    size, _, rest = line.partition(" MiB " + _HELD_BY)
    mib = int(size) if rest and size.isascii() and size.isdigit() else None
    text = one_line(rest if mib is not None else line.removeprefix(_HELD_BY))
    return {"text": text, "mine": is_mine(text, mine), "mib": mib}


def _waiter(line: str, mine: Sequence[str]) -> Json:
    number, colon, rest = line.removeprefix(_POSITION).partition(": ")
    has_position = line.startswith(_POSITION) and bool(colon) and number.isascii() and number.isdigit()
    text = one_line(rest if has_position else line)
    position = int(number) if has_position and len(number) <= 9 else None
    return {"text": text, "mine": is_mine(text, mine), "position": position}
