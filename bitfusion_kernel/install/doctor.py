"""`bitfusion-kernel doctor`: checks what the kernel needs; says PASS, WARN or FAIL and what to do next."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bitfusion_client.client_failure import error_from_output
from bitfusion_client.errors import BitfusionError
from bitfusion_client.find_client import find_client
from bitfusion_kernel.install import kernelspec, spec_store
from bitfusion_kernel.install.kernel_info import ask_kernel
from bitfusion_kernel.install.spec_store import InstalledSpec
from bitfusion_kernel.processes import private_folder
from bitfusion_kernel.settings.resolve import current_settings
from bitfusion_kernel.wrapped_kernel import KERNEL_FILE, KERNEL_INFO_FILE

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"
CLIENT_LIMIT = 30.0  # seconds; the real client gives up on a silent server after 3


class Check:
    """One line of the report: verdict, what was looked at, what was found, what to do if it is not good."""

    def __init__(self, verdict: str, subject: str, found: str, next_step: str = "") -> None:
        self.verdict = verdict
        self.subject = subject
        self.found = found
        self.next_step = next_step

    def lines(self) -> list[str]:
        """As printed."""
        first = f"[{self.verdict}] {self.subject}: {self.found}"
        return [first, f"       {self.next_step}"] if self.next_step else [first]


def run_checks(name: str | None = None) -> int:
    """Print the report, of all installed specs or the one called `name`. 0 if nothing failed, else 1."""
    worst = 0
    for check in all_checks(name):
        print("\n".join(check.lines()), flush=True)
        worst += check.verdict == FAIL
    print(f"{worst} checks failed." if worst else "Nothing failed.")
    return 1 if worst else 0


def all_checks(name: str | None) -> Iterator[Check]:
    """The checks, one after the other, as they are made."""
    try:
        specs = [spec_store.find(name)] if name else spec_store.installed_specs()
    except BitfusionError as error:
        yield from_error("kernelspec", error)
        specs = []
    if not specs and not name:
        yield Check(FAIL, "kernelspec", "Jupyter sees no Bitfusion kernel", "bitfusion-kernel install --user")
    for spec in specs:
        yield from check_spec(spec)
    yield check_private_folder()
    # the client is the same for all specs, unless one names its own
    asked: set[str | None] = set()
    for options in [kernelspec.entry_options(spec.kernel) for spec in specs] or [[]]:
        try:
            client = current_settings(options, os.environ).client
        except BitfusionError:
            continue  # told by check_spec
        if client not in asked:
            asked.add(client)
            yield from check_client(client)


def from_error(subject: str, error: BitfusionError) -> Check:
    """A failed check from one of our errors."""
    first, *rest = error.user_message.split("\n")
    answer = next((line for line in rest if line.startswith("Answer: ")), "")
    found = first.rstrip(".") + (f" ({answer[len('Answer: ') :]})" if answer else "")
    return Check(FAIL, subject, found, error.next_step)


def check_spec(spec: InstalledSpec) -> Iterator[Check]:
    """One installed spec: its files, its interpreter, its settings, and whether its cache is still true."""
    subject = f"kernelspec {spec.name}"
    again = f"bitfusion-kernel install --name {spec.name} (with the options it was installed with)"
    yield Check(PASS, subject, f"Jupyter sees it in {spec.folder}")
    argv = spec.kernel.get("argv")
    if not isinstance(argv, list) or len(argv) < 4 or not all(isinstance(word, str) for word in argv):
        yield Check(FAIL, subject, "its command line is damaged", again)
        return
    missing = [word for word in (argv[0], argv[3]) if not os.path.exists(word)]
    if missing:
        yield Check(FAIL, subject, f"{missing[0]} is gone", again)
        return
    folders = [word.partition("=")[2] for word in argv if word.startswith("--bitfusion-spec=")]
    if folders and os.path.realpath(folders[-1]) != os.path.realpath(spec.folder):
        yield Check(FAIL, subject, f"it was moved here from {folders[-1]}", again)
        return
    try:
        resolved = current_settings(kernelspec.entry_options(spec.kernel), os.environ)
        yield Check(PASS, f"{subject} settings", f"{resolved.request.describe()}, acquire {resolved.acquire}")
    except BitfusionError as error:
        yield from_error(f"{subject} settings", error)
    yield check_cached_information(spec, f"{subject} ipykernel", again)


def check_cached_information(spec: InstalledSpec, subject: str, again: str) -> Check:
    """Whether the wrapped kernel starts and is still the one whose kernel_info was cached."""
    try:
        wrapped = spec.content(KERNEL_FILE)
        cached = spec.content(KERNEL_INFO_FILE)
        real = ask_kernel(wrapped["argv"], wrapped.get("env") or {})
    except (OSError, ValueError, KeyError) as error:
        return Check(FAIL, subject, f"the spec's files cannot be read ({error})", again)
    except BitfusionError as error:
        return from_error(subject, error)
    different = differences(cached, real)
    if different:
        return Check(
            WARN, subject, "the kernel has changed since it was installed: " + "; ".join(different), again
        )
    version = real.get("implementation_version", "")
    return Check(
        PASS, subject, f"{wrapped['argv'][0]} answers as cached ({real.get('implementation')} {version})"
    )


def differences(cached: dict[str, Any], real: dict[str, Any]) -> list[str]:
    """In words, what differs in two kernel_info contents; IPython's tip of the day does not count."""
    found = []
    for key in sorted({*cached, *real}):
        before, now = cached.get(key), real.get(key)
        if key == "banner":
            before, now = _without_tip(before), _without_tip(now)
        if before != now:
            short = isinstance(before, (str, int, type(None))) and isinstance(now, (str, int, type(None)))
            found.append(f"{key} {before} → {now}" if short and key != "banner" else f"{key} differs")
    return found


def _without_tip(banner: object) -> str:
    return re.sub(r"(?m)^Tip: .*\n?", "", str(banner or "")).strip()


def check_private_folder() -> Check:
    """Whether a proxy could make its folder for sockets."""
    try:
        path = private_folder.create(os.environ)
    except OSError as error:
        return Check(
            FAIL,
            "private folder",
            str(error),
            "make /tmp writable or set XDG_RUNTIME_DIR to a short path of yours",
        )
    private_folder.remove(path)
    return Check(PASS, "private folder", f"sockets fit into {os.path.dirname(path)}")


def check_client(explicit: str | None) -> Iterator[Check]:
    """The `bitfusion` command: found, running, its pool answering, the embedded pool's folder writable."""
    try:
        client = find_client(explicit, os.environ)
    except BitfusionError as error:
        yield from_error("client", error)
        return
    kind = "the embedded pool's" if client.is_simulated_pool else client.kind
    yield Check(PASS, "client", f"{client.path} ({kind})")
    for words in (["version"], ["list_gpus"]):
        yield ask_client(client.path, words)
    if client.is_simulated_pool:
        yield check_pool_folder(os.environ.get("BITFUSION_POOL_DIR") or "/var/tmp/bitfusion-pool")


def ask_client(path: str, words: list[str]) -> Check:
    """Run one command of the client."""
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
        return Check(
            FAIL, subject, f"no answer in {CLIENT_LIMIT:.0f} s", "`bitfusion health` shows which server"
        )
    except OSError as error:
        return Check(FAIL, subject, f"{path} cannot be run: {error.strerror}", "reinstall the client")
    said = [line.strip() for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
    lines = [line for line in said if not line.startswith("[")]  # without the log
    if done.returncode != 0 or any(line.startswith("Error:") for line in said):
        return from_error(subject, error_from_output(said, done.returncode, None))
    if not lines:
        return Check(WARN, subject, "it said nothing", "`bitfusion health` may tell more")
    return Check(
        PASS, subject, lines[0] if len(lines) == 1 else f"{lines[0]} (and {len(lines) - 1} more lines)"
    )


def check_pool_folder(folder: str) -> Check:
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
        return Check(
            FAIL,
            subject,
            f"{(locked or [where])[0]} is not writable",
            "`bitfusion-pool status`, or choose another with BITFUSION_POOL_DIR",
        )
    return Check(PASS, subject, f"{folder} is writable")
