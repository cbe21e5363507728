"""The settings of a program as one table: its options, environment variables, settings file, and help.

Every setting can be given as an option (``--monitoring-port 8080``) or in the environment, under the table's
prefix (``BITFUSION_CONTROLLER_MONITORING_PORT=8080``), or, where the program reads one, in a file in TOML
(``monitoring_port = 8080``). The option wins over the environment, the environment over the file; an empty
variable counts as absent. For the programs of a cluster and `bitfusion-pool serve`; those of a kernel are
IPython's configuration, too, and have their own table (`bitfusion_kernel.settings.table`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from ipaddress import ip_address

from bitfusion_client.errors import WrongSetting
from bitfusion_client.structured_logs import FORMATS, LEVELS


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table. `parse` turns text into the value or raises ValueError: what is allowed."""

    name: str  # of the field that takes the value; in the file, too
    metavar: str
    help: str
    parse: Callable[[str], object]

    @property
    def option(self) -> str:
        """``--monitoring-port``."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """What was given: values and where each came from, by the settings' names; and what nobody asked for.

    `ignored` are the variables with the table's prefix that are no setting.
    """

    values: dict[str, object]
    sources: dict[str, str]
    ignored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """The rows of one program, by the headings of its help; `prefix` is that of its variables."""

    prefix: str
    groups: Mapping[str, tuple[Setting, ...]]

    @property
    def rows(self) -> tuple[Setting, ...]:
        """All of them."""
        return tuple(setting for group in self.groups.values() for setting in group)

    def variable(self, setting: Setting) -> str:
        """``BITFUSION_CONTROLLER_MONITORING_PORT``."""
        return self.prefix + setting.name.upper()

    def read(
        self,
        options: Mapping[str, str | None],
        environ: Mapping[str, str],
        written: Mapping[str, str] | None = None,
        file: str = "",
    ) -> GivenSettings:
        """What options (by the rows' names, None: not given), environment and file say.

        Args:
            options: Of the command line.
            environ: The environment.
            written: What `in_toml` has read in `file`; None for a program without a file.
            file: Its path, for messages.

        Raises WrongSetting, whose text is one line: the setting, its value, where it came from, what is
        allowed.
        """
        values: dict[str, object] = {}
        sources: dict[str, str] = {}
        for setting in self.rows:
            text, source = options.get(setting.name), setting.option
            if text is None:
                text, source = environ.get(self.variable(setting)) or None, self.variable(setting)
            if text is None and written is not None:
                text, source = written.get(setting.name), file
            if text is None:
                continue
            try:
                values[setting.name] = setting.parse(text)
            except ValueError as error:
                # a path alone would not say which setting of the file
                where = (source,) if written is None else (setting.name, source)
                raise WrongSetting(where[0], text, str(error), *where[1:]) from None
            sources[setting.name] = source
        known = {self.variable(setting) for setting in self.rows}
        ignored = sorted(name for name in environ if name.startswith(self.prefix) and name not in known)
        return GivenSettings(values, sources, tuple(ignored))

    def in_toml(self, text: str, file: str) -> dict[str, str]:
        """What a settings file says, by the rows' names, as text that their parsers read.

        Raises WrongSetting for what is no setting or no single value; ValueError or RecursionError for what
        is no TOML.
        """
        # by name, because a type checker knows only one of the two
        found = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(text)
        known = {setting.name: setting.parse for setting in self.rows}
        for name, value in found.items():
            if name not in known:
                allowed = "is not a setting; settings are " + ", ".join(sorted(known))
                raise WrongSetting(name, value, allowed, file)
            if known[name] is parse_boolean:
                if type(value) is not bool:
                    raise WrongSetting(name, value, "must be true or false, without quotes", file)
                found[name] = str(value).lower()
            elif type(value) not in (str, int, float):
                raise WrongSetting(name, value, "must be text or a number", file)
        return {name: str(value) for name, value in found.items()}


def parse_text(text: str) -> str:
    """Anything."""
    return text


def parse_path(text: str) -> str:
    """A path that means the same from everywhere."""
    if not text.startswith("/") or "\0" in text:
        raise ValueError("must be an absolute path")
    return text


def parse_boolean(text: str) -> bool:
    """As TOML has them."""
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that takes one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError("must be one of " + ", ".join(words))
        return text

    return parse


def number(least: float, most: float, what: str = "seconds") -> Callable[[str], float]:
    """A parser of a number within bounds; `what` it is stands in the message."""

    def parse(text: str) -> float:
        try:
            value = float("" if "_" in text else text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:  # not a number: neither
            raise ValueError(f"must be {what} from {least:g} to {most:g}")
        return value

    return parse


def whole(least: int, most: int, allowed: str = "") -> Callable[[str], int]:
    """A parser of a whole number within bounds; `allowed` replaces the message that names them."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not least <= value <= most:
            raise ValueError(allowed or f"must be a whole number from {least} to {most}")
        return value

    return parse


def address(allowed: str) -> Callable[[str], str]:
    """A parser of an IP address; `allowed` is its message."""

    def parse(text: str) -> str:
        try:
            return str(ip_address(text))
        except ValueError:
            raise ValueError(allowed) from None

    return parse


LOG_ROWS = (
    Setting("log_format", "FORMAT", "json, or text for people. Default: json", one_of(*FORMATS)),
    Setting("log_level", "LEVEL", f"{', '.join(LEVELS)}. Default: info", one_of(*LEVELS)),
)
"""Format and level of a program's log."""
