"""Where identities come from: an issuer at the pool's service, or one set of files for every namespace.

The issuer is asked by the command `bitfusion-pool`, with the folder of its three files: nothing secret stands
in an argument, and this process knows nothing of how the pool speaks.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bitfusion_client.one_line import one_line
from bitfusion_client.request.decimals import plain_number
from bitfusion_cluster.watching.rate_limiter import RateLimiter
from bitfusion_device_plugin.identity.limits import KINDS, Limits
from bitfusion_device_plugin.identity.records import KEYS, Identity

COMMAND_S = 30.0  # for one run of the command; the pool's own time limit is 3 s
LARGEST_FILE = 1 << 16
LARGEST_ANSWER = 4 << 20
LONGEST_WHY = 400
ASKED_PER_S, ASKED_AT_ONCE = 4.0, 40.0  # a little less than the pool lets an issuer ask
RENEW_AFTER = 2 / 3  # of a token's life


class NoIdentity(Exception):
    """No identity can be had now; `str()` says why, in one line without a secret."""


class IdentitySource(Protocol):
    """Methods raise NoIdentity.

    Attributes:
        has_limits: Whether a namespace can have limits of its own.
    """

    has_limits: bool

    def fingerprint(self) -> str:
        """Of what all identities have in common: it changes with the pool's address and its authority."""

    def identity(self, namespace: str, limits: Limits, keep: str) -> Identity:
        """A new one for this namespace; `keep` is the id of the token that it has, or empty."""

    def revoke(self, namespace: str) -> int:
        """End the tokens of this namespace; returns how many there were."""

    def in_force(self) -> Mapping[str, frozenset[str]] | None:
        """The ids of the tokens that are good, by namespace; None: nobody knows."""


class IssuerSource:
    """A token for each namespace, from the pool's service.

    Args:
        folder: Of the issuer's three files.
        command: `bitfusion-pool`, as words.
        clock: Seconds since the epoch; tests pass their own.
    """

    has_limits = True

    def __init__(self, folder: str, command: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._command = tuple(command)
        self._clock = clock
        self._pace = RateLimiter(ASKED_PER_S, ASKED_AT_ONCE)

    def fingerprint(self) -> str:
        """See `IdentitySource`. Of the servers and their authority, not of the issuer's own token."""
        files = read_files(self._folder)
        return fingerprint_of([files["servers.conf"], files["ca.crt"]])

    def identity(self, namespace: str, limits: Limits, keep: str) -> Identity:
        """See `IdentitySource`."""
        words = ["renew", namespace, "--json", "--lower", *((f"--keep={keep}",) if keep else ())]
        words += [f"--{kind}={plain_number(limits[kind])}" for kind in KINDS if kind in limits]
        asked_at = self._clock()
        found = self._run(words)
        try:
            files = {key: str(found["files"][key]) for key in KEYS}
            life_s = float(found["expires"]) - float(found["created"])
            token_id = str(found["id"])
            lowered = _lowered(limits, found["limits"]) if limits else {}
        except (KeyError, TypeError, ValueError):
            raise NoIdentity("the answer from bitfusion-pool is not of this version") from None
        if any(len(text) > LARGEST_FILE for text in files.values()):
            raise NoIdentity("the answer from bitfusion-pool is too long")
        # by our own clock, whatever the pool's says
        return Identity(files, token_id, asked_at + life_s * RENEW_AFTER, asked_at + life_s, lowered)

    def revoke(self, namespace: str) -> int:
        """See `IdentitySource`."""
        words = self._output(["revoke", namespace]).split()
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

    def in_force(self) -> Mapping[str, frozenset[str]] | None:
        """See `IdentitySource`."""
        found: dict[str, set[str]] = {}
        try:
            for row in self._run(["list", "--json"]):
                found.setdefault(str(row["name"]).partition("/")[2], set()).add(str(row["id"]))
        except (KeyError, TypeError):
            raise NoIdentity("the answer from bitfusion-pool is not of this version") from None
        return {name: frozenset(ids) for name, ids in found.items()}

    def _run(self, words: Sequence[str]) -> Any:
        try:
            return json.loads(self._output(words))
        except (ValueError, RecursionError):
            raise NoIdentity("the answer from bitfusion-pool is not JSON") from None

    def _output(self, words: Sequence[str]) -> str:
        time.sleep(self._pace.take())  # a second at most: as many wait as there are threads
        command = [*self._command, "token", *words, f"--issuer-files={self._folder}"]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_S,
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
            )
        except subprocess.TimeoutExpired:
            raise NoIdentity(f"bitfusion-pool gave no answer in {COMMAND_S:g} s") from None
        except OSError as error:
            raise NoIdentity(f"{self._command[0]} cannot be run: {error.strerror}") from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise NoIdentity(
                one_line(lines[-1].removeprefix("Error: "), LONGEST_WHY) if lines else "no reason given"
            )
        if len(done.stdout) > LARGEST_ANSWER:
            raise NoIdentity("the answer from bitfusion-pool is too long")
        return done.stdout.decode(errors="replace")


def _lowered(asked: Limits, given: Mapping[str, Any]) -> dict[str, float]:
    """The limits that are not as they were asked for. Raises ValueError: one is missing, or is larger."""
    found = {}
    for kind, most in asked.items():
        limit = float(given[kind])
        if limit > most:
            raise ValueError
        if limit < most:
            found[kind] = limit
    return found


class FilesSource:
    """The same three files for every namespace: an administrator's, such as those of VMware's product.

    The pool cannot tell namespaces apart then, and no namespace has a limit of its own.
    """

    has_limits = False

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def fingerprint(self) -> str:
        """See `IdentitySource`."""
        return fingerprint_of(list(read_files(self._folder).values()))

    def identity(self, namespace: str, limits: Limits, keep: str) -> Identity:
        """See `IdentitySource`."""
        return Identity(read_files(self._folder))

    def revoke(self, namespace: str) -> int:
        """See `IdentitySource`. There is nothing that ends for one namespace alone."""
        return 0

    def in_force(self) -> Mapping[str, frozenset[str]] | None:
        """See `IdentitySource`."""
        return None


def read_files(folder: str) -> dict[str, str]:
    """The three files of a client. Raises NoIdentity."""
    found = {}
    for key in KEYS:
        try:
            with (Path(folder) / key).open("rb") as file:
                data = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise NoIdentity(f"{folder}/{key} cannot be read: {error.strerror}") from None
        if not data or len(data) > LARGEST_FILE:
            raise NoIdentity(f"{folder}/{key} is empty, or has more than {LARGEST_FILE} bytes")
        try:
            found[key] = data.decode()
        except UnicodeDecodeError:
            raise NoIdentity(f"{folder}/{key} is not text in UTF-8") from None
    return found


def fingerprint_of(texts: Sequence[str]) -> str:
    """A hash that tells whether anything has changed."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]
