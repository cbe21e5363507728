"""The settings of `bitfusion-pool serve`: one table for options, environment, the settings file and the help.

Every setting can be given as an option (``--leases-per-user 2``), in the environment
(``BITFUSION_POOL_LEASES_PER_USER=2``) or in a TOML file (``leases_per_user = 2``). The option wins over the
environment, the environment over the file; an empty variable counts as absent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from ipaddress import ip_address

from bitfusion_client.errors import WrongSetting
from bitfusion_client.structured_logs import FORMATS
from bitfusion_pool.access.addresses import Address, parse_address
from bitfusion_pool.own_files import read_text, trusted_path
from bitfusion_pool.service.devices.found_devices import AUTO, CHOICES
from bitfusion_pool.service.monitoring.holder_usage import EVERYBODY, NOBODY, TOKENS

PREFIX = "BITFUSION_POOL_"
DEFAULT_FILE = "/etc/bitfusion-pool/service.toml"
DEFAULT_FOLDER = "/var/lib/bitfusion-pool"
DEFAULT_SOCKET = "/run/bitfusion-pool/socket"
LOG_LEVELS = ("debug", "info", "warning", "error")
_MOST = 1_000_000
_MOST_BYTES = 1 << 16
_LEAST_S, _MOST_S = 0.1, 3600.0


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What one service runs with; made by `read_settings`."""

    dir: str = DEFAULT_FOLDER
    socket: str = DEFAULT_SOCKET
    listen: str = ""
    certificate: str = ""
    name: str = ""
    gpus: str = AUTO
    leases_per_user: int = 0
    gpus_per_user: int = 0
    waiting_per_user: int = 64
    fair: bool = False
    connections_per_user: int = 256
    messages_per_user: int = 500
    connections: int = 4096
    connections_per_address: int = 256
    handshakes_per_address: int = 100
    closed_s: float = 15.0
    silent_s: float = 120.0
    heartbeat_s: float = 5.0
    kept_s: float = 15.0
    metrics_port: int = 0
    metrics_address: str = "127.0.0.1"
    metrics_holders: str = TOKENS
    log_format: str = "json"
    log_level: str = "info"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `parse` turns text into the value or raises ValueError: what is allowed."""

    name: str  # as in ServiceSettings, and in the file
    metavar: str
    help: str
    parse: Callable[[str], object]

    @property
    def option(self) -> str:
        """``--leases-per-user``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """``BITFUSION_POOL_LEASES_PER_USER``."""
        return PREFIX + self.name.upper()


def _path(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise ValueError("must be an absolute path")
    return text


def _short_text(text: str) -> str:
    if not text.isprintable() or len(text) > 100:
        raise ValueError("must be one line of at most 100 characters")
    return text


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _whole(least: int, most: int, words: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not least <= number <= most:
            raise ValueError(words)
        return number

    return parse


def _address(text: str) -> str:
    if text:
        listen_address(text)
    return text


def listen_address(text: str) -> Address:
    """Where to listen; its host is empty for all addresses of the machine. Raises ValueError."""
    allowed = "must be [ADDRESS]:PORT such as :56001, 192.0.2.1:56001 or [::1]:56001, or empty for nowhere"
    port = text.removeprefix(":")
    try:
        found = parse_address(f"localhost{text}" if port != text else text)
        if port != text:
            return Address("", found.port)
        ip_address(found.host)
    except ValueError:
        raise ValueError(allowed) from None
    return found


def _ip_address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError("must be an address such as 127.0.0.1, 0.0.0.0 or ::") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text) if len(text) < 10 and "_" not in text else 0.0
    except ValueError:
        seconds = 0.0
    if not _LEAST_S <= seconds <= _MOST_S:
        raise ValueError(f"must be a number of seconds from {_LEAST_S:g} to {_MOST_S:g}")
    return seconds


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError("must be one of " + ", ".join(words))
        return text

    return parse


_LIMIT = _whole(0, _MOST, "must be a whole number, 0 for no limit")
_BOUND = _whole(1, _MOST, "must be a whole number, at least 1")

TABLE = (
    Setting("dir", "FOLDER", f"where the ledger is. Default: {DEFAULT_FOLDER}", _path),
    Setting("socket", "PATH", f"the unix socket for users of this machine. Default: {DEFAULT_SOCKET}", _path),
    Setting(
        "listen",
        "[ADDRESS]:PORT",
        "where clients on other machines connect, with TLS and a token, such as :56001; they get simulated "
        "GPUs only, because no CUDA is forwarded. Default: nowhere",
        _address,
    ),
    Setting(
        "certificate",
        "FILE",
        "the certificate and its key, PEM. Default: what `bitfusion-pool certificate create` makes",
        _path,
    ),
    Setting("name", "TEXT", "the pool's name for people. Default: the machine's", _short_text),
    Setting(
        "gpus",
        "WHICH",
        "what a pool without pool.toml hands out: auto (the machine's NVIDIA GPUs, simulated ones if it has "
        "none), nvidia, or simulated. Default: auto",
        _one_of(*CHOICES),
    ),
    Setting(
        "leases_per_user",
        "N",
        "how many leases one user may have, waiting requests included; 0: no limit. Default: 0",
        _LIMIT,
    ),
    Setting(
        "gpus_per_user",
        "N",
        "how many GPUs, or shares of GPUs, one user may have or wait for; 0: no limit. Default: 0",
        _LIMIT,
    ),
    Setting(
        "waiting_per_user",
        "N",
        "how many requests of one user may wait; 0: no limit. Default: 64",
        _LIMIT,
    ),
    Setting(
        "fair",
        "BOOL",
        "true: a user's second request waits behind others' first; false: strictly first come, first served. "
        "Default: false",
        _boolean,
    ),
    Setting(
        "connections_per_user",
        "N",
        "how many connections one user may have; each program that holds GPUs or waits has one. Default: 256",
        _BOUND,
    ),
    Setting(
        "messages_per_user",
        "N",
        "how many messages of one user are answered each second; others wait. Default: 500",
        _BOUND,
    ),
    Setting("connections", "N", "how many connections there may be in all. Default: 4096", _BOUND),
    Setting(
        "connections_per_address",
        "N",
        "how many connections of one other machine may have shown no token yet. Default: 256",
        _BOUND,
    ),
    Setting(
        "handshakes_per_address",
        "N",
        "how many TLS handshakes of one other machine begin each second; others wait. Default: 100",
        _BOUND,
    ),
    Setting(
        "closed_s",
        "S",
        "how long a lease over the network outlives the end of its connection that its client's own machine "
        "has made, at least twice heartbeat_s; behind a proxy silent_s counts. Default: 15",
        _seconds,
    ),
    Setting(
        "silent_s",
        "S",
        "how long it outlives the last word of its client, at least closed_s. Default: 120",
        _seconds,
    ),
    Setting("heartbeat_s", "S", "how often such a client says that it lives. Default: 5", _seconds),
    Setting(
        "kept_s",
        "S",
        "how long after its start the service keeps the places of users of this machine who waited before. "
        "Default: 15",
        _seconds,
    ),
    Setting(
        "metrics_port",
        "PORT",
        "serve Prometheus metrics at this port of metrics_address; 0: nowhere. Needs the extra service. "
        "Default: 0",
        _whole(0, 65535, "must be a port, 1 to 65535, or 0 for none"),
    ),
    Setting(
        "metrics_address",
        "ADDRESS",
        "the machine's address for them, which whoever reaches it may read; 0.0.0.0: all. Default: 127.0.0.1",
        _ip_address,
    ),
    Setting(
        "metrics_holders",
        "WHICH",
        "whose GPUs they tell apart: tokens (by the name of their token, users of this machine counted "
        "together), all (users by name, too), none. Default: tokens",
        _one_of(TOKENS, EVERYBODY, NOBODY),
    ),
    Setting("log_format", "FORMAT", "json, or text for people. Default: json", _one_of(*FORMATS)),
    Setting("log_level", "LEVEL", f"{', '.join(LOG_LEVELS)}. Default: info", _one_of(*LOG_LEVELS)),
)


def read_settings(
    options: Mapping[str, str | None], environ: Mapping[str, str], file: str | None = None
) -> ServiceSettings:
    """Settings from options (by the names of `TABLE`, None: not given), the environment and a file.

    Args:
        options: The options of the command line.
        environ: The environment.
        file: The settings file; None for the default one, which need not exist.

    Raises:
        WrongSetting: One line: the setting, its value, where it came from, what is allowed.
    """
    path = file or DEFAULT_FILE
    written = _read_file(path, must_exist=file is not None)
    values: dict[str, object] = {}
    for setting in TABLE:
        text, source = options.get(setting.name), setting.option
        if text is None:
            text, source = environ.get(setting.variable) or None, setting.variable
        if text is None:
            text, source = written.get(setting.name), path
        if text is None:
            continue
        try:
            values[setting.name] = setting.parse(text)
        except ValueError as error:
            raise WrongSetting(setting.name, text, str(error), source) from None
    settings = ServiceSettings(**values)  # type: ignore[arg-type]  # each parser returns its field's type
    _check_times(settings)
    return settings


def _check_times(settings: ServiceSettings) -> None:
    # within closed_s a client notices by a heartbeat that its connection has gone, and makes another
    pairs = (
        ("closed_s", settings.closed_s, 2 * settings.heartbeat_s, "twice heartbeat_s"),
        ("silent_s", settings.silent_s, settings.closed_s, "closed_s"),
    )
    for name, value, least, words in pairs:
        if value < least:
            raise WrongSetting(name, f"{value:g}", f"must be at least {words}, which is {least:g}")


def _read_file(path: str, must_exist: bool) -> dict[str, str]:
    # by name, because a type checker knows only one of the two
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        # not one that another user could lead us to, or write
        text = read_text(trusted_path(os.path.abspath(path)), _MOST_BYTES)
        found = tomllib.loads(text)
    except FileNotFoundError:
        if must_exist:
            raise WrongSetting("settings", path, "there is no such file", "--settings") from None
        return {}
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or str(error) or "it is nested too deeply"
        raise WrongSetting("settings", path, f"cannot be read: {why}", "--settings") from None
    known = {setting.name: setting.parse for setting in TABLE}
    for name, value in found.items():
        if name not in known:
            raise WrongSetting(name, value, "is no setting; settings are " + ", ".join(sorted(known)), path)
        if known[name] is _boolean:
            if type(value) is not bool:
                raise WrongSetting(name, value, "must be true or false, without quotes", path)
            found[name] = str(value).lower()
        elif type(value) not in (str, int, float):
            raise WrongSetting(name, value, "must be text or a number", path)
    return {name: str(value) for name, value in found.items()}


def pool_name(settings: ServiceSettings) -> str:
    """The pool's name for people."""
    return settings.name or f"the pool of {os.uname().nodename}"
