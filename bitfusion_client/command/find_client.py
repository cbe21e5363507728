"""Finds the `bitfusion` command: configured, on PATH, injected into the pod, or the embedded pool's.

Our injector's client is a starter at a fixed place, also mounted where PATH has it; a file beside it says
whether it starts the stand-in. Upstream's injector copies the client's packages, which are looked for, too.
"""

from __future__ import annotations

import os
import sys

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER, COMMAND_FILE, STAND_IN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

COMMAND = "bitfusion"
ENVIRONMENT_NAME = "BITFUSION_CLIENT"
# Where upstream's injector copies the client's folders to, one per operating system, and where packages
# install it.
INJECTED_FOLDER = CLIENT_FOLDER
INJECTED_COMMANDS = (
    "/opt/bitfusion/bin/bitfusion",
    "/opt/bitfusion/usr/bin/bitfusion",
    "/opt/bitfusion/lib/x86_64-linux-gnu/bin/bitfusion",
)
EMBEDDED_COMMAND = os.path.join("bitfusion_pool", "bin", COMMAND)


@dataclass(frozen=True, slots=True)
class FoundClient:
    """A `bitfusion` command.

    Attributes:
        path: Absolute.
        kind: How it was found: ``configured``, ``path``, ``injected`` or ``embedded``.
        is_embedded_pool: Whether it is the embedded pool's, wherever it was found; the stand-in that a pod
            has injected is the same program.
    """

    path: str
    kind: str
    is_embedded_pool: bool


def find_client(
    explicit: str | None,
    environ: Mapping[str, str],
    *,
    root: str = "/",
    import_path: Sequence[str] | None = None,
) -> FoundClient:
    """The client to use: configured, else on PATH, else injected, else the embedded one. Starts nothing.

    Relative folders in PATH are not looked at.

    Args:
        explicit: The value of a setting; wins over BITFUSION_CLIENT.
        environ: The environment of the kernel or command.
        root: The root of the file system; tests replace it.
        import_path: Where to look for the embedded one instead of in ``sys.path``.

    Raises:
        ClientNotFound: There is none, or a configured one cannot be executed; that is never replaced.
    """
    found = _look(explicit, environ, root=root, import_path=import_path)
    if isinstance(found, FoundClient):
        return found
    from bitfusion_client.errors import ClientNotFound

    raise ClientNotFound(found.looked_at, configured=found.configured)


def is_embedded_pool(explicit: str | None, environ: Mapping[str, str]) -> bool:
    """Whether `find_client` would find the embedded pool's; False also where it finds none.

    The kernel's proxy asks before its first reply, for which importing the errors costs too much.
    """
    found = _look(explicit, environ)
    return isinstance(found, FoundClient) and found.is_embedded_pool


@dataclass(frozen=True, slots=True)
class _NotFound:
    looked_at: list[str]
    configured: bool = False


def _look(
    explicit: str | None,
    environ: Mapping[str, str],
    *,
    root: str = "/",
    import_path: Sequence[str] | None = None,
) -> FoundClient | _NotFound:
    configured = explicit or environ.get(ENVIRONMENT_NAME)
    path = environ.get("PATH", os.defpath)
    if configured:
        if os.sep in configured:
            found = os.path.abspath(os.path.expanduser(configured))
            if _is_command(found):
                return _found(found, "configured", root)
        else:
            for found in _on_path(configured, path):
                if _is_command(found):
                    return _found(found, "configured", root)
        return _NotFound([configured], configured=True)
    looked_at = []
    for found in _on_path(COMMAND, path):
        if _is_command(found):
            if _is_starter(found, root):
                return _found(found, "injected", root)
            return _found(found, "embedded" if _is_embedded(found) else "path", root)
    passed_over = path and any(not os.path.isabs(folder) for folder in path.split(os.pathsep))
    looked_at.append("PATH, but not its relative folders" if passed_over else "PATH")
    for found in _injected(root, environ):
        if _is_command(found):
            return _found(found, "injected", root)
    looked_at += [os.path.join(root, INJECTED_FOLDER[1:]), os.path.join(root, "opt/bitfusion")]
    for folder in [*(sys.path if import_path is None else import_path), _beside_us()]:
        found = os.path.join(os.path.abspath(folder), EMBEDDED_COMMAND)
        if _is_command(found):
            return _found(found, "embedded", root)
    looked_at.append(EMBEDDED_COMMAND)
    return _NotFound(looked_at)


def _found(path: str, kind: str, root: str) -> FoundClient:
    return FoundClient(path, kind, _is_embedded(path) or _is_stand_in(path, root))


def _is_command(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_embedded(path: str) -> bool:
    return os.path.realpath(path).endswith(os.sep + EMBEDDED_COMMAND)


def _starter(root: str) -> str:
    return os.path.join(root, INJECTED_FOLDER[1:], COMMAND_FILE)


def _is_starter(path: str, root: str) -> bool:
    """Whether it is the starter that our injector mounts, at either of its places."""
    try:
        return os.path.samefile(path, _starter(root))
    except OSError:
        return False


def _is_stand_in(path: str, root: str) -> bool:
    if not _is_starter(path, root):
        return False
    from bitfusion_client.pod.this_pod import this_pod  # in pods only

    pod = this_pod(os.path.join(root, INJECTED_FOLDER[1:]))
    return pod is not None and pod.client == STAND_IN


def _beside_us() -> str:
    # Under `python -I -S` neither site-packages nor the checkout is on sys.path.
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _on_path(name: str, path: str) -> Iterator[str]:
    for folder in path.split(os.pathsep):
        # A relative one, such as "." or an empty entry, is another folder wherever a notebook lies.
        if os.path.isabs(folder):
            yield os.path.join(os.path.abspath(folder), name)


def _injected(root: str, environ: Mapping[str, str]) -> Iterator[str]:
    yield _starter(root)
    folder = os.path.join(root, INJECTED_FOLDER[1:])
    try:
        names = sorted(os.listdir(folder), reverse=True)
    except OSError:
        names = []
    libraries = environ.get("LD_LIBRARY_PATH", "")
    system = _system_name(root)

    def unlikely(name: str) -> tuple[bool, bool]:
        # The injector names the right folder in LD_LIBRARY_PATH. Otherwise take the one made for this system.
        return f"/{name}/" not in libraries, not system or system not in name

    for name in sorted(names, key=unlikely):
        yield os.path.join(folder, name, "usr", "bin", COMMAND)
    for command in INJECTED_COMMANDS:
        yield os.path.join(root, command[1:])


def _system_name(root: str) -> str:
    """``ubuntu2004`` or ``centos7``, as the client's packages are named; "" if unknown."""
    values = {}
    try:
        with open(os.path.join(root, "etc", "os-release"), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.strip().partition("=")
                values[key] = value.strip("\"'")
    except OSError:
        return ""
    return values.get("ID", "") + values.get("VERSION_ID", "").replace(".", "") if values.get("ID") else ""
