"""The fields that were passed as ``extra`` with a log line."""

from __future__ import annotations

import logging
from typing import Any


def fields(record: logging.LogRecord, *names: str) -> tuple[Any, ...]:
    """The values of these fields, in this order."""
    return tuple(vars(record)[name] for name in names)
