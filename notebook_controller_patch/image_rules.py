"""Image rules, which client fits which image: the admin's images.yaml, read again when it has changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import yaml

from bitfusion_client.client_images import ANY, ImageRule, default_rules, parse_image_rules
from bitfusion_client.errors import WrongSetting

SETTING = "--images"
LARGEST_FILE = 1 << 20  # bytes; what a ConfigMap can hold

log = logging.getLogger(__name__)


class ImageRulesFile:
    """The rules in force; without a file the built-in ones. `rules` may be read from every thread.

    `clients` is one of `CLIENT_LISTS`: which clients the rules may name.
    """

    def __init__(self, path: str | None, clients: str = ANY) -> None:
        self._path = Path(path) if path else None
        self._clients = clients
        self._seen = b""
        self._complaint = ""
        self.rules: Sequence[ImageRule] = default_rules(clients)

    def load(self) -> None:
        """The first reading. Raises WrongSetting that names the file, the item and what is allowed."""
        if self._path is not None:
            self._take(self._path)

    def refresh(self) -> bool:
        """Look again; True if other rules hold now. A broken file is logged once and the old rules stay."""
        if self._path is None:
            return False
        try:
            changed = self._take(self._path)
        except WrongSetting as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("image rules cannot be read, the old ones stay: %s", error)
            return False
        self._complaint = ""
        if changed:
            own = len(self.rules) - len(default_rules(self._clients))
            log.info("image rules read again", extra={"file": str(self._path), "rules": own})
        return changed

    def _take(self, path: Path) -> bool:
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST_FILE)
        except OSError as error:
            raise WrongSetting(SETTING, str(path), f"cannot be read ({error.strerror or error})") from None
        if content == self._seen:
            return False
        try:
            data = yaml.safe_load(content)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise WrongSetting(SETTING, str(path), f"is not YAML ({_place(error)})") from None
        self.rules = parse_image_rules(data, str(path), self._clients)
        self._seen = content
        return True


def _place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"line {mark.line + 1}: {problem}" if mark is not None else str(problem)
