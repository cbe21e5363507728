"""NVIDIA cards and the processes on them as plain values, and their JSON between our two processes. Pure."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.one_line import one_line
from bitfusion_pool.inventory.servers import Device

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MOST_CARDS = 256  # as many as a server may have devices
MOST_PROCESSES = 4096
MOST_MIB = 1 << 30


@dataclass(frozen=True, slots=True)
class CardProcess:
    """A process that uses a card. `memory_mib` is None where the driver does not tell."""

    pid: int
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class Card:
    """A card, or a MIG device, which is a card of its own here.

    `memory_mib` is what programs can have of its memory, `used_mib` what they have; `percent` is how busy it
    is, None where the driver does not tell (MIG devices). A `problem` says why it cannot be used now.
    """

    uuid: str
    name: str
    memory_mib: int
    used_mib: int = 0
    percent: int | None = None
    processes: tuple[CardProcess, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """All cards at one moment. `notes` are sentences about what has not even a uuid."""

    driver_version: str
    cuda_version: str
    cards: tuple[Card, ...]
    notes: tuple[str, ...] = ()

    def devices(self) -> tuple[Device, ...]:
        """The cards as devices of a server, but for those whose memory is not known."""
        return tuple(
            Device(number, card.name, card.memory_mib, simulated=False, uuid=card.uuid)
            for number, card in enumerate(card for card in self.cards if card.memory_mib > 0)
        )

    def left_out(self) -> tuple[str, ...]:
        """Sentences about what is there and is no device."""
        unknown = (card for card in self.cards if card.memory_mib <= 0)
        return (*self.notes, *(f"{card.name} {card.uuid}: {card.problem}" for card in unknown))


def reading_to_json(reading: Reading) -> dict[str, Any]:
    """A reading as the reading process writes it."""
    return {
        "driver": reading.driver_version,
        "cuda": reading.cuda_version,
        "cards": [
            {
                "uuid": card.uuid,
                "name": card.name,
                "memory_mib": card.memory_mib,
                "used_mib": card.used_mib,
                "percent": card.percent,
                "processes": [[process.pid, process.memory_mib] for process in card.processes],
                "problem": card.problem,
            }
            for card in reading.cards
        ],
        "notes": list(reading.notes),
    }


def reading_from_json(data: Mapping[str, Any]) -> Reading:
    """The opposite of `reading_to_json`.

    Raises:
        ValueError: It is none.
    """
    try:
        cards = tuple(_card(one) for one in _list(data["cards"])[:MOST_CARDS])
        notes = tuple(one_line(note) for note in _list(data["notes"])[:MOST_CARDS])
        return Reading(one_line(data["driver"]), one_line(data["cuda"]), cards, notes)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no reading of NVIDIA GPUs: {error!r}") from None


def _card(data: Mapping[str, Any]) -> Card:
    percent = data["percent"]
    processes = tuple(
        CardProcess(_number(pid), None if memory is None else _number(memory))
        for pid, memory in _list(data["processes"])[:MOST_PROCESSES]
    )
    return Card(
        one_line(data["uuid"]),
        one_line(data["name"]),
        _number(data["memory_mib"]),
        _number(data["used_mib"]),
        None if percent is None else min(100, _number(percent)),
        processes,
        one_line(data["problem"]),
    )


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError(f"no reading of NVIDIA GPUs: {value!r:.80} is no list")
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MOST_MIB:
        raise ValueError(f"no reading of NVIDIA GPUs: {value!r} is no number of MiB, percent or process")
    return value
