"""JSON patches (RFC 6902) of maps such as annotations: one operation for each key, none for the whole map.

A patch of a whole map would drop what somebody else writes into it at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Operation = dict[str, Any]


class NotAMap(ValueError):
    """Something else stands where a map was expected: an object that the API would not have let in."""


def pointer(*keys: str | int) -> str:
    """The JSON pointer (RFC 6901) to a place: ``pointer("metadata", "annotations", "a/b")``."""
    return "".join("/" + escaped_key(str(key)) for key in keys)


def escaped_key(key: str) -> str:
    """One key as a part of a pointer, without the slash before it."""
    return key.replace("~", "~0").replace("/", "~1")


def map_patch(
    path: str, current: Mapping[str, Any] | None, set_: Mapping[str, Any], removed: Iterable[str] = ()
) -> list[Operation]:
    """The operations that set and remove keys of the map at `path`; none for what is already so.

    `path` is a pointer, `current` the map there, None if it is absent or null: then it is made first, but
    only if something is put into it. ``add`` also replaces; ``replace`` fails where the key is absent,
    ``remove`` too, so only present keys are removed. Keys come in alphabetical order. Raises NotAMap.
    """
    if current is not None and not isinstance(current, Mapping):
        raise NotAMap(f"{path} is not a map")
    present = current or {}
    operations: list[Operation] = []
    for key in sorted(set_):
        if key not in present or present[key] != set_[key]:
            operations.append({"op": "add", "path": path + pointer(key), "value": set_[key]})
    if operations and current is None:
        operations.insert(0, {"op": "add", "path": path, "value": {}})
    for key in sorted(set(removed)):
        if key in present and key not in set_:
            operations.append({"op": "remove", "path": path + pointer(key)})
    return operations


def maps_patch(document: Mapping[str, Any], *keys: str) -> list[Operation]:
    """The operations that make the maps along ``/keys[0]/keys[1]/…`` that are absent or null.

    For the parents of a map to be patched. Raises NotAMap.
    """
    operations: list[Operation] = []
    here: Any = document
    for depth, key in enumerate(keys, 1):
        here = here.get(key)
        if here is None:
            operations.append({"op": "add", "path": pointer(*keys[:depth]), "value": {}})
            here = {}
        elif not isinstance(here, Mapping):
            raise NotAMap(f"{pointer(*keys[:depth])} is not a map")
    return operations
