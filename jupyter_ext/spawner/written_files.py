"""Files that a command writes and may write again, as long as nobody edited them in between.

The last line of each is a comment with a checksum of what stands above it. All files of one call are written
or, if one of them may not be, none.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping

from bitfusion_client.errors import BitfusionError

MARK = "# kubeflow-bitfusion: written by the command, unchanged while this is its checksum: "


class EditedFile(BitfusionError):
    """A file is there that the command did not write, or that was edited since."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.args = (path,)
        problem = "was not written by this command, or has been edited since"
        self.headline = f"{path} {problem}: nothing was written (--force replaces it)"


class NoPlainFile(BitfusionError):
    """What is there is a device, a pipe or a socket, which no file may replace."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.args = (path,)
        self.headline = f"{path} is not a regular file: nothing was written (for stdout, omit --output)"


def with_mark(text: str) -> str:
    """The text as it is written to a file: with its checksum in a last line."""
    line_end = "\r\n" if text.endswith("\r\n") else "\n"
    body = text if text.endswith("\n") else text + line_end
    return f"{body}{MARK}{_checksum(body)}{line_end}"


def without_mark(text: str) -> str:
    """The text without the last line of `with_mark`, whether or not its checksum fits."""
    body, _, last = text.rstrip("\r\n").rpartition("\n")
    return body + "\n" if last.startswith(MARK) else text


def write_files(files: Mapping[str, str], force: bool = False) -> list[str]:
    """Write paths with their texts, marked; returns the paths that changed.

    A file that is the same already is not touched. Raises EditedFile before anything is written unless
    `force`, NoPlainFile, OSError. Folders are made.
    """
    for path in files:
        if _is_special(path):
            raise NoPlainFile(path)
    contents = {os.path.realpath(path): with_mark(text).encode("utf-8") for path, text in files.items()}
    shown = dict(zip(contents, files, strict=True))
    changed = []
    for path, content in contents.items():
        found = _content(path)
        if found == content:
            continue
        if found is not None and not force and not _is_own(found):
            raise EditedFile(shown[path])
        changed.append(path)
    waiting: dict[str, str] = {}
    try:
        for path in changed:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            waiting[path] = _write_aside(path, contents[path])
        for path in changed:
            os.replace(waiting[path], path)
            del waiting[path]
    finally:
        for aside in waiting.values():
            os.unlink(aside)
    return [shown[path] for path in changed]


def _write_aside(path: str, content: bytes) -> str:
    try:
        number, aside = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path))
    except OSError as error:
        error.filename = path  # not the name of a file that nobody asked for
        raise
    try:
        with os.fdopen(number, "wb") as file:
            os.fchmod(number, _mode_for(path))
            file.write(content)
            file.flush()
            os.fsync(number)
    except BaseException as error:
        os.unlink(aside)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path  # a full disk does not say which file it was
        raise
    return aside


def _mode_for(path: str) -> int:
    try:
        return os.stat(path).st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _is_special(path: str) -> bool:
    """Whether it is there and neither a file nor a folder; reading a pipe would wait for ever."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # whoever opens it says so
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _is_own(content: bytes) -> bool:
    text = content.decode("utf-8", "replace")
    body = without_mark(text)
    return body != text and with_mark(body) == text


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]
