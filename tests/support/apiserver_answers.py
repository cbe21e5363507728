"""The Status objects with which Kubernetes 1.34 refuses requests, as its apiserver words them.

The fakes answer with these; `tests/cluster/test_apiserver_answers.py` compares each with the real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

PATCH_NOT_APPLIED = "the server rejected our request due to an error in our request"
"""All that is said of a JSON patch whose `test` failed, or whose path is missing: not which, nor why."""


@dataclass(frozen=True)
class Named:
    """An object as answers name it: ``statefulsets.apps "mine"``."""

    group: str
    plural: str
    name: str
    kind: str = ""
    """Named instead of the plural where a precondition of a deletion does not hold."""

    def spelled(self, word: str = "") -> str:
        dotted = f"{word or self.plural}.{self.group}" if self.group else word or self.plural
        return f'{dotted} "{self.name}"'

    def details(self, word: str = "") -> Object:
        group = {"group": self.group} if self.group else {}
        return {"name": self.name, **group, "kind": word or self.plural}


def status(code: int, reason: str, message: str, details: Object) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def patch_not_applied() -> Object:
    return status(422, "Invalid", PATCH_NOT_APPLIED, {})


def already_exists(named: Named) -> Object:
    return status(409, "AlreadyExists", f"{named.spelled()} already exists", named.details())


def not_found(named: Named) -> Object:
    return status(404, "NotFound", f"{named.spelled()} not found", named.details())


def modified(named: Named) -> Object:
    """A PUT or a merge patch with another resourceVersion than the object's."""
    message = (
        f"Operation cannot be fulfilled on {named.spelled()}: the object has been modified; please apply "
        "your changes to the latest version and try again"
    )
    return status(409, "Conflict", message, named.details())


def type_differs(named: Named, wanted: str) -> Object:
    """A PUT of a Secret with another type than it has."""
    why = f'Invalid value: "{wanted}": field is immutable'
    cause = {"reason": "FieldValueInvalid", "message": why, "field": "type"}
    message = f"{named.spelled('Secret')} is invalid: type: {why}"
    return status(422, "Invalid", message, {**named.details("Secret"), "causes": [cause]})


def uid_differs(named: Named, wanted: str, found: str) -> Object:
    """A deletion with another uid as its precondition."""
    message = (
        f"Operation cannot be fulfilled on {named.spelled(named.kind)}: the UID in the precondition "
        f"({wanted}) does not match the UID in record ({found}). The object might have been deleted and then "
        "recreated"
    )
    return status(409, "Conflict", message, named.details(named.kind))


def version_differs(named: Named, wanted: str, found: str) -> Object:
    """A deletion with another resourceVersion as its precondition."""
    message = (
        f"Operation cannot be fulfilled on {named.spelled(named.kind)}: the ResourceVersion in the "
        f"precondition ({wanted}) does not match the ResourceVersion in record ({found}). The object might "
        "have been modified"
    )
    return status(409, "Conflict", message, named.details(named.kind))
