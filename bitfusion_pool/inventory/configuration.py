"""pool.toml: the servers and devices an admin describes, and the manners. Format: docs/pool.md."""

from __future__ import annotations

import os
import sys

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.emulation import manners_from
from bitfusion_pool.inventory.servers import (
    DEFAULT_DEVICE_NAME,
    DEFAULT_MEMORY_MIB,
    Device,
    Server,
    simulated_devices,
    stable_uuid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FILE = "pool.toml"
MOST_DEVICES = 256  # of one server

_SERVER_FIELDS: dict[str, type] = {
    "name": str,
    "address": str,
    "port": int,
    "dispatcher_port": int,
    "uuid": str,
    "hostname": str,
    "has_rdma": bool,
    "cuda_version": str,
    "driver_version": str,
    "devices": list,
}
_DEVICE_FIELDS: dict[str, type] = {"name": str, "memory_mib": int, "count": int}
_KINDS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "a list of tables",
}


def configuration_path(folder: str, environ: Mapping[str, str]) -> str:
    """The file that describes the pool in `folder`; it need not exist unless the environment names it."""
    return environ.get("BITFUSION_POOL_CONFIG") or f"{folder}/{FILE}"


def stamp(path: str, required: bool) -> str:
    """Changes whenever the file does; empty if there is none. Raises PoolUnreadable if it is `required`."""
    try:
        found = os.stat(path)
    except OSError as error:
        if required:
            raise wrong(path, error.strerror or str(error)) from error
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"


def wrong(path: str, why: str) -> PoolUnreadable:
    return PoolUnreadable("", f"pool configuration {path} is wrong: {why}")


def read_configuration(path: str) -> tuple[tuple[Server, ...], dict[str, str]]:
    """Servers and manners (as text, already checked). Raises PoolUnreadable naming the place of a mistake."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeError) as error:
        raise wrong(path, getattr(error, "strerror", None) or str(error)) from error
    try:
        return parse_configuration(text)
    except ValueError as error:
        raise wrong(path, str(error)) from error


def parse_configuration(text: str) -> tuple[tuple[Server, ...], dict[str, str]]:
    """The same from the text of the file. Raises ValueError in words for people."""
    data = _toml(text)
    for key in data:
        if key not in ("servers", "manners"):
            raise ValueError(f"unknown key {key!r}; known are servers, manners")
    manners = data.get("manners", {})
    if not isinstance(manners, dict):
        raise ValueError("manners must be a table [manners]")
    spelled = {name: _spelling(value) for name, value in manners.items()}
    try:
        manners_from(spelled)
    except Exception as error:
        raise ValueError(str(error)) from error
    tables = data.get("servers", [])
    if not isinstance(tables, list):
        raise ValueError("servers must be a list of tables [[servers]]")
    servers = tuple(_server(position, table) for position, table in enumerate(tables))
    keys = [server.key for server in servers]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"two servers have the address {key}")
    return servers, spelled


def _toml(text: str) -> dict[str, Any]:
    from importlib import import_module

    # by name: which of the two exists depends on the Python
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        # the command runs without site-packages, and in a checkout they do not lie beside this package
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        sys.path.append(f"{os.path.dirname(os.path.dirname(sys.executable))}/lib/{version}/site-packages")
        try:
            module = import_module(name)
        except ModuleNotFoundError:
            raise ValueError(f"reading it needs the package {name}, which is missing") from None
    data: dict[str, Any] = module.loads(text)
    return data


def _spelling(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _checked(place: str, table: object, fields: Mapping[str, type]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ValueError(f"{place} must be a table")
    for key, value in table.items():
        if key not in fields:
            raise ValueError(f"{place}: unknown key {key!r}; known are {', '.join(fields)}")
        if type(value) is not fields[key]:
            raise ValueError(f"{place}: {key} must be {_KINDS[fields[key]]}, not {value!r}")
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise ValueError(f"{place}: {key} must be at least 1, not {value}")
        if isinstance(value, str) and not (value and value.isprintable()):
            raise ValueError(f"{place}: {key} must be one line of text, not {value!r}")
    return table


def _server(position: int, table: object) -> Server:
    place = f"servers[{position}]"
    fields = _checked(place, table, _SERVER_FIELDS)
    address = fields.get("address", "127.0.0.1")
    port = fields.get("port", 56001)
    if any(letter in address for letter in " \t;,"):
        raise ValueError(f"{place}: address must not contain blanks, ; or ,: {address!r}")
    if port > 65535 or fields.get("dispatcher_port", 1) > 65535:
        raise ValueError(f"{place}: ports go up to 65535")
    name = fields.get("name", "local" if position == 0 else f"server{position}")
    devices: tuple[Device, ...] = ()
    for number, group in enumerate(fields.get("devices", [])):
        values = _checked(f"{place}.devices[{number}]", group, _DEVICE_FIELDS)
        if len(devices) + values.get("count", 1) > MOST_DEVICES:
            raise ValueError(f"{place}: a server has at most {MOST_DEVICES} devices")
        devices += simulated_devices(
            values.get("count", 1),
            values.get("memory_mib", DEFAULT_MEMORY_MIB),
            values.get("name", DEFAULT_DEVICE_NAME),
            first=len(devices),
        )
    given = {key: value for key, value in fields.items() if key not in ("name", "address", "port", "devices")}
    given.setdefault("uuid", stable_uuid(name, f"{address}:{port}"))
    given.setdefault("hostname", name)
    return Server(name, address, port, devices, **given)
