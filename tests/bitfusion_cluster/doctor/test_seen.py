"""A cluster is read once for each path, lists whole; what the API server says of a missing right is short."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import ApiFailure, Forbidden, Gone, NoAnswer, NotFound
from bitfusion_cluster.doctor.seen import Seen, Unseen, seen_by, words_of


class Api:
    """Three pages of a list, and one object."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.created: list[Any] = []

    def get(self, path: str, query: Any) -> dict[str, Any]:
        self.asked.append((path, query.get("continue")))
        if path == "/none":
            raise NotFound(404, "NotFound", "")
        page = int(query.get("continue") or 0)
        more = {"continue": str(page + 1)} if page < 2 else {}
        return {"metadata": more, "items": [{"page": page}]} if path == "/list" else {"one": True}

    def create(self, path: str, body: Any, timeout: Any, dry_run: bool) -> dict[str, Any]:
        self.created.append((path, dry_run))
        return {"status": {"allowed": True}}


def seen(api: Api) -> Seen:
    return seen_by(cast(KubernetesApi, api), "kubeflow")


def test_lists_are_read_whole_and_everything_once() -> None:
    api = Api()
    looked = seen(api)
    for _ in range(2):
        assert looked.items("/list") == [{"page": 0}, {"page": 1}, {"page": 2}]
        assert looked.one("/object") == {"one": True}
        assert looked.one("/none") is None
        assert looked.items("/none") == []
    assert api.asked == [("/list", None), ("/list", "1"), ("/list", "2"), ("/object", None), ("/none", None)]


def test_of_a_list_what_a_selector_chooses_is_read() -> None:
    class Selecting(Api):
        def get(self, path: str, query: Any) -> dict[str, Any]:
            return {"items": [dict(query)]} if path == "/list" else {}

    assert seen(Selecting()).items("/list?fieldSelector=a=b") == [{"limit": 500, "fieldSelector": "a=b"}]
    assert seen(Selecting()).items("/list") == [{"limit": 500}]


class Pages(Api):
    """Answers, one after another; an ApiFailure is raised."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.left = list(answers)

    def get(self, path: str, query: Any) -> dict[str, Any]:
        super().get(path, query)
        answer = self.left.pop(0)
        if isinstance(answer, ApiFailure):
            raise answer
        return dict(answer)


def test_a_page_without_items_is_an_empty_one() -> None:
    first = {"metadata": {"continue": "1"}, "items": None}
    assert seen(Pages(first, {"metadata": None, "items": [{}]})).items("/list") == [{}]
    assert seen(Pages({"metadata": [], "items": {}})).items("/list") == []


def test_a_list_that_expires_half_way_is_read_again() -> None:
    first, gone = {"metadata": {"continue": "1"}, "items": [{"a": 1}]}, Gone(410, "Expired", "too old")
    api = Pages(first, gone, {"items": [{"a": 1}, {"a": 2}]})
    assert seen(api).items("/list") == [{"a": 1}, {"a": 2}]
    assert api.asked == [("/list", None), ("/list", "1"), ("/list", None)]
    with pytest.raises(Unseen, match="too old"):
        seen(Pages(*[first, gone] * 3)).items("/list")


def test_an_account_is_in_the_group_of_its_namespace_whatever_that_is_called() -> None:
    class Groups(Api):
        def create(self, path: str, body: Any, timeout: Any, dry_run: bool) -> dict[str, Any]:
            self.created.append(body["spec"]["groups"][-1])
            return {}

    api = Groups()
    seen(api).may("system:serviceaccount:my-serviceaccount:default-editor", "my", "create", "pods")
    assert api.created == ["system:serviceaccounts:my-serviceaccount"]


def test_what_is_sent_is_a_dry_run_but_for_a_question_about_rights() -> None:
    api = Api()
    looked = seen(api)
    looked.dry_run("/pods", {})
    assert looked.may("system:serviceaccount:ada:default-editor", "ada", "create", "pods")
    assert api.created == [("/pods", True), ("/apis/authorization.k8s.io/v1/subjectaccessreviews", False)]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            'nodes is forbidden: User "ada" cannot list resource "nodes" in API group "" at the cluster '
            "scope",
            "ada may not list nodes",
        ),
        (
            'secrets "x" is forbidden: User "system:serviceaccount:a:b" cannot get resource "secrets" in '
            'API group "" in the namespace "c"',
            "b may not get secrets x in namespace c",
        ),
        ("pods is forbidden: denied by p", "pods is forbidden: denied by p"),
    ],
)
def test_a_missing_right_in_few_words(message: str, words: str) -> None:
    failure = Forbidden(403, "Forbidden", message)
    assert words_of(failure) == words
    unseen = Unseen("/x", failure)
    assert (unseen.words, unseen.is_forbidden) == (words, True)


def test_other_failures_keep_their_words() -> None:
    assert words_of(NoAnswer(answered="no route\nto host")) == "no route to host"
    assert not Unseen("/x", NoAnswer(answered="")).is_forbidden
