"""The doctor's checks of the `bitfusion` command and of the pool that answers it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.command.client_reports import OVERDUE_WORDS, parse_health
from bitfusion_client.command.find_client import find_client
from bitfusion_client.errors import BitfusionError, PoolUnreadable
from bitfusion_client.pod.this_pod import is_injected
from bitfusion_kernel.install.finding import FAIL, PASS, WARN, Finding
from bitfusion_kernel.pod.facts import pod_root

CLIENT_LIMIT = 30.0
"""Seconds; the real client gives up on a silent server after 3."""

VERDICTS = {"PASS": PASS, "MARGINAL": WARN, "FATAL": FAIL}
"""Of the checks in the client's health report."""


RENEW = ", renew it"
RENEWED = "; in a pod the cluster sees to its renewal"
"""Of tokens that end within a month, as those of pods always do."""
NOT_RENEWED = (
    "in a pod the cluster renews it, and has not: ask your administrator to look at the log of "
    "bitfusion-identity and at the Events of this namespace, kubectl get events --field-selector "
    "involvedObject.kind=Namespace"
)


def check_client(explicit: str | None) -> Iterator[Finding]:
    """The command that a kernel with `explicit` as its setting `client` would run."""
    try:
        client = find_client(explicit, os.environ)
    except BitfusionError as error:
        yield Finding.from_error("client", error)
        return
    kind = "the embedded pool's" if client.is_embedded_pool else client.kind
    yield Finding(PASS, "client", f"{client.path} ({kind})")
    for words in (["version"], ["list_gpus"]):
        yield ask_client(client.path, words)
    if client.is_embedded_pool:
        yield from check_pool(client.path)


def ask_client(path: str, words: list[str]) -> Finding:
    """Run one command of the bitfusion client."""
    subject = "bitfusion " + " ".join(words)
    status, text, problem = run_client(path, words)
    if problem is not None:
        return problem
    output = [line.strip() for line in text.splitlines() if line.strip()]
    if status != 0 or any(line.startswith("Error:") for line in output):
        return Finding.from_error(subject, error_from_output(output, status, None))
    lines = [line for line in output if not line.startswith("[")]  # without the log
    if not lines:
        return Finding(WARN, subject, "it printed nothing", "`bitfusion health` may tell more")
    more = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
    return Finding(PASS, subject, lines[0] + more)


def check_pool(path: str) -> Iterator[Finding]:
    """What the embedded pool's health report says about its files or services."""
    _, text, problem = run_client(path, ["health"])
    if problem is not None:
        yield problem
        return
    for section in parse_health(text).sections:
        for check in section.checks:
            subject, _, found = check.text.removeprefix("Check ").partition(": ")
            if section.name != "localhost" and check.tag != "PASS":
                found = f"{section.name}: {found}"
            if subject.startswith("pool ") and check.tag in VERDICTS:
                found, _, next_step = found.partition(PoolUnreadable.CURE)
                verdict = VERDICTS[check.tag]
                if subject == "pool token" and verdict == WARN and is_injected(pod_root(os.environ)):
                    if found.endswith(OVERDUE_WORDS):
                        next_step = NOT_RENEWED
                    else:
                        verdict, found = PASS, found.removesuffix(RENEW) + RENEWED
                yield Finding(verdict, subject, found, next_step)


def run_client(path: str, words: list[str]) -> tuple[int, str, Finding | None]:
    """Exit status and output of one command of the client; or why it could not be run."""
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
        return 1, "", Finding(FAIL, subject, found, "`bitfusion health` shows which server")
    except OSError as error:
        found = f"{path} cannot be run: {error.strerror}"
        return 1, "", Finding(FAIL, subject, found, "reinstall the client")
    return done.returncode, done.stdout.decode(errors="replace"), None
