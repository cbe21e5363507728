"""Finds the `bitfusion` command: configured, on PATH, injected into the pod, or the embedded pool's.

Our own commands are known by what their first lines import, wherever they lie: the stand-in itself, and the
`bitfusion` that pip installs, which starts another one and is no client.

Our injector's client is a starter at a fixed place, also mounted where PATH has it; a file beside it says
whether it starts the stand-in; of another kind, such as the one for GPUs of the cluster itself, it is not the
embedded pool. Upstream's injector copies the client's packages, which are looked for, too.
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
STAND_IN_MARK = b"bitfusion_pool.client.cli"
"""What the embedded pool's command imports, in its first lines."""
INSTALLED_MARK = b"bitfusion_pool.client.installed_command"
"""What the script imports that pip makes of `[project.scripts]`."""
_MARK_WITHIN = 4096  # bytes: a line with a long path of an interpreter comes first


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


def clients(
    environ: Mapping[str, str], *, root: str = "/", import_path: Sequence[str] | None = None
) -> Iterator[FoundClient]:
    """All that are there without a setting, in the order of `find_client`; the embedded one comes last.

    For the command that pip installs, which passes over one that has only started it again.
    """
    for path in _on_path(COMMAND, environ.get("PATH", os.defpath)):
        if not _is_command(path):
            continue
        mark = _mark(path)
        if mark != INSTALLED_MARK:
            kind = "injected" if _is_starter(path, root) else "embedded" if mark else "path"
            yield FoundClient(path, kind, bool(mark) or _is_stand_in(path, root))
    for path in filter(_is_command, _injected(root, environ)):
        yield FoundClient(path, "injected", _is_stand_in(path, root))
    for path in filter(_is_command, _embedded(import_path)):
        yield FoundClient(path, "embedded", True)


def embedded_folder() -> str:
    """The folder of the embedded pool's commands, of this very package; with `bitfusion-pool` in it."""
    return os.path.join(_beside_us(), os.path.dirname(EMBEDDED_COMMAND))


def _look(
    explicit: str | None,
    environ: Mapping[str, str],
    *,
    root: str = "/",
    import_path: Sequence[str] | None = None,
) -> FoundClient | _NotFound:
    configured, path = explicit or environ.get(ENVIRONMENT_NAME), environ.get("PATH", os.defpath)
    if configured:
        found = _configured(configured, path, import_path)
        if not found:
            return _NotFound([configured], configured=True)
        return FoundClient(found, "configured", bool(_mark(found)) or _is_stand_in(found, root))
    for client in clients(environ, root=root, import_path=import_path):
        return client
    passed_over = path and any(not os.path.isabs(folder) for folder in path.split(os.pathsep))
    return _NotFound(
        [
            "PATH, but not its relative folders" if passed_over else "PATH",
            os.path.join(root, INJECTED_FOLDER[1:]),
            os.path.join(root, "opt/bitfusion"),
            EMBEDDED_COMMAND,
        ]
    )


def _configured(configured: str, path: str, import_path: Sequence[str] | None) -> str:
    """The command that a setting names by its path, or by its name on PATH; "" if there is none.

    Whoever names what pip installs means the stand-in.
    """
    named = os.path.abspath(os.path.expanduser(configured)) if os.sep in configured else ""
    found = [each for each in ([named] if named else _on_path(configured, path)) if _is_command(each)]
    others = [each for each in found if _mark(each) != INSTALLED_MARK]
    if found and not others:
        others = [*filter(_is_command, _embedded(import_path)), *found]
    return others[0] if others else ""


def _is_command(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _mark(path: str) -> bytes:
    """Which of our own commands it is, by its mark; empty for any other, and for what nobody may read."""
    try:
        with open(path, "rb", buffering=0) as file:
            beginning = file.read(_MARK_WITHIN)
    except OSError:
        return b""
    return next((mark for mark in (STAND_IN_MARK, INSTALLED_MARK) if mark in beginning), b"")


def _embedded(import_path: Sequence[str] | None) -> Iterator[str]:
    for folder in [*(sys.path if import_path is None else import_path), _beside_us()]:
        yield os.path.join(os.path.abspath(folder), EMBEDDED_COMMAND)


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
