"""The files of a network client, read where the real client looks: servers.conf and client.yaml.

Each of the two is looked for by itself: `~/.bitfusion` first, then the pod's identity where a client was
injected, then `/etc/bitfusion` (docs/decisions/0052-which-pool.md). They are only read; the real client opens
servers.conf for writing, too, and renames client.yaml.
"""

from __future__ import annotations

import os

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER, IDENTITY_FOLDER, IDENTITY_SECRET
from bitfusion_client.pod.this_pod import is_injected, this_pod
from bitfusion_pool.own_files import NotOurs, check_mount, home_folder, read_text, trusted_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    `mount` is the folder of a pod's identity, in which files are trusted by another rule; "" outside of pods.
    """

    servers: tuple[NetworkServer, ...]
    token: Secret
    authority: str
    timeout_s: float
    servers_file: str
    client_file: str
    mount: str = ""


def read_network_client(
    environ: Mapping[str, str], system: str = SYSTEM_FOLDER, pod: str = CLIENT_FOLDER
) -> NetworkClient | None:
    """What the files say; None if there are none, so that another pool is used.

    For every start of the `bitfusion` command: without the files it costs five looks for a file.

    Args:
        environ: Names the home.
        system: The folder for all users.
        pod: The folder of an injected client.

    Raises:
        PoolUnreadable: One of them is missing or wrong. Another pool in its place would be a surprise.
    """
    mount = f"{pod}/{IDENTITY_FOLDER}" if is_injected(pod) else ""
    folders = [f"{home_folder(environ).rstrip('/')}/{USER_FOLDER}", *([mount] if mount else []), system]
    servers_file = _find(folders, SERVERS_FILE)
    client_file = _find(folders, CLIENT_FILE)
    if not servers_file and not client_file:
        return None
    if not servers_file or not client_file:
        raise _one_of_two(servers_file or client_file, folders)
    return _read_both(servers_file, client_file, mount)


def read_client_folder(folder: str) -> NetworkClient:
    """The same of the three files in one folder, wherever it is: those of an issuer.

    Raises:
        PoolUnreadable: One of them is missing or wrong.
    """
    return _read_both(f"{folder}/{SERVERS_FILE}", f"{folder}/{CLIENT_FILE}")


def missing_in_pod(folder: str = CLIENT_FOLDER) -> PoolUnreadable | None:
    """Why there is no identity in this pod, and what to do; None where no client was injected.

    A simulated pool of the user's own in its place would look like success.
    """
    pod = this_pod(folder)
    if pod is None:
        return None
    return PoolUnreadable(
        "",
        f"pool configuration is missing: namespace {pod.namespace} has no Secret {IDENTITY_SECRET}, or it "
        "has not reached this pod",
        "ask your administrator to give the namespace a token of the pool; a running pod has it two minutes "
        "later; for simulated GPUs of your own set BITFUSION_POOL=own",
    )


def read_authority(client: NetworkClient) -> str:
    """The text of its ca.crt. Who can change it could pose as the service, and would get the token.

    Raises:
        PoolUnreadable: It cannot be read, or another user has a say in it.
    """
    return _read(client.authority, client.mount)


def read_token(client: NetworkClient) -> Secret:
    """What the token is now: files may be replaced while a program runs, such as by kubelet.

    Raises:
        PoolUnreadable: client.yaml is missing or wrong.
    """
    return _read_client(client.client_file, client.mount)[0]


def _read_both(servers_file: str, client_file: str, mount: str = "") -> NetworkClient:
    servers = _read_servers(servers_file, mount)
    return NetworkClient(servers, *_read_client(client_file, mount), servers_file, client_file, mount)


def _read_servers(path: str, mount: str) -> tuple[NetworkServer, ...]:
    from bitfusion_pool.access.file_contents import parse_servers

    try:
        return parse_servers(_read(path, mount))
    except ValueError as error:
        raise wrong_file(path, str(error), _CORRECT) from None


def _read_client(path: str, mount: str) -> tuple[Secret, str, float]:
    from bitfusion_pool.access.file_contents import parse_client

    try:
        token, authority, timeout_s = parse_client(_read(path, mount))
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


def _read(path: str, mount: str) -> str:
    below = mount if mount and path.startswith(f"{mount}/") else ""
    try:
        if below:
            check_mount(below)
        try:
            return read_text(trusted_path(path, below), MAX_BYTES)
        except FileNotFoundError:
            # kubelet has just replaced the folder to which the link `..data` led
            return read_text(trusted_path(path, below), MAX_BYTES)
    except NotOurs as error:
        cure = "make a copy of your own of what you trust, where nobody else can change it"
        if below:
            cure = f"ask your administrator: the Secret {IDENTITY_SECRET} is mounted there, read-only"
        raise wrong_file(path, str(error.strerror), cure) from None
    except UnicodeError:
        raise wrong_file(path, "it is not text in UTF-8", _CORRECT) from None
    except OSError as error:
        cure = "ask your administrator for new files"
        if isinstance(error, PermissionError):
            cure = f"ask who owns it to let you read it, or put files of your own into ~/{USER_FOLDER}"
        raise wrong_file(path, error.strerror or str(error), cure) from None


def wrong_file(path: str, why: str, cure: str) -> PoolUnreadable:
    """The error for a file of a network client. The kernel knows it by its first words."""
    return PoolUnreadable("", f"pool configuration {path} is wrong: {why}", cure)


def _one_of_two(path: str, folders: Sequence[str]) -> PoolUnreadable:
    other = CLIENT_FILE if path.endswith(SERVERS_FILE) else SERVERS_FILE
    places = " nor in ".join([f"~/{USER_FOLDER}", *folders[1:]])
    return PoolUnreadable(
        "",
        f"pool configuration is not complete: there is {path}, and no {other} in {places}",
        f"put the {other} that came with the token beside it; or move {path} away to use no network pool",
    )


def _find(folders: Sequence[str], name: str) -> str:
    return next((path for folder in folders if os.path.lexists(path := f"{folder}/{name}")), "")
