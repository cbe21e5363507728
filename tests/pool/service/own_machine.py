"""A machine for one test: this one, with accounts, homes, /opt, /var, /run and processes of its own.

Root installs and starts there what a guide says, users log in, and nothing of it is left: its files lie in
one folder, and all that runs on it ends with its process 1. Played is systemd: it makes the folders of a
unit, starts the unit's program as its account, and ends it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.machine import scaled
from tests.support.namespaces import as_process_1
from tests.support.run_blocks import ran
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
PYTHON = "/usr/bin/python3"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("opt", "home", "var", "run", "usr/local/bin", "usr/local/sbin")
"""Empty at first, but for what this machine has in /opt; /etc is a copy."""
NEEDS = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: accounts, mounts"),
    pytest.mark.skipif(
        subprocess.run(
            [PYTHON, "-c", "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))"],
            capture_output=True,
        ).returncode
        != 0,
        reason=f"needs {PYTHON} of version 3.10 or newer with venv",
    ),
]
"""The marks of its tests."""
FOR_PIP = re.compile(r"(PIP|SSL)_|XDG_CACHE_HOME$|.*_PROXY$", re.IGNORECASE)
LIMIT_S = 20.0
_SYSTEMCTL = """\
#!/bin/sh -e
unit=/etc/systemd/system/bitfusion-pool.service
value() { sed -n "s/^$1=//p" $unit; }
pid=/var/log/bitfusion-pool.pid
start() {
    user=$(value User)
    install -d -o "$user" -m "$(value StateDirectoryMode)" "/var/lib/$(value StateDirectory)"
    install -d -o "$user" -m "$(value RuntimeDirectoryMode)" "/run/$(value RuntimeDirectory)"
    eval "set -- $(value ExecStart)"
    umask "$(value UMask)" && cd /
    setsid setpriv --reuid "$user" --regid "$user" --init-groups env -i PATH="$PATH" \\
        BITFUSION_POOL_GPUS=simulated "$@" > /var/log/bitfusion-pool 2>&1 < /dev/null &
    echo $! > $pid
}
stop() {
    kill "$(cat $pid)"
    while [ -e "/proc/$(cat $pid)/exe" ]; do sleep 0.1; done
    [ "$(value RuntimeDirectoryPreserve)" = yes ] || rm -r "/run/$(value RuntimeDirectory)"
}
case "$*" in
daemon-reload) ;;
"enable --now bitfusion-pool") start ;;
"restart bitfusion-pool") stop && start ;;
"disable --now bitfusion-pool") stop ;;
*) exit 1 ;;
esac
"""
_JOURNALCTL = """\
#!/bin/sh -e
[ "$*" = "--no-pager -u bitfusion-pool" ]
until grep -qs started /var/log/bitfusion-pool; do sleep 0.1; done
cat /var/log/bitfusion-pool
"""


class OwnMachine:
    """One machine. `root` and `user` run commands on it, `start` those that take a while."""

    def __init__(self, base: Path) -> None:
        self.base = base
        for name in (*OWN, "var/lib", "var/log", "var/tmp"):
            (base / name).mkdir(parents=True)
            (base / name).chmod(0o755)
        subprocess.run(["cp", "--archive", "/etc", base], check=True)
        for name, text in (("systemctl", _SYSTEMCTL), ("journalctl", _JOURNALCTL)):
            (base / "usr/local/sbin" / name).write_text(text)
            (base / "usr/local/sbin" / name).chmod(0o755)
        kept = [name for name in os.listdir("/opt") if os.path.isdir(f"/opt/{name}")]
        mounts = [(str(ROOT), f"{base}/checkout"), *((f"/opt/{name}", f"{base}/opt/{name}") for name in kept)]
        for _, folder in mounts:
            Path(folder).mkdir()
        mounts += [(f"{base}/{name}", f"/{name}") for name in (*OWN, "etc")]
        script = "\n".join(shlex.join(["mount", "--rbind", *each]) for each in mounts)
        process_1 = ["/bin/sh", "-ec", f"{script}\ntouch /run/ready\nexec sleep infinity"]
        # It ends with the test's process, however that ends.
        self._unshare = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *as_process_1(process_1)], stdin=subprocess.DEVNULL
        )
        wait_until((base / "run/ready").exists, limit_s=LIMIT_S)
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        self._process_1 = int(children.read_text())
        self._inside = ["nsenter", f"--target={self._process_1}", "--mount", "--pid"]
        self._root = {name: value for name, value in os.environ.items() if FOR_PIP.match(name)}
        self._root |= {"PATH": PATH, "HOME": os.path.expanduser("~")}

    def add_user(self, name: str) -> None:
        """An account with a home and, as after a login, a runtime folder."""
        self.root(
            f"useradd --create-home --no-log-init {name}; install -d -o {name} -m 0700 /run/user/{name}"
        )

    def root(self, commands: str, limit_s: float = 60) -> str:
        """What a block of commands prints, run by root in the checkout; each must succeed."""
        return self._finished(self._started("root", commands, f"{self.base}/checkout", self._root), limit_s)

    def user(self, name: str, commands: str, limit_s: float = 60, *, pip: bool = False) -> str:
        """The same, by a user at home."""
        return self._finished(self.start(name, commands, pip=pip), limit_s)

    def start(self, name: str, commands: str, *, pip: bool = False) -> subprocess.Popen[str]:
        """Commands of a user at home, which run; all that they write is the process's stdout.

        `pip`: it reaches the package index as root's does.
        """
        environ = {"PATH": PATH, "HOME": f"/home/{name}", "XDG_RUNTIME_DIR": f"/run/user/{name}"}
        if pip:
            environ = {each: value for each, value in self._root.items() if "CACHE" not in each} | environ
        return self._started(name, commands, f"/home/{name}", environ)

    def _started(
        self, user: str, commands: str, folder: str, environ: dict[str, str]
    ) -> subprocess.Popen[str]:
        ran(commands)
        words = [*self._inside, "setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", "-i"]
        words += [*(f"{name}={value}" for name, value in environ.items()), "LC_ALL=C.UTF-8"]
        words += ["bash", "-euo", "pipefail", "-c", f"cd {shlex.quote(folder)}\n{commands}"]
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def _finished(self, process: subprocess.Popen[str], limit_s: float) -> str:
        printed, _ = process.communicate(timeout=scaled(limit_s))
        assert process.returncode == 0, printed
        return printed

    def end(self) -> None:
        """End everything that runs on it; its files are the test's to remove."""
        os.kill(self._process_1, signal.SIGKILL)
        self._unshare.wait(timeout=scaled(LIMIT_S))
