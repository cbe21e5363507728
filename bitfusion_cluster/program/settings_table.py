"""The settings of a program as one table: its options, its environment variables, its help.

Every setting can be given as an option (``--monitoring-port 8080``) or in the environment, under the table's
prefix (``BITFUSION_CONTROLLER_MONITORING_PORT=8080``); the option wins, an empty variable counts as absent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bitfusion_client.errors import WrongSetting

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table. `parse` turns text into the value or raises ValueError: what is allowed."""

    group: str  # a heading of the help
    name: str  # of the field that takes the value
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
    """The rows of one program, under the headings `groups`; `prefix` is that of its variables."""

    prefix: str
    groups: tuple[str, ...]
    rows: tuple[Setting, ...]

    def variable(self, setting: Setting) -> str:
        """``BITFUSION_CONTROLLER_MONITORING_PORT``."""
        return self.prefix + setting.name.upper()

    def read(self, options: Mapping[str, str | None], environ: Mapping[str, str]) -> GivenSettings:
        """What options (by the rows' names, None: not given) and environment say.

        Raises WrongSetting, whose text is one line: the setting, its value, where it came from, what is
        allowed.
        """
        values: dict[str, object] = {}
        sources: dict[str, str] = {}
        for setting in self.rows:
            text, source = options.get(setting.name), setting.option
            if text is None:
                text, source = environ.get(self.variable(setting)) or None, self.variable(setting)
            if text is None:
                continue
            try:
                values[setting.name] = setting.parse(text)
            except ValueError as error:
                raise WrongSetting(source, text, str(error)) from None
            sources[setting.name] = source
        known = {self.variable(setting) for setting in self.rows}
        ignored = sorted(name for name in environ if name.startswith(self.prefix) and name not in known)
        return GivenSettings(values, sources, tuple(ignored))


def own_namespace(file: Path, whose: str) -> str:
    """The namespace of the pod that this runs in. Raises WrongSetting; `whose`: "the controller's"."""
    try:
        return parse_label(file.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        raise WrongSetting(
            "--namespace", "", f"must be given outside a pod: the namespace of {whose} Service"
        ) from None


def parse_text(text: str) -> str:
    """Anything."""
    return text


def parse_object_name(text: str) -> str:
    """The name of a Kubernetes object."""
    if not _NAME.fullmatch(text):
        raise ValueError("must be the name of a Kubernetes object: lower case letters, digits, - and .")
    return text


def parse_label(text: str) -> str:
    """A DNS label: the name of a namespace, a Service, a ServiceAccount."""
    if not _LABEL.fullmatch(text):
        raise ValueError("must be at most 63 lower case letters, digits and -")
    return text


def parse_address(text: str) -> str:
    """An IP address."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("must be an IP address, 0.0.0.0 or :: for all") from None


def parse_port(text: str) -> int:
    """A port; 0 for any free one."""
    if not (text.isascii() and text.isdigit() and int(text[:6]) <= 65535):
        raise ValueError("must be a port, 1 to 65535 (0: any free one)")
    return int(text)


def parse_short_time(text: str) -> float:
    """Seconds, 10 at most."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 10:
        raise ValueError("must be seconds from 0 to 10")
    return seconds


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that takes one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError("must be one of " + ", ".join(words))
        return text

    return parse


def parse_names(text: str) -> tuple[str, ...]:
    """DNS names and addresses, separated by commas."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in found:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            if not _NAME.fullmatch(name.lower()):
                raise ValueError("must be DNS names or IP addresses, separated by commas") from None
    return found
