"""Which of docker, podman and buildah is there, running its commands, and what its failures mean."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from tools.checkout import ROOT
from tools.images.plan import PROGRAMS, Step
from tools.images.wishes import Refused

_PROBES = {"docker": (("docker", "version"), ("docker", "buildx", "version"))}
_PROBE_S = 20.0
_TAIL = 40
_HINTS = (
    (
        r"exec format error|no match for platform|no image found in manifest list for architecture",
        "This machine cannot run programs of the other architecture, or a base has no image for it. In the "
        "first case install qemu's user emulation (Debian and Ubuntu: qemu-user-static, binfmt-support) or "
        "leave PLATFORM out; in the second build this image for one platform alone: --only NAME.",
    ),
    (
        r"ulti-platform build is not supported|ttestation is not supported",
        "docker's default builder cannot do this. Make one that can: docker buildx create --use",
    ),
    (
        r"server gave HTTP response to HTTPS client|x509:|certificate signed by unknown",
        "A registry has no certificate that this machine knows. If it is meant to be so: --insecure for your "
        "own, -- --tls-verify=false for a base's with podman or buildah.",
    ),
    (
        r"unauthorized|authentication required|(?<![Pp]ermission )denied|403 \(?Forbidden|insufficient_scope",
        "The registry {host} refused this. Log in with an account that may write there: {program} "
        "login {host}",
    ),
    (
        r"connection refused|no such host|i/o timeout|network is unreachable",
        "A registry cannot be reached from here: look at REGISTRY, and at the proxy's variables.",
    ),
    (r"Cannot connect to the Docker daemon", "Start docker, or choose another program: --builder podman"),
)


class BuildFailed(Exception):
    """Which command failed, and what to do."""


def choose(wanted: str = "") -> str:
    """The program that builds: the wanted one, else the first that answers."""
    why = []
    for program in [wanted] if wanted else PROGRAMS:
        reason = _why_not(program)
        if reason is None:
            return program
        why.append(f"{program}: {reason}")
    raise Refused(
        f"No program here can build images ({'; '.join(why)}). Install docker with buildx, podman "
        f"or buildah, or "
        "choose one: --builder docker|podman|buildah"
    )


def _why_not(program: str) -> str | None:
    for probe in _PROBES.get(program, ((program, "version"),)):
        try:
            done = subprocess.run(
                probe, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", timeout=_PROBE_S,
            )  # fmt: skip
        except OSError:
            return "not found"
        except subprocess.TimeoutExpired:
            return f"`{shlex.join(probe)}` does not answer within {_PROBE_S:.0f} s"
        if done.returncode != 0:
            return (done.stdout.strip().splitlines() or ["it said nothing"])[-1]
        if program == "docker" and "podman" in done.stdout.lower():
            return "it is podman under another name"
    return None


def run(steps: Sequence[Step], program: str, host: str) -> None:
    """Run the commands in the project's folder; what they print is seen as it comes."""
    for step in steps:
        with subprocess.Popen(
            step.argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        ) as process:  # fmt: skip
            said: deque[str] = deque(maxlen=_TAIL)
            for line in process.stdout or ():
                said.append(line)
                if not step.may_fail:
                    sys.stdout.write(line)
                    sys.stdout.flush()
        if process.returncode != 0 and not step.may_fail:
            hint = hint_for("".join(said), program, host)
            raise BuildFailed(
                f"{shlex.join(step.argv[:3])} … ended with {process.returncode}, see above. {hint}".strip()
            )


def hint_for(said: str, program: str, host: str) -> str:
    """What to do about the last words of a builder; empty for what is not known."""
    for pattern, hint in _HINTS:
        if re.search(pattern, said):
            return hint.format(program=program, host=host)
    return ""


def digest_in(file: Path) -> str:
    """The digest that a builder has written: docker as JSON, the others bare."""
    text = file.read_text().strip()
    found = str(json.loads(text).get("containerimage.digest", "")) if text.startswith("{") else text
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", found):
        raise BuildFailed(f"The builder has not said which digest it pushed, but {text[:200]!r}.")
    return found
