"""The doctor's checks of the `bitfusion` command and of the pool that answers it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from bitfusion_client.client_failure import error_from_output
from bitfusion_client.errors import BitfusionError
from bitfusion_client.find_client import find_client
from bitfusion_kernel.install.finding import FAIL, PASS, WARN, Finding

CLIENT_LIMIT = 30.0
"""Seconds; the real client gives up on a silent server after 3."""

DEFAULT_POOL_FOLDER = "/var/tmp/bitfusion-pool"


def check_client(explicit: str | None) -> Iterator[Finding]:
    """The command that a kernel with `explicit` as its setting `client` would run."""
    try:
        client = find_client(explicit, os.environ)
    except BitfusionError as error:
        yield Finding.from_error("client", error)
        return
    kind = "the embedded pool's" if client.is_simulated_pool else client.kind
    yield Finding(PASS, "client", f"{client.path} ({kind})")
    for words in (["version"], ["list_gpus"]):
        yield ask_client(client.path, words)
    if client.is_simulated_pool:
        yield check_pool_folder(os.environ.get("BITFUSION_POOL_DIR") or DEFAULT_POOL_FOLDER)


def ask_client(path: str, words: list[str]) -> Finding:
    """Run one command of the bitfusion client."""
    subject = "bitfusion " + " ".join(words)
    try:
        done = subprocess.run(
            [path, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CLIENT_LIMIT,
            check=False,
            env={**os.environ, "BITFUSION_PYTHON": sys.executable},
        )
    except subprocess.TimeoutExpired:
        found = f"no answer in {CLIENT_LIMIT:.0f} s"
        return Finding(FAIL, subject, found, "`bitfusion health` shows which server")
    except OSError as error:
        return Finding(FAIL, subject, f"{path} cannot be run: {error.strerror}", "reinstall the client")
    output = [line.strip() for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
    if done.returncode != 0 or any(line.startswith("Error:") for line in output):
        return Finding.from_error(subject, error_from_output(output, done.returncode, None))
    lines = [line for line in output if not line.startswith("[")]  # without the log
    if not lines:
        return Finding(WARN, subject, "it said nothing", "`bitfusion health` may tell more")
    more = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
    return Finding(PASS, subject, lines[0] + more)


def check_pool_folder(folder: str) -> Finding:
    """The embedded pool's state must be writable by everybody who uses it."""
    subject = "pool state"
    where = folder if os.path.isdir(folder) else os.path.dirname(folder)
    writable = os.access(where, os.W_OK | os.X_OK)
    own = [os.path.join(folder, name) for name in os.listdir(folder)] if where == folder and writable else []
    locked = [
        path
        for path in own
        if os.path.isfile(path) and path.endswith((".sqlite", ".db", "-wal")) and not os.access(path, os.W_OK)
    ]
    if not writable or locked:
        found = f"{(locked or [where])[0]} is not writable"
        next_step = "`bitfusion-pool status`, or choose another with BITFUSION_POOL_DIR"
        return Finding(FAIL, subject, found, next_step)
    return Finding(PASS, subject, f"{folder} is writable")
