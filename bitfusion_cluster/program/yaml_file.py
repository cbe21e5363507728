"""A file of an administrator's in YAML, mounted from a ConfigMap and read again when it has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import yaml

from bitfusion_client.errors import WrongSetting

LARGEST_FILE = 1 << 20  # bytes; what a ConfigMap can hold

T = TypeVar("T")

log = logging.getLogger(__name__)


class YamlFile(Generic[T]):
    """What a file says; without a file what an empty one would. `value` may be read from every thread.

    Args:
        setting: The option that names the file: ``--images``.
        path: None without a file.
        what: For the log, in the plural: "image rules".
        parse: Makes the value of what YAML reads (None for an empty file) and the path. Raises WrongSetting.
    """

    def __init__(self, setting: str, path: str | None, what: str, parse: Callable[[object, str], T]) -> None:
        self._setting = setting
        self._path = Path(path) if path else None
        self._what = what
        self._parse = parse
        self._seen = b""
        self._complaint = ""
        self.value: T = parse(None, "")

    def load(self) -> None:
        """The first reading. Raises WrongSetting that names the file, the item and what is allowed."""
        if self._path is not None:
            self._take(self._path)

    def refresh(self) -> bool:
        """Look again; True if another value holds now. A broken file is logged once, the old value stays."""
        if self._path is None:
            return False
        try:
            changed = self._take(self._path)
        except WrongSetting as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("%s cannot be read, the old contents stay in use: %s", self._what, error)
            return False
        self._complaint = ""
        if changed:
            log.info("%s read again", self._what, extra={"file": str(self._path)})
        return changed

    def _take(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST_FILE)
        except OSError as error:
            raise WrongSetting(
                self._setting, str(path), f"cannot be read ({error.strerror or error})"
            ) from None
        if content == self._seen:
            return False
        try:
            data = yaml.safe_load(content)
        except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
            raise WrongSetting(self._setting, str(path), f"is not YAML ({_place(error)})") from None
        self.value = self._parse(data, str(path))
        self._seen = content
        return True


def _place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
