"""The difference of two states of an object as a JSON patch (RFC 6902), one operation for each change.

What is the same Python object in both is not looked into, so a patch costs what has changed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from bitfusion_cluster.api.json_patch import Operation, escaped_key


def difference(old: Any, new: Any, path: str = "") -> list[Operation]:
    """The operations that make `new` of `old`; none if they are equal.

    Keys of maps come in alphabetical order. Of lists of objects those are the same that have the same name
    and mount path, so that one put in between leaves the others alone; a list of words is replaced whole.
    """
    found: list[Operation] = []
    _compare(old, new, path, found)
    return found


def _compare(old: Any, new: Any, path: str, found: list[Operation]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        changed = [key for key, value in new.items() if key not in old or old[key] is not value]
        if not old.keys() <= new.keys():
            changed += old.keys() - new.keys()
        changed.sort()
        for key in changed:
            place = f"{path}/{escaped_key(key)}"
            if key not in new:
                found.append({"op": "remove", "path": place})
            elif key not in old or (old[key] is None and new[key] is not None):
                found.append({"op": "add", "path": place, "value": new[key]})
            else:
                _compare(old[key], new[key], place, found)
    elif _has_objects(old) and _has_objects(new):
        _compare_lists(old, new, path, found)
    elif type(old) is not type(new) or old != new:
        found.append({"op": "replace", "path": path, "value": new})


def _compare_lists(old: list[Any], new: list[Any], path: str, found: list[Operation]) -> None:
    same = 0
    for before, after in zip(old, new, strict=False):
        if before is not after:
            if _identity(before) != _identity(after):
                break
            _compare(before, after, f"{path}/{same}", found)
        same += 1
    if same == len(old):
        for place in range(same, len(new)):
            found.append({"op": "add", "path": f"{path}/{place}", "value": new[place]})
    else:
        _compare_moved(old[same:], new[same:], path, same, found)


def _compare_moved(old: list[Any], new: list[Any], path: str, start: int, found: list[Operation]) -> None:
    """For what lists have behind their first `start` items, which are the same."""
    wanted = Counter(map(_identity, new))
    present, surplus = [], []
    for place, item in enumerate(old, start):
        wanted[_identity(item)] -= 1
        if wanted[_identity(item)] >= 0:
            present.append(item)
        else:
            surplus.append(place)
    for place in reversed(surplus):
        found.append({"op": "remove", "path": f"{path}/{place}"})
    ahead = Counter(map(_identity, present))  # in `present` from `place` on
    for place, item in enumerate(new):
        identity, here = _identity(item), f"{path}/{place + start}"
        if place < len(present) and _identity(present[place]) == identity:
            ahead[identity] -= 1
            _compare(present[place], item, here, found)
            continue
        if ahead[identity]:  # it is moved to the front
            ahead[identity] -= 1
            behind = place
            while _identity(present[behind]) != identity:
                behind += 1
            del present[behind]
            found.append({"op": "remove", "path": f"{path}/{behind + start}"})
        present.insert(place, item)
        found.append({"op": "add", "path": here, "value": item})


def _has_objects(value: object) -> bool:
    return isinstance(value, list) and set(map(type, value)) == {dict}


def _identity(item: dict[str, Any]) -> tuple[str, str]:
    return str(item.get("name")), str(item.get("mountPath"))
