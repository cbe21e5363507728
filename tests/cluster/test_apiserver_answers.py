"""What the fakes answer is what the real apiserver answers, word for word."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.api_client import MERGE_PATCH, Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.support import apiserver_answers as answers
from tests.support.apiserver_answers import Named
from tests.support.waiting import wait_until, wait_until_settled

OTHER_UID = "00000000-0000-0000-0000-000000000000"


class Target:
    """A StatefulSet without replicas, which nobody but the test writes once it has settled."""

    def __init__(self, room: Room) -> None:
        self.client = room.client
        self.folder = room.stateful_sets
        self.path = f"{room.stateful_sets}/it"
        labels = {"app": "it"}
        pod = {"containers": [{"name": "c", "image": "i"}]}
        self.body: Object = {
            "metadata": {"name": "it"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
        self.client.create(self.folder, self.body)
        wait_until(lambda: self.client.get(self.path)["status"].get("observedGeneration"), "its status", 30)
        wait_until_settled(self.metadata)

    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = self.client.get(self.path)["metadata"]
        return metadata

    def patch(self, *operations: Object) -> Object:
        return self.client.patch(self.path, list(operations))

    def delete_if(self, **preconditions: str) -> Object:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return self.client.delete(self.path, body)


@pytest.fixture(scope="module")
def target(cluster: Cluster) -> Target:
    return Target(Room(cluster))


NAMED = Named("apps", "statefulsets", "it", "StatefulSet")
TEST = {"op": "test", "path": "/spec/replicas", "value": 1}
ANNOTATIONS = "/spec/template/metadata/annotations"


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        pytest.param(lambda it: it.patch(TEST), answers.patch_not_applied(), id="a test that fails"),
        pytest.param(
            lambda it: it.patch({"op": "test", "path": "/metadata/none", "value": "1"}),
            answers.patch_not_applied(),
            id="a test of nothing",
        ),
        pytest.param(
            lambda it: it.patch({"op": "remove", "path": f"{ANNOTATIONS}/none"}),
            answers.patch_not_applied(),
            id="a removal of nothing",
        ),
        pytest.param(
            lambda it: it.patch({"op": "add", "path": f"{ANNOTATIONS}/x", "value": "y"}),
            answers.patch_not_applied(),
            id="an addition to nothing",
        ),
        pytest.param(
            lambda it: it.client.create(it.folder, it.body), answers.already_exists(NAMED), id="made twice"
        ),
        pytest.param(
            lambda it: it.client.get(f"{it.folder}/none"),
            answers.not_found(Named("apps", "statefulsets", "none")),
            id="not there",
        ),
        pytest.param(
            lambda it: it.client.request(
                "PATCH", it.path, {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}, MERGE_PATCH
            ),
            answers.modified(NAMED),
            id="a merge of an old version",
        ),
    ],
)
def test_a_refusal_is_worded_as_the_fakes_word_it(
    target: Target, ask: Callable[[Target], Object], expected: Object
) -> None:
    with pytest.raises(Refused) as caught:
        ask(target)
    assert caught.value.answer == json.loads(json.dumps(expected))


def test_a_secret_keeps_its_type(cluster: Cluster) -> None:
    folder = f"/api/v1/namespaces/{cluster.new_namespace()}/secrets"
    cluster.client.create(folder, {"metadata": {"name": "it"}, "type": "Opaque"})
    with pytest.raises(Refused) as caught:
        cluster.client.put(f"{folder}/it", {"metadata": {"name": "it"}, "type": "other/type"}, dryRun="All")
    assert caught.value.answer == answers.type_differs(Named("", "secrets", "it"), "other/type")


def test_preconditions_of_a_deletion(target: Target) -> None:
    uid = target.metadata()["uid"]
    with pytest.raises(Refused) as caught:
        target.delete_if(uid=OTHER_UID)
    assert caught.value.answer == answers.uid_differs(NAMED, OTHER_UID, uid)
    with pytest.raises(Refused) as caught:
        target.delete_if(resourceVersion="1")
    version = target.metadata()["resourceVersion"]
    assert caught.value.answer == answers.version_differs(NAMED, "1", version)
