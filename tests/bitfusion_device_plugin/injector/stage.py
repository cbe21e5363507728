"""What a container starts, seen by starting its words on this machine: the client and programs are stand-ins.

The words are expanded as the kubelet does it, and a real shell reads those that a shell is given.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bitfusion_device_plugin.injector.pods import Object
from tests.support.machine import scaled

CLIENT = "/bitfusion/bin/bitfusion"
KATIB_FOLDER = "/var/log/katib"
PROGRAMS = ("python", "init", "x", "tee", "my")
LAUNCHERS = ("vault-env", "ddtrace-run", "tini")
_NOTE = """\
#!/bin/sh
{ printf '%s\\0' "${0##*/}" "$@"; printf '\\1\\0'; } >>"$STAGE_LOG"
"""
_RUN = """\
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
if [ $# -gt 1 ]; then shift; exec "$@"; fi
"""
_references = re.compile(r"\$(?:\$|\(([^)]*)\))")


@dataclass
class Started:
    """In the order of their starts.

    Attributes:
        runs: The options of each ``bitfusion run``, up to the program.
        programs: The words of each program.
        pid: Of the first process; 0 where none could be started.
    """

    runs: list[list[str]] = field(default_factory=list)
    programs: list[list[str]] = field(default_factory=list)
    pid: int = 0


class Stage:
    """Starts containers in an empty folder, one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "bin"
        self._log = folder / "log"
        for name in ("bin", "work", "katib"):
            (folder / name).mkdir()
        for name in PROGRAMS:
            self._add(name, _NOTE)
        self._add("bitfusion", _NOTE + _RUN)
        for name in ("sh", "bash", "env"):
            (self._bin / name).symlink_to(str(shutil.which(name)))
        for name in LAUNCHERS:  # programs that no shell could read
            (self._bin / name).symlink_to(str(shutil.which("env")))

    def started(self, container: Object) -> Started:
        """What the container starts when it starts; nothing where its program does not exist."""
        variables = {
            each["name"]: each["value"] for each in container.get("env") or () if isinstance(each, dict)
        }
        given = [*(container.get("command") or ()), *(container.get("args") or ())]
        words = [self._here(expanded(word, variables)) for word in given]
        self._log.write_bytes(b"")
        try:
            process = subprocess.Popen(
                words,
                cwd=self.folder / "work",
                env={"PATH": str(self._bin), "STAGE_LOG": str(self._log)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, ValueError):
            return Started()  # no such program, or one that no system can start
        try:
            process.wait(scaled(20))
        finally:
            process.kill()
            process.wait()
        return self._noted(process.pid)

    def _add(self, name: str, text: str) -> None:
        path = self._bin / name
        path.write_text(text)
        path.chmod(0o755)

    def _here(self, word: str) -> str:
        for path, name in ((CLIENT, "bitfusion"), ("/vault/vault-env", "vault-env"), ("/init", "init")):
            word = word.replace(path, str(self._bin / name))
        return word.replace(KATIB_FOLDER, str(self.folder / "katib"))

    def _noted(self, pid: int) -> Started:
        started = Started(pid=pid)
        for record in self._log.read_bytes().decode(errors="surrogateescape").split("\1\0")[:-1]:
            name, *words = record.split("\0")[:-1]
            if name == "bitfusion":
                started.runs.append(words[: words.index("--")] if "--" in words else words)
            else:
                started.programs.append([name, *words])
        return started


def expanded(word: str, variables: Mapping[str, Any]) -> str:
    """A word as the kubelet gives it to the container (third_party/forked/golang/expansion/expand.go)."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return str(variables.get(found[1], found[0]))

    return _references.sub(value, word)
