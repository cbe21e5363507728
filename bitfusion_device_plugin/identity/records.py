"""What the controller keeps of a Namespace and of a Secret, made of raw objects. Pure; nothing raises."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    is_being_deleted,
    labels_of,
    mapping,
    metadata_of,
    text,
)
from bitfusion_client.pod.pod_contract import CA_KEY, IDENTITY_SECRET, SERVERS_KEY, TOKEN_KEY
from bitfusion_device_plugin.identity.limits import LIMIT_PREFIX
from bitfusion_device_plugin.identity.served import Profiles, is_served

DEFAULT_NAME = "bitfusion-identity"

# Of a Secret that is ours. A Secret keeps its type, so that nobody can take another for it.
SECRET_TYPE = "bitfusion.io/client"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_PART_OF = "app.kubernetes.io/part-of"
PART_OF = "kubeflow-bitfusion"
ANNOTATION_TOKEN = "bitfusion.io/identity-token"  # its id, which is no secret
ANNOTATION_WANTED = "bitfusion.io/identity-wanted"  # what it was made of: the pool's files and the limits
ANNOTATION_DATA = "bitfusion.io/identity-data"  # the hash of what was written
ANNOTATION_RENEW = "bitfusion.io/identity-renew"
ANNOTATION_EXPIRES = "bitfusion.io/identity-expires"

KEYS = (SERVERS_KEY, TOKEN_KEY, CA_KEY)
_LONGEST_VALUE = 64
is_token_id = re.compile("[0-9A-Za-z]{1,64}").fullmatch
_MOST_LIMITS = 16
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A namespace that is served. `limits` are its annotations about limits, as they stand there."""

    name: str
    uid: str
    is_ending: bool
    limits: tuple[tuple[str, str], ...]

    @property
    def key(self) -> tuple[str, str]:
        """As of an object that belongs to no namespace."""
        return "", self.name


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """The Secret of that name in a namespace.

    Attributes:
        uid: Of the Secret.
        version: Its resourceVersion.
        is_ours: Whether this controller made it; all else is meaningless where it did not.
        is_intact: Whether its data is what was written, and the token's id can be one.
        wanted: What it was made of, a fingerprint.
        token_id: The token's; empty where what stands there can be none. Whoever may write Secrets of the
            namespace writes it, and it becomes a word of a command.
        renew_at: When another one is due, in seconds since the epoch; None: never.
        other_keys: Keys of its data that are none of ours.
    """

    uid: str
    version: str
    is_ours: bool
    is_intact: bool = False
    wanted: str = ""
    token_id: str = ""
    renew_at: float | None = None
    other_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What a namespace gets: the three files by their keys, and when they end (None: nobody knows)."""

    files: Mapping[str, str]
    token_id: str = ""
    renew_at: float | None = None
    expires_at: float | None = None
    lowered: Mapping[str, float] = field(default_factory=dict)
    """Limits by kind that the pool's issuer has lowered to its own."""

    def __repr__(self) -> str:
        return f"Identity({self.token_id})"  # never the files


def namespace_record(data: Mapping[str, Any], profiles: Profiles | None = None) -> NamespaceRecord | None:
    """The record of a namespace that is served (see `is_served`); None for all others, which are not kept."""
    metadata = metadata_of(data)
    name = text(metadata.get("name"))
    if not name or not is_served(labels_of(data), profiles):
        return None
    limits = sorted(
        (key[:_LONGEST_VALUE], text(value)[:_LONGEST_VALUE])
        for key, value in annotations_of(data).items()
        if isinstance(key, str) and key.startswith(LIMIT_PREFIX)
    )
    ending = is_being_deleted(data) or mapping(data.get("status")).get("phase") == "Terminating"
    return NamespaceRecord(name, text(metadata.get("uid")), ending, tuple(limits[:_MOST_LIMITS]))


def secret_record(data: Mapping[str, Any], manager: str = DEFAULT_NAME) -> SecretRecord:
    """The record of a raw Secret."""
    metadata, annotations = metadata_of(data), annotations_of(data)
    uid, version = text(metadata.get("uid")), text(metadata.get("resourceVersion"))
    if labels_of(data).get(LABEL_MANAGED_BY) != manager:
        return SecretRecord(uid, version, False)
    found = mapping(data.get("data"))
    files = {key: _decoded(found.get(key)) for key in KEYS}
    others = tuple(sorted(key for key in found if isinstance(key, str) and key not in KEYS))
    written, token_id = text(annotations.get(ANNOTATION_DATA)), text(annotations.get(ANNOTATION_TOKEN))
    is_id = is_token_id(token_id) is not None
    return SecretRecord(
        uid,
        version,
        True,
        not others
        and (is_id or not token_id)
        and None not in files.values()
        and written == data_hash({k: v or "" for k, v in files.items()}),
        text(annotations.get(ANNOTATION_WANTED)),
        token_id if is_id else "",
        _time(text(annotations.get(ANNOTATION_RENEW))),
        others,
    )


def secret_body(
    identity: Identity,
    wanted: str,
    manager: str = DEFAULT_NAME,
    owners: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The Secret to be created, or, with the version of an older one, merged into it."""
    annotations = {
        ANNOTATION_WANTED: wanted,
        ANNOTATION_DATA: data_hash(identity.files),
        ANNOTATION_TOKEN: identity.token_id,
        ANNOTATION_RENEW: "" if identity.renew_at is None else shown_time(identity.renew_at),
        ANNOTATION_EXPIRES: "" if identity.expires_at is None else shown_time(identity.expires_at),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": IDENTITY_SECRET,
            "labels": {LABEL_MANAGED_BY: manager, LABEL_PART_OF: PART_OF},
            "annotations": annotations,
            "ownerReferences": list(owners),
        },
        "type": SECRET_TYPE,
        "data": {key: base64.b64encode(identity.files[key].encode()).decode() for key in KEYS},
    }


def data_hash(files: Mapping[str, str]) -> str:
    """Of the three files."""
    return hashlib.sha256("\0".join(files[key] for key in KEYS).encode()).hexdigest()[:32]


def shown_time(at: float) -> str:
    """``2027-11-22T14:03:00Z``."""
    return datetime.fromtimestamp(int(at), timezone.utc).strftime(_TIME)


def _time(shown: str) -> float | None:
    try:
        return datetime.strptime(shown, _TIME).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _decoded(value: object) -> str | None:
    try:
        return base64.b64decode(value, validate=True).decode() if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None
