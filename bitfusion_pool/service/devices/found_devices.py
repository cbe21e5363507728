"""What a service hands out where no pool.toml says it: the machine's NVIDIA cards, or simulated GPUs.

The cards that were found are noted in a file of the service's folder. By it they keep their numbers, which
leases name, and a driver that does not answer at the next start does not make simulated GPUs of them.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping

from bitfusion_pool.inventory.configuration import MAX_BYTES, parse_configuration
from bitfusion_pool.inventory.nvidia.nvidia_configuration import configuration_text, same_numbers
from bitfusion_pool.inventory.nvidia.reading_process import (
    NoNvidiaDriver,
    NvidiaUnusable,
    no_gpus,
    read_cards,
)
from bitfusion_pool.inventory.servers import default_servers
from bitfusion_pool.ledger.files.complaints import unreadable
from bitfusion_pool.ledger.files.pool_folder import configuration_path
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.own_files import open_own, write_own

_log = logging.getLogger(__name__)

AUTO, NVIDIA, SIMULATED = "auto", "nvidia", "simulated"
CHOICES = (AUTO, NVIDIA, SIMULATED)

FILE = "devices.toml"
_HEAD = "# Written by bitfusion-pool serve, which found these GPUs. A pool.toml beside this file wins.\n"
_DRIVER = "/dev/nvidiactl"  # there where a driver is loaded


def choose_devices(ledger: Ledger, environ: Mapping[str, str], choice: str) -> None:
    """Make the ledger's inventory what the service shall hand out. Called before the service takes anybody.

    Blocks until the driver has answered, 8 s at most.

    Args:
        ledger: The service's ledger.
        environ: The environment, for the reading.
        choice: One of `CHOICES`; a pool.toml wins.

    Raises:
        NvidiaUnusable: The machine has NVIDIA GPUs, or shall have, and they cannot be read.
        PoolUnreadable: A file cannot be used.
    """
    if os.path.lexists(configuration_path(ledger.folder, environ)):
        return
    path = f"{ledger.folder}/{FILE}"
    try:
        if choice == SIMULATED:
            text = ""
            _remove(path)
        else:
            text = _cards(ledger, path, environ, choice)
    except OSError as error:
        raise unreadable(ledger.folder, error) from None
    servers = parse_configuration(text).servers or default_servers()
    ledger.use_servers(servers, f"found {hashlib.sha256(text.encode()).hexdigest()[:16]}")


def _cards(ledger: Ledger, path: str, environ: Mapping[str, str], choice: str) -> str:
    """The text of the file with the cards; empty where there are none. Raises OSError."""
    noted = _read(path)
    try:
        reading = read_cards(environ)
        if not reading.devices():
            raise no_gpus(reading)
    except NvidiaUnusable as error:
        if noted:
            # nothing is handed out until the driver answers
            _log.error("NVIDIA GPUs cannot be read", extra={"reason": str(error)})
            return noted
        if choice == AUTO and isinstance(error, NoNvidiaDriver) and not os.path.exists(_DRIVER):
            _log.warning("GPUs are simulated", extra={"reason": error.answered})
            return ""
        instead = "or hand out simulated GPUs: bitfusion-pool serve --gpus simulated"
        raise NvidiaUnusable("", error.answered, f"{error.next_step}; {instead}") from None
    devices = list(reading.devices())
    if noted and ledger.entries():
        devices = same_numbers(parse_configuration(noted).servers[0].devices, devices)
    for note in reading.left_out():
        _log.warning("GPU is not handed out", extra={"reason": note})
    text = _HEAD + configuration_text(devices, reading, os.uname().nodename)
    if text != noted:
        write_own(path, text)
    return text


def _read(path: str) -> str:
    """What was noted at an earlier start; empty if nothing was, or nothing of use. Raises OSError."""
    try:
        with open(open_own(path, os.O_RDONLY), encoding="utf-8") as file:
            text = file.read(MAX_BYTES)
        return text if parse_configuration(text).servers else ""
    except FileNotFoundError:
        return ""
    except ValueError as error:
        _log.warning("note of GPUs is damaged", extra={"file": path, "reason": str(error)})
        return ""


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
