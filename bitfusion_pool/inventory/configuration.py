"""pool.toml: servers, GPUs and emulation settings as an administrator describes them."""

from __future__ import annotations

import os
import sys

from bitfusion_client.errors import InvalidRequest, PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.inventory.emulation import TABLE, emulation_from
from bitfusion_pool.inventory.servers import (
    DEFAULT_DEVICE_NAME,
    DEFAULT_MEMORY_MIB,
    Device,
    Server,
    default_name,
    simulated_devices,
    stable_uuid,
)
from bitfusion_pool.own_files import NotOurs, read_text, trusted_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAX_DEVICES = 256  # of one server
MAX_BYTES = 1 << 20

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
_DEVICE_FIELDS: dict[str, type] = {"name": str, "memory_mib": int, "count": int, "uuid": str}
_LONGEST_UUID = 96  # as NVML has it
_TYPE_NAMES: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "a list of tables",
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """What pool.toml says: servers (maybe none) and emulation settings, checked but still as text."""

    servers: tuple[Server, ...]
    emulation: Mapping[str, str]


def wrong_configuration(path: str, why: str, cure: str = "correct it") -> PoolUnreadable:
    """The error for a file that cannot be read or says something wrong."""
    return PoolUnreadable("", f"pool configuration {path} is wrong: {why}", cure)


def read_configuration(path: str, cure: str = "correct it") -> Configuration:
    """Read a file to which no other user but root can lead us or write.

    Args:
        path: The file.
        cure: What to do where it is wrong.

    Raises:
        PoolUnreadable: The file is wrong; the error names the key.
    """
    try:
        text = read_text(trusted_path(os.path.abspath(path)), MAX_BYTES)
    except NotOurs as error:
        copy = "copy what you trust to a file of your own in its place"
        raise wrong_configuration(path, str(error.strerror), copy) from error
    except (OSError, UnicodeError) as error:
        raise wrong_configuration(path, getattr(error, "strerror", None) or str(error), cure) from error
    try:
        return parse_configuration(text)
    except ValueError as error:
        raise wrong_configuration(path, str(error), cure) from error


def parse_configuration(text: str) -> Configuration:
    """The configuration in the text of a file.

    Raises:
        ValueError: The text is wrong; the error names the key and what is allowed.
    """
    data = _toml(text)
    for key in data:
        if key not in ("servers", TABLE):
            raise ValueError(f"unknown key {key!r}; known are servers, {TABLE}")
    settings = data.get(TABLE, {})
    if not isinstance(settings, dict):
        raise ValueError(f"{TABLE} must be a table [{TABLE}]")
    emulation = {name: _setting_text(value) for name, value in settings.items()}
    try:
        emulation_from(emulation)
    except InvalidRequest as error:
        raise ValueError(str(error)) from error
    tables = data.get("servers", [])
    if not isinstance(tables, list):
        raise ValueError("servers must be a list of tables [[servers]]")
    servers = tuple(_server(position, table) for position, table in enumerate(tables))
    keys = [server.key for server in servers]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"two servers have the address {key}")
    return Configuration(servers, emulation)


def _toml(text: str) -> dict[str, Any]:
    from importlib import import_module

    # by name, because a type checker knows only one of the two
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        # `bitfusion` runs without site-packages, and in a checkout they are not beside this package either
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        sys.path.append(f"{os.path.dirname(os.path.dirname(sys.executable))}/lib/{version}/site-packages")
        try:
            module = import_module(name)
        except ModuleNotFoundError:
            raise ValueError(f"reading it needs the package {name}, which is missing") from None
    data: dict[str, Any] = module.loads(text)
    return data


def _setting_text(value: object) -> str:
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
            raise ValueError(f"{place}: {key} must be {_TYPE_NAMES[fields[key]]}, not {value!r}")
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
    name = fields.get("name", default_name(position))
    devices: tuple[Device, ...] = ()
    for number, group in enumerate(fields.get("devices", [])):
        values = _checked(f"{place}.devices[{number}]", group, _DEVICE_FIELDS)
        if len(devices) + values.get("count", 1) > MAX_DEVICES:
            raise ValueError(f"{place}: a server has at most {MAX_DEVICES} devices")
        if "uuid" in values:
            devices += (_real_device(f"{place}.devices[{number}]", values, len(devices)),)
            continue
        devices += simulated_devices(
            values.get("count", 1),
            values.get("memory_mib", DEFAULT_MEMORY_MIB),
            values.get("name", DEFAULT_DEVICE_NAME),
            first=len(devices),
        )
    uuids = [device.uuid for device in devices if not device.simulated]
    if len(set(uuids)) < len(uuids):
        raise ValueError(f"{place}: two devices have the same uuid")
    if uuids and len(uuids) < len(devices):
        raise ValueError(f"{place}: real devices (uuid) and simulated ones need a server each")
    given = {key: value for key, value in fields.items() if key not in ("name", "address", "port", "devices")}
    given.setdefault("uuid", stable_uuid(name, f"{address}:{port}"))
    given.setdefault("hostname", name)
    return Server(name, address, port, devices, **given)


def _real_device(place: str, values: Mapping[str, Any], number: int) -> Device:
    """An NVIDIA card, or a MIG device, as `bitfusion-pool init --nvidia` has written it."""
    uuid = values["uuid"]
    known = uuid.startswith(("GPU-", "MIG-")) and uuid.isascii() and len(uuid) <= _LONGEST_UUID
    # the programs get it in CUDA_VISIBLE_DEVICES, where a comma is followed by another one
    if not known or not all(letter.isalnum() or letter in "-/" for letter in uuid):
        raise ValueError(f"{place}: uuid must be as nvidia-smi -L shows it, GPU-… or MIG-…, not {uuid!r}")
    for key in ("name", "memory_mib"):
        if key not in values:
            raise ValueError(f"{place}: a device with a uuid needs {key}, too")
    if "count" in values:
        raise ValueError(f"{place}: a device with a uuid is one device; count must not be there")
    return Device(number, values["name"], values["memory_mib"], simulated=False, uuid=uuid)
