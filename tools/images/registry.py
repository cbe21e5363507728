"""Asks a registry for digests and sizes (OCI distribution specification), whichever program has pushed.

Nothing is written, no layer is fetched. Credentials are those that `docker login` or `podman login` has left.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TYPES = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_LIMIT_S = 30.0
_HUB = "registry-1.docker.io"


class RegistryFailed(Exception):
    """What it would not tell, and why."""


class _Refused(Exception):
    """An answer that is none: its status, reason and challenge."""

    def __init__(self, status: int, reason: str, challenge: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.challenge = challenge


@dataclass(frozen=True)
class Pushed:
    """An image for one platform, as the registry has it.

    Attributes:
        platform: `linux/amd64`.
        layers: Bytes of each layer as it travels, compressed.
        user: Its USER.
        labels: Its labels.
    """

    platform: str
    layers: tuple[int, ...]
    user: str
    labels: Mapping[str, str]


def digest(reference: str, insecure: bool = False) -> str:
    """The digest of what a tag names now: of the list of all its platforms, if it has several."""
    repository, what = _split(reference)
    found: str | None = _get(repository, f"manifests/{what}", insecure, "HEAD").headers[
        "Docker-Content-Digest"
    ]
    if not found:
        raise RegistryFailed(f"{reference}: the registry tells no digest")
    return found


def images(reference: str, insecure: bool = False) -> list[Pushed]:
    """The images of a reference, one for each platform."""
    repository, what = _split(reference)
    try:
        return sorted(_images(repository, what, insecure), key=lambda each: each.platform)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise RegistryFailed(f"{reference}: what answers is no registry ({why})") from None


def _images(repository: str, what: str, insecure: bool) -> Iterator[Pushed]:
    manifest = _json(repository, f"manifests/{what}", insecure)
    for each in manifest.get("manifests", ()):
        if each.get("platform", {}).get("os") != "unknown":  # an attestation's
            yield from _images(repository, each["digest"], insecure)
    if "config" in manifest:
        config = _json(repository, f"blobs/{manifest['config']['digest']}", insecure)
        own = config.get("config") or {}
        yield Pushed(
            f"{config['os']}/{config['architecture']}",
            tuple(layer["size"] for layer in manifest["layers"]),
            own.get("User") or "",
            own.get("Labels") or {},
        )


def _split(reference: str) -> tuple[str, str]:
    """`host/path` and the tag or digest."""
    name, at, known = reference.partition("@")
    head, colon, last = name.rpartition(":")
    tagged = bool(colon) and "/" not in last
    return head if tagged else name, known if at else (last if tagged else "latest")


def _json(repository: str, what: str, insecure: bool) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_get(repository, what, insecure).body)
    return found


@dataclass(frozen=True)
class _Answer:
    headers: Mapping[str, str]
    body: bytes


def _get(repository: str, what: str, insecure: bool, method: str = "GET") -> _Answer:
    host, _, path = repository.partition("/")
    schemes = ("https", "http") if insecure else ("https",)
    server = _HUB if host == "docker.io" else host
    for scheme in schemes:
        url = f"{scheme}://{server}/v2/{path}/{what}"
        try:
            return _ask(url, repository, insecure, method)
        except _Refused as refused:
            raise RegistryFailed(f"{repository}: {server} answers {refused}") from None
        except (OSError, ValueError, LookupError, http.client.HTTPException) as failed:  # URLError is one
            why = getattr(failed, "reason", failed)
    raise RegistryFailed(f"{repository}: {server} does not answer: {why}")


def _ask(url: str, repository: str, insecure: bool, method: str) -> _Answer:
    try:
        return _request(url, insecure, method, "")
    except _Refused as refused:
        if refused.status != 401:
            raise
        basic = _basic(repository)
        kind, _, rest = refused.challenge.partition(" ")
        if kind.lower() == "basic" and basic:
            return _request(url, insecure, method, basic)
        asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if kind.lower() != "bearer" or "realm" not in asked:
            raise
        query = urllib.parse.urlencode(
            {name: value for name, value in asked.items() if name in ("service", "scope")}
        )
        told = json.loads(_request(f"{asked['realm']}?{query}", insecure, "GET", basic).body)
        return _request(url, insecure, method, f"Bearer {told.get('token') or told['access_token']}")


def _request(url: str, insecure: bool, method: str, authorization: str) -> _Answer:
    request = urllib.request.Request(url, method=method, headers={"Accept": _TYPES})
    if authorization:
        # Not passed on to where a blob's redirect leads.
        request.add_unredirected_header("Authorization", authorization)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if insecure else ssl.create_default_context()
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT_S, context=context) as answer:
            return _Answer(answer.headers, answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            challenge = refused.headers.get("WWW-Authenticate") or ""
            raise _Refused(refused.code, refused.reason, challenge) from None


def _basic(repository: str) -> str:
    """A header's value from where docker and podman keep passwords; empty if they have none for this one."""
    home, own = Path.home(), os.environ
    files = [
        Path(own.get("REGISTRY_AUTH_FILE") or f"{own.get('XDG_RUNTIME_DIR', '/run')}/containers/auth.json"),
        Path(own.get("DOCKER_CONFIG") or home / ".docker") / "config.json",
    ]
    for file in files:
        try:
            told = json.loads(file.read_text())
            found = credentials(told, repository)
            helper = (told.get("credHelpers") or {}).get(repository.partition("/")[0]) or told.get(
                "credsStore"
            )
        except (OSError, ValueError, AttributeError):  # none, or of another shape
            continue
        if found:
            return f"Basic {found}"
        if helper and (found := _from_helper(helper, repository.partition("/")[0])):
            return f"Basic {found}"
    return ""


def credentials(told: Mapping[str, Any], repository: str) -> str:
    """Those of the longest name in `auths` that the repository is in; base64 of `user:password`."""
    host = repository.partition("/")[0]
    every = {
        re.sub(r"^https?://|/v[12]/?$|/$", "", key): value for key, value in (told.get("auths") or {}).items()
    }
    if host == "docker.io" and "index.docker.io" in every:
        every.setdefault(host, every["index.docker.io"])
    fitting = [key for key in every if repository == key or repository.startswith(f"{key}/")]
    return str(every[max(fitting, key=len)].get("auth") or "") if fitting else ""


def _from_helper(helper: str, host: str) -> str:
    try:
        done = subprocess.run(
            [f"docker-credential-{helper}", "get"],
            input=host,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        told = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    if "Secret" not in told:
        return ""
    return base64.b64encode(f"{told.get('Username', '')}:{told['Secret']}".encode()).decode()
