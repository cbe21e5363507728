"""Who may do what, as the API server has it, which learns of a Role a moment after it has stored it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster.api_client import ApiClient


def may(client: ApiClient, user: str, *, groups: Sequence[str] = (), **asked: str) -> bool:
    """Ask with a SubjectAccessReview; kubectl's `can-i` knows only resources that are served.

    Args:
        client: An administrator's.
        user: As `system:serviceaccount:team:default-editor`.
        groups: The user's.
        asked: The resourceAttributes: verb, group, resource, namespace, name, subresource, version.
    """
    review = {"spec": {"user": user, "groups": list(groups), "resourceAttributes": asked}}
    answer = client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
