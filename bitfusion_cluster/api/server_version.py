"""Which Kubernetes an API server is, and whether it knows scheduling gates.

Gates are on by default from Kubernetes 1.27 on (KEP-3521). An older server drops the field without a word, so
that pods start as if nobody had gated them.
"""

from __future__ import annotations

import re
from typing import Any

from bitfusion_cluster.api.client import KubernetesApi, Timeout

VERSION_PATH = "/version"  # readable by everybody: ClusterRole system:public-info-viewer
GATES_SINCE = (1, 27)
TIMEOUT: Timeout = (2.0, 2.0)

Version = tuple[int, int]

_NUMBER = re.compile(r"[0-9]{1,4}")


def server_version(api: KubernetesApi) -> Version | None:
    """Major and minor, None where the answer names none. Raises NoAnswer or ApiError."""
    return parsed_version(api.get(VERSION_PATH, timeout=TIMEOUT, largest=1 << 16))


def parsed_version(answer: dict[str, Any]) -> Version | None:
    """Of what ``/version`` says; managed clusters write a minor as ``27+``."""
    major, minor = (_NUMBER.match(str(answer.get(name))) for name in ("major", "minor"))
    return (int(major[0]), int(minor[0])) if major and minor else None


def knows_gates(version: Version | None) -> bool:
    """Whether pods can wait at a gate; a server that does not say its version is taken for a newer one."""
    return version is None or version >= GATES_SINCE
