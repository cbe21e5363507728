"""Whether the cluster has scheduling gates: since Kubernetes 1.27 without being switched on. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bitfusion_client.raw_objects import text

WITH_GATES = (1, 27)
VERSION_PATH = "/version"
_DIGITS = re.compile(r"\d{1,6}")


def server_version(answer: Mapping[str, Any]) -> tuple[int, int] | None:
    """Major and minor of an answer of ``/version``, as 1 and 26 of ``"26+"``; None if it does not say."""
    found = [_DIGITS.match(text(answer.get(part))) for part in ("major", "minor")]
    if found[0] is None or found[1] is None:
        return None
    return int(found[0][0]), int(found[1][0])


def has_gates(version: tuple[int, int] | None) -> bool:
    """A server that does not say its version is taken for one that has them: pods at a gate prove it."""
    return version is None or version >= WITH_GATES
