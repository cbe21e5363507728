"""Two users of one machine: a victim who runs our commands, and an attacker who prepares what they meet.

Needs root: the victim is root, the attacker a user id that nobody has.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import bitfusion_pool
from tests.pool.pool_client import COMMAND
from tests.support.machine import scaled

ATTACKER = 54321
SECRET = "A-SECRET-THAT-NOBODY-MAY-SEE"
LONG_AGO = (1_000_000_000, 999_000_000)  # read, written: a file that is read gets a new first time
LIMIT_S = 10.0  # for one command, on a calm machine: it must not wait for anybody

# Every module is imported before the user id is given up: the attacker may not read where Python is. None may
# be left for later, as Python 3.15 does.
RUN_AS_ATTACKER = """
import importlib, os, pkgutil, sys
getattr(sys, "set_lazy_imports_filter", callable)(lambda *names: False)
sys.path.append(sys.argv[1])
import bitfusion_client, bitfusion_pool
for package in (bitfusion_client, bitfusion_pool):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
import argparse, gettext, grp, shutil, hashlib, locale, pwd, select, shlex, traceback
importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
uid, command, *words = sys.argv[2:]
os.setgroups([]); os.setgid(int(uid)); os.setuid(int(uid))
if command == "bitfusion":
    from bitfusion_pool.client.cli import main
    main(words)
from bitfusion_pool.admin.cli import main
sys.exit(main(words))
"""


class TwoUsers:
    """Their folders, under one that everybody may enter.

    Attributes:
        home: The victim's; holds the file `secret`.
        attacker: The attacker's folder.
        pool: The folder that BITFUSION_POOL_DIR names; None leaves the variable out.
        extra: More variables of the victim's commands.
    """

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="bfa-", dir="/tmp"))
        self.base.chmod(0o755)
        self.home = self._folder("home", 0o755, 0)
        self.attacker = self._folder("attacker", 0o755, ATTACKER)
        self.shared = self._folder("tmp", 0o1777, 0)
        self.secret = self.home / "secret"
        self.secret.write_text(SECRET)
        self.secret.chmod(0o600)
        os.utime(self.secret, LONG_AGO)
        self.pool: Path | None = None
        self.extra: dict[str, str] = {}

    def _folder(self, name: str, mode: int, owner: int) -> Path:
        path = self.base / name
        path.mkdir()
        os.chown(path, owner, owner)
        path.chmod(mode)
        return path

    def remove(self) -> None:
        shutil.rmtree(self.base)

    # --- the attacker ----------------------------------------------------------------------------------

    def attack(self, script: str, *words: object) -> None:
        """Run a shell script as the attacker; the secret is `$SECRET`, the words are `$1` and so on."""
        subprocess.run(
            ["/bin/sh", "-ec", script, "sh", *map(str, words)],
            user=ATTACKER,
            group=ATTACKER,
            extra_groups=[],
            cwd=self.attacker,
            env={"PATH": "/usr/bin:/bin", "SECRET": str(self.secret), "MADE": str(self.home / "made")},
            check=True,
        )

    def plant_socket(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
        os.chown(path, ATTACKER, ATTACKER)

    def plant_hard_link(self, path: Path) -> None:
        """Where fs.protected_hardlinks is off, the attacker can do it."""
        path.unlink(missing_ok=True)
        os.link(self.secret, path)

    def attackers_command(
        self, words: list[str], environ: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """The attacker runs one of our commands."""
        root = Path(bitfusion_pool.__file__).parent.parent
        return subprocess.run(
            [sys.executable, "-I", "-c", RUN_AS_ATTACKER, str(root), str(ATTACKER), *words],
            cwd=self.attacker,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.attacker), "TMPDIR": str(self.shared), **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=scaled(LIMIT_S),
        )

    # --- the victim ------------------------------------------------------------------------------------

    @property
    def environ(self) -> dict[str, str]:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("XDG_STATE")}
        environ.pop("BITFUSION_POOL_DIR", None)
        environ |= {"BITFUSION_PYTHON": sys.executable, "HOME": str(self.home), "TMPDIR": str(self.shared)}
        if self.pool is not None:
            environ["BITFUSION_POOL_DIR"] = str(self.pool)
        return environ | self.extra

    def command(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`bitfusion` or `bitfusion-pool`, run by the victim."""
        start = [COMMAND] if words[0] == "bitfusion" else [sys.executable, "-m", "bitfusion_pool.admin.cli"]
        root = Path(bitfusion_pool.__file__).parent.parent
        return subprocess.run(
            [*start, *words[1:]],
            env=self.environ | {"PYTHONPATH": str(root)},
            cwd=cwd or self.attacker,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=scaled(LIMIT_S),
        )

    # --- the proof -------------------------------------------------------------------------------------

    def outside(self) -> dict[str, tuple[object, ...]]:
        """Every file outside the victim's own pool: type, mode, owner, when it was read and written."""
        found: dict[str, tuple[object, ...]] = {}
        for path in self._walk(self.base):
            one = path.lstat()
            times = (one.st_atime_ns, one.st_mtime_ns) if stat.S_ISREG(one.st_mode) else ()
            found[str(path)] = (oct(one.st_mode), one.st_uid, one.st_gid, *times)
        return found

    def _walk(self, folder: Path) -> Iterator[Path]:
        own = {self.home / ".local", self.home / ".bitfusion", self.shared}
        if self.pool is not None and self.pool.is_dir() and self.pool.lstat().st_uid == 0:
            own.add(self.pool)
        for path in sorted(folder.iterdir()):
            if path in own:
                continue
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from self._walk(path)
