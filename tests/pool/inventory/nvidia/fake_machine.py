"""Machines with NVIDIA cards that are not there: what `tests/pool/fake_nvml` tells of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "fake_nvml"
ONE = "GPU-11111111-1111-1111-1111-111111111111"
TWO = "GPU-22222222-2222-2222-2222-222222222222"
PART = "MIG-33333333-3333-3333-3333-333333333333"
LOST, NO_PERMISSION, NOT_LOADED, MISMATCH, FUNCTION_NOT_FOUND, UNKNOWN = 15, 4, 9, 18, 13, 999


def card(uuid: str = ONE, total: int = 16384, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "name": "NVIDIA Test", "total": total, "reserved": 384, "percent": 7, **more}


class FakeMachine:
    """The machine's description, which a test may change between two readings."""

    def __init__(self, folder: Path, *cards: dict[str, Any], **more: Any) -> None:
        self._file = folder / "machine.json"
        self.variables = {"BITFUSION_POOL_NVML": str(FOLDER), "FAKE_NVML": str(self._file)}
        self.become(*cards, **more)

    def become(self, *cards: dict[str, Any], **more: Any) -> None:
        draft = self._file.with_suffix(".new")  # a reading may begin at any moment
        draft.write_text(json.dumps({"cards": list(cards), **more}))
        draft.rename(self._file)
