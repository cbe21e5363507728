"""The admin's `sizes.yaml`, the same file that makes the notebook forms, read again when it has changed.

PyYAML reads it, which a notebook's image need not have; a file that is JSON, which is YAML too, is read
without. Whatever is wrong with it is logged once, and the sizes are made from the pool then.
"""

from __future__ import annotations

import json
import os
from logging import Logger

from bitfusion_client.errors import BitfusionError
from bitfusion_client.one_line import one_line
from jupyter_ext.server.sizes import OfferedSize
from jupyter_ext.spawner.sizes import parse_sizes
from jupyter_ext.spawner.yaml_document import LARGEST_FILE, Document, read_document


class SizesFile:
    """A list of sizes in a file.

    Args:
        path: Empty: there is none.
        log: Where it is said what is wrong with it.
    """

    def __init__(self, path: str, log: Logger) -> None:
        self._path = os.path.expanduser(path)
        self._log = log
        self._read_of: object = self  # not read yet
        self._sizes: list[OfferedSize] | None = None

    def sizes(self) -> list[OfferedSize] | None:
        """Those of the file; None: there is no file, or it cannot be used."""
        if not self._path:
            return None
        mark = _mark(self._path)
        if mark != self._read_of:
            self._read_of, self._sizes = mark, self._read()
        return self._sizes

    def _read(self) -> list[OfferedSize] | None:
        try:
            return [
                OfferedSize(size.label, size.request) for size in parse_sizes(_document(self._path)).sizes
            ]
        except BitfusionError as error:
            why = error.user_message.replace("\n", " ")
        except OSError as error:
            why = error.strerror or "it cannot be read"
        told = "Sizes are derived from the pool, because the list %s cannot be used: %s"
        self._log.warning(told, self._path, one_line(why))
        return None


def _document(path: str) -> Document:
    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE + 1)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return read_document(path)
    return _JsonDocument(os.path.basename(path), content.decode(), data, None)


class _JsonDocument(Document):
    """One of which nobody knows the lines."""

    def line(self, *path: str | int) -> int:
        return 1


def _mark(path: str) -> tuple[int, int, int] | None:
    """What differs when the file does; a ConfigMap's file is another one then."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
