"""What the checks see of a cluster: objects by their path, each read once; and what it says to a dry run.

Checks know nothing else of a cluster, so a test gives them objects. What may not be read is `Unseen`: the
check ends there, and the doctor says which right is missing.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bitfusion_client.kubernetes.raw_objects import mappings, metadata_of, text
from bitfusion_client.one_line import one_line
from bitfusion_cluster.api.client import KubernetesApi, Query, Timeout
from bitfusion_cluster.api.errors import ApiError, ApiFailure, Forbidden, Gone, NotFound
from bitfusion_cluster.doctor.finding import LONGEST

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

PAGE = 500
TRIES = 3
DRY_RUN_TIMEOUT: Timeout = (3.0, 40.0)  # the API server itself waits up to 30 s for a webhook

_RIGHT = re.compile(
    r'(?:"(?P<name>[^"]*)" )?is forbidden: User "(?P<user>[^"]*)" cannot (?P<verb>[a-z]+) resource '
    r'"(?P<what>[^"]*)" in API group "[^"]*"(?: in the namespace "(?P<namespace>[^"]*)")?'
)
"""How the API server says that a right is missing."""


class Unseen(Exception):
    """Something could not be read: `path`, and the API server's words."""

    def __init__(self, path: str, failure: ApiFailure) -> None:
        super().__init__(path, failure)
        self.path = path
        self.failure = failure

    @property
    def is_forbidden(self) -> bool:
        """Whether it is a right of whoever looks that is missing."""
        return isinstance(self.failure, Forbidden)

    @property
    def words(self) -> str:
        """What the API server said, in one line."""
        return words_of(self.failure)


class Seen:
    """A cluster as one look at it sees it.

    Args:
        ask: Reads a path; a list whole, or of it what `?fieldSelector=` selects. Raises ApiFailure.
        send: Posts an object to a path, as a dry run where the flag says so. Raises ApiFailure.
        namespace: Ours.
        clock: Seconds.
    """

    def __init__(
        self,
        ask: Callable[[str], RawObject],
        send: Callable[[str, Mapping[str, object], bool], RawObject],
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._send = send
        self._clock = clock
        self.namespace = namespace
        self._known: dict[str, RawObject | ApiFailure] = {}

    def one(self, path: str) -> RawObject | None:
        """An object; None where there is none. Raises Unseen."""
        if path not in self._known:
            try:
                self._known[path] = self._ask(path)
            except ApiFailure as failure:
                self._known[path] = failure
        found = self._known[path]
        if isinstance(found, NotFound):
            return None
        if isinstance(found, ApiFailure):
            raise Unseen(path, found)
        return found

    def items(self, path: str) -> list[RawObject]:
        """The objects of a list; none where the API server does not know their kind. Raises Unseen."""
        return mappings((self.one(path) or {}).get("items"))

    def dry_run(self, path: str, body: Mapping[str, object]) -> tuple[RawObject, float]:
        """What the API server would make of an object, and after how many seconds. Raises ApiFailure."""
        began = self._clock()
        answer = self._send(path, body, True)
        return answer, self._clock() - began

    def may(self, user: str, namespace: str, verb: str, resource: str) -> bool:
        """Whether an account has a right in a namespace. Raises Unseen."""
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        attributes = {"namespace": namespace, "verb": verb, "resource": resource}
        group = user.rpartition(":")[0].replace("serviceaccount", "serviceaccounts", 1)
        groups = ["system:authenticated", "system:serviceaccounts", group]
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        }
        try:
            answer = self._send(path, body, False)
        except ApiFailure as failure:
            raise Unseen(path, failure) from None
        status = answer.get("status")
        return isinstance(status, dict) and status.get("allowed") is True


def seen_by(api: KubernetesApi, namespace: str) -> Seen:
    """A look through the API."""

    def ask(asked: str) -> RawObject:
        path, _, selector = asked.partition("?fieldSelector=")
        # of a list; nothing else minds
        query: Query = {"limit": PAGE, **({"fieldSelector": selector} if selector else {})}
        for _ in range(TRIES - 1):
            with contextlib.suppress(Gone):  # a list that has expired half-way is read again
                return _whole(api, path, query)
        return _whole(api, path, query)

    def send(path: str, body: Mapping[str, object], dry_run: bool) -> dict[str, Any]:
        return api.create(path, body, DRY_RUN_TIMEOUT, dry_run)

    return Seen(ask, send, namespace)


def _whole(api: KubernetesApi, path: str, query: Query) -> RawObject:
    answer = api.get(path, query)
    items = mappings(answer.get("items"))
    token = text(metadata_of(answer).get("continue"))
    while token:
        page = api.get(path, {**query, "continue": token})
        items += mappings(page.get("items"))
        token = text(metadata_of(page).get("continue"))
    return {**answer, "items": items} if "items" in answer else answer


def words_of(failure: ApiFailure) -> str:
    """What the API server said, in one line."""
    missing = _RIGHT.search(str(failure)) if isinstance(failure, Forbidden) else None
    if missing:
        what = missing["what"] + (f" {missing['name']}" if missing["name"] else "")
        where = f" in namespace {missing['namespace']}" if missing["namespace"] else ""
        return f"{missing['user'].rpartition(':')[2]} may not {missing['verb']} {what}{where}"
    said = failure.message if isinstance(failure, ApiError) and failure.message else failure.answered
    return one_line(said or str(failure), LONGEST)
