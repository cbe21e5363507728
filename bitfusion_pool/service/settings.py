"""The settings of `bitfusion-pool serve`: one table for options, environment, the settings file and the help.

``--leases-per-user 2``, ``BITFUSION_POOL_LEASES_PER_USER=2`` and ``leases_per_user = 2`` in the file say the
same; which wins over which stands in `bitfusion_client.settings_table`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from bitfusion_client.errors import WrongSetting
from bitfusion_client.settings_table import (
    LOG_ROWS,
    Setting,
    SettingsTable,
    address,
    number,
    one_of,
    parse_boolean,
    parse_path,
    whole,
)
from bitfusion_pool.access.addresses import Address, parse_address
from bitfusion_pool.own_files import read_text, trusted_path
from bitfusion_pool.service.devices.found_devices import AUTO, CHOICES
from bitfusion_pool.service.monitoring.holder_usage import EVERYBODY, NOBODY, TOKENS

DEFAULT_FILE = "/etc/bitfusion-pool/service.toml"
DEFAULT_FOLDER = "/var/lib/bitfusion-pool"
DEFAULT_SOCKET = "/run/bitfusion-pool/socket"
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


def _short_text(text: str) -> str:
    if not text.isprintable() or len(text) > 100:
        raise ValueError("must be one line of at most 100 characters")
    return text


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


_seconds = number(_LEAST_S, _MOST_S, "a number of seconds")
_LIMIT = whole(0, _MOST, "must be a whole number, 0 for no limit")
_BOUND = whole(1, _MOST, "must be a whole number, at least 1")

_ROWS = (
    Setting("dir", "FOLDER", f"where the ledger is. Default: {DEFAULT_FOLDER}", parse_path),
    Setting(
        "socket", "PATH", f"the unix socket for users of this machine. Default: {DEFAULT_SOCKET}", parse_path
    ),
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
        parse_path,
    ),
    Setting("name", "TEXT", "the pool's name for people. Default: the machine's", _short_text),
    Setting(
        "gpus",
        "WHICH",
        "what a pool without pool.toml hands out: auto (the machine's NVIDIA GPUs, simulated ones if it has "
        "none), nvidia, or simulated. Default: auto",
        one_of(*CHOICES),
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
        "waiting_per_user", "N", "how many requests of one user may wait; 0: no limit. Default: 64", _LIMIT
    ),
    Setting(
        "fair",
        "BOOL",
        "true: a user's second request waits behind others' first; false: strictly first come, first served. "
        "Default: false",
        parse_boolean,
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
        "how many connections of one other machine may have shown no token yet; one more ends the oldest of "
        "them. Default: 256",
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
        whole(0, 65535, "must be a port, 1 to 65535, or 0 for none"),
    ),
    Setting(
        "metrics_address",
        "ADDRESS",
        "the machine's address for them, which whoever reaches it may read; 0.0.0.0: all. Default: 127.0.0.1",
        address("must be an address such as 127.0.0.1, 0.0.0.0 or ::"),
    ),
    Setting(
        "metrics_holders",
        "WHICH",
        "whose GPUs they tell apart: tokens (by the name of their token, users of this machine counted "
        "together), all (users by name, too), none. Default: tokens",
        one_of(TOKENS, EVERYBODY, NOBODY),
    ),
    *LOG_ROWS,
)
TABLE = SettingsTable("BITFUSION_POOL_", {"settings": _ROWS})


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
    given = TABLE.read(options, environ, _read_file(path, must_exist=file is not None), path)
    settings = ServiceSettings(**given.values)  # type: ignore[arg-type]  # each parser returns its field's type
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
    try:
        # not one that another user could lead us to, or write
        return TABLE.in_toml(read_text(trusted_path(os.path.abspath(path)), _MOST_BYTES), path)
    except FileNotFoundError:
        if must_exist:
            raise WrongSetting("settings", path, "there is no such file", "--settings") from None
        return {}
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or str(error) or "it is nested too deeply"
        raise WrongSetting("settings", path, f"cannot be read: {why}", "--settings") from None


def pool_name(settings: ServiceSettings) -> str:
    """The pool's name for people."""
    return settings.name or f"the pool of {os.uname().nodename}"
