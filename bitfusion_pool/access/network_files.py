"""The files of a network client, read where the real client looks: servers.conf and client.yaml.

Each of the two is looked for by itself: `~/.bitfusion` first, then `/etc/bitfusion`
(docs/decisions/0055-files-of-a-network-client.md). They are only read; the real client opens servers.conf for
writing, too, and renames client.yaml.
"""

from __future__ import annotations

import os

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.own_files import NotOurs, home_folder, read_text, trusted_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.access.file_contents import NetworkServer, Secret

SYSTEM_FOLDER = "/etc/bitfusion"
USER_FOLDER = ".bitfusion"  # below the home
SERVERS_FILE = "servers.conf"
CLIENT_FILE = "client.yaml"
AUTHORITY_FILE = "ca.crt"
MAX_BYTES = 1 << 16

_CORRECT = "correct the line, or ask your administrator for new files"


@dataclass(frozen=True, slots=True)
class NetworkClient:
    """What the files of a network client say.

    `timeout_s` is for one answer of a service. `authority` is the path of ca.crt, which was not looked at;
    `read_authority` does.
    `servers_file` and `client_file` are where the rest was read, to tell which pool is used and why.
    """

    servers: tuple[NetworkServer, ...]
    token: Secret
    authority: str
    timeout_s: float
    servers_file: str
    client_file: str


def read_network_client(environ: Mapping[str, str], system: str = SYSTEM_FOLDER) -> NetworkClient | None:
    """What the files say; None if there are none, so that another pool is used.

    For every start of the `bitfusion` command: without the files it costs four looks for a file.

    Args:
        environ: Names the home.
        system: The folder for all users.

    Raises:
        PoolUnreadable: One of them is missing or wrong. Another pool in its place would be a surprise.
    """
    folders = (f"{home_folder(environ).rstrip('/')}/{USER_FOLDER}", system)
    servers_file = _find(folders, SERVERS_FILE)
    client_file = _find(folders, CLIENT_FILE)
    if not servers_file and not client_file:
        return None
    if not servers_file or not client_file:
        raise _one_of_two(servers_file or client_file)
    servers = _read_servers(servers_file)
    token, authority, timeout_s = _read_client(client_file)
    return NetworkClient(servers, token, authority, timeout_s, servers_file, client_file)


def read_authority(path: str) -> str:
    """The text of a ca.crt. Who can change it could pose as the service, and would get the token.

    Raises:
        PoolUnreadable: It cannot be read, or another user has a say in it.
    """
    return _read(path)


def _read_servers(path: str) -> tuple[NetworkServer, ...]:
    from bitfusion_pool.access.file_contents import parse_servers

    try:
        return parse_servers(_read(path))
    except ValueError as error:
        raise wrong_file(path, str(error), _CORRECT) from None


def _read_client(path: str) -> tuple[Secret, str, float]:
    from bitfusion_pool.access.file_contents import parse_client

    try:
        token, authority, timeout_s = parse_client(_read(path))
    except ValueError as error:
        raise wrong_file(path, str(error), _CORRECT) from None
    return token, _find_authority(authority, os.path.dirname(path)), timeout_s


def _find_authority(named: str, folder: str) -> str:
    """The file that client.yaml names, relative to its folder; where that is missing, ca.crt beside it.

    The three files of a token come side by side, and are copied to either folder.
    """
    places = (
        os.path.join(folder, named),
        f"{folder}/{AUTHORITY_FILE}",
        f"{SYSTEM_FOLDER}/tls/{AUTHORITY_FILE}",
    )
    return next((place for place in places if os.path.lexists(place)), places[0])


def _read(path: str) -> str:
    try:
        return read_text(trusted_path(path), MAX_BYTES)
    except NotOurs as error:
        cure = "make a copy of your own of what you trust, where nobody else can change it"
        raise wrong_file(path, str(error.strerror), cure) from None
    except UnicodeError:
        raise wrong_file(path, "it is no text in UTF-8", _CORRECT) from None
    except OSError as error:
        cure = "ask your administrator for new files"
        if isinstance(error, PermissionError):
            cure = f"ask who owns it to let you read it, or put files of your own into ~/{USER_FOLDER}"
        raise wrong_file(path, error.strerror or str(error), cure) from None


def wrong_file(path: str, why: str, cure: str) -> PoolUnreadable:
    """The error for a file of a network client. The kernel knows it by its first words."""
    return PoolUnreadable("", f"pool configuration {path} is wrong: {why}", cure)


def _one_of_two(path: str) -> PoolUnreadable:
    other = CLIENT_FILE if path.endswith(SERVERS_FILE) else SERVERS_FILE
    return PoolUnreadable(
        "",
        f"pool configuration is not complete: there is {path}, and no {other} in ~/{USER_FOLDER} "
        f"nor in {SYSTEM_FOLDER}",
        f"put the {other} that came with the token beside it; or move {path} away to use no network pool",
    )


def _find(folders: tuple[str, ...], name: str) -> str:
    return next((path for folder in folders if os.path.lexists(path := f"{folder}/{name}")), "")
