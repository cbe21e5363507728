"""Structured logs: one line of JSON on stderr for each event, or one of text for people.

Everybody uses `logging` as ever and passes the facts of an event as ``extra``::

    log.info("notebook refused", extra={"namespace": "ann", "notebook": "nb", "reason": "…"})

``message`` is a fixed sentence to search for; what varies is in the fields. (``name`` and the other
attributes of a `logging.LogRecord` cannot be used as names of fields.)
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TextIO

FORMATS = ("json", "text")
LEVELS = ("debug", "info", "warning", "error")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FIRST = ("time", "level", "logger", "message")

_encode = json.JSONEncoder(default=str).encode


def configure_logging(log_format: str = "json", level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log line of the process to `stream` (stderr), once. `log_format`: one of `FORMATS`.

    Called by the command before anything else is started. Raises ValueError for an unknown format or level.
    """
    if log_format not in FORMATS:
        raise ValueError(f"log format {log_format!r}: one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Below that tornado tells of every connection that a client drops.
    tornado = logging.getLogger("tornado.general")
    tornado.setLevel(max(logging.WARNING, root.level))
    tornado.addFilter(_SELDOM)
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, root.level))


class _Seldom(logging.Filter):
    """Lets one line through in ten seconds: tornado tells of each failed handshake, and anybody may try."""

    until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged; called by `logging`."""
        now = time.monotonic()
        passes = now >= self.until
        if passes:
            self.until = now + 10.0
        return passes


_SELDOM = _Seldom()


class JsonFormatter(logging.Formatter):
    """``{"time": …, "level": "info", "logger": …, "message": …, fields…, "error": traceback}``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON; called by `logging`."""
        values = _values(record)
        if record.exc_info:
            values["error"] = self.formatException(record.exc_info)
        # ASCII: what a terminal or a collector makes of other letters is not known
        return _encode(values)


class TextFormatter(logging.Formatter):
    """``07:30:01.123 INFO  notebook refused  namespace=ann notebook=nb``, tracebacks below."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of text; called by `logging`."""
        values = _values(record)
        fields = " ".join(f"{name}={_field(value)}" for name, value in values.items() if name not in _FIRST)
        time_of_day = str(values["time"])[11:23]
        line = f"{time_of_day} {record.levelname:<7} {_line(values['message'])}"
        if fields:
            line += "  " + fields
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def _values(record: logging.LogRecord) -> dict[str, object]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    values: dict[str, object] = {
        "time": f"{moment}.{int(record.msecs):03d}Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    for name, value in vars(record).items():
        if name not in _STANDARD and name not in _FIRST:
            values[name] = value
    return values


def _field(value: object) -> str:
    text = _line(value)
    return f'"{text}"' if " " in text or not text else text


def _line(value: object) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(value))
