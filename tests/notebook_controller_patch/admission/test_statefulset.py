"""Admission of StatefulSets: when annotations are carried and when they wait."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest

from bitfusion_cluster.webhooks.review import UNTOUCHED, Review, Verdict, read_review
from notebook_controller_patch.admission.statefulset import (
    OwnerReference,
    admit_statefulset,
    needs_owner,
    owner_notebook,
)
from tests.notebook_controller_patch.admission.reviews import (
    AMOUNT,
    DEFAULTS,
    OS,
    OURS,
    OWNER_UID,
    PENDING,
    REQUEST,
    STOPPED,
    VERSION,
    notebook,
    review,
    statefulset,
)

OWNER = OwnerReference("ann", "nb", OWNER_UID)
PATH = "/spec/template/metadata/annotations"
OLD_SIZE = {**DEFAULTS, REQUEST: "-n 1"}
NEW_SIZE = {**DEFAULTS, REQUEST: "-n 2"}


def parsed(new: Any, old: Any = None, **fields: Any) -> Review:
    return read_review(review(new, old, **fields))


def decide(
    new: Any, old: Any = None, owner: Any = None, own_username: Any = OURS, **fields: Any
) -> tuple[bool, dict[str, str] | None, Verdict]:
    """Whether the owner is asked for, the template's annotations after the patch, and the verdict."""
    request = parsed(new, old, **fields)
    asked = needs_owner(request, own_username)
    verdict = admit_statefulset(request, owner if asked else None, own_username)
    assert verdict.allowed
    # a copy: the applier puts the maps of the patch into its result and fills them there
    after = jsonpatch.apply_patch(new, copy.deepcopy(verdict.patch))
    untouched, now = copy.deepcopy(new), copy.deepcopy(after)
    for one in (untouched, now):
        one["spec"]["template"]["metadata"].pop("annotations", None)
    assert now == untouched, "something else was written"
    again = parsed(after, old, **fields)
    assert admit_statefulset(again, owner if asked else None, own_username).patch == []
    return asked is not None, after["spec"]["template"]["metadata"].get("annotations"), verdict


def test_a_new_statefulset_gets_its_notebooks_annotations() -> None:
    owner = {**DEFAULTS, "notebooks.kubeflow.org/creator": "ann", PENDING: "x", STOPPED: "now"}
    asked, annotations, verdict = decide(statefulset({AMOUNT: "2"}), owner=owner)
    assert asked
    assert annotations == DEFAULTS
    assert verdict.patch == [
        {"op": "add", "path": PATH, "value": {}},
        {"op": "add", "path": f"{PATH}/auto-management~1bitfusion", "value": "injection"},
        {"op": "add", "path": f"{PATH}/bitfusion-client~1os", "value": "ubuntu22"},
        {"op": "add", "path": f"{PATH}/bitfusion-client~1version", "value": "454"},
    ]


def test_beside_kubeflow_that_copies_by_itself_only_the_rest_is_done() -> None:
    # from 1.8 on every annotation without "kubectl" or "notebook" in its key is in the template already
    template = {**DEFAULTS, "a/b": "c", STOPPED: "now"}
    _, annotations, verdict = decide(statefulset({AMOUNT: "2"}, template), owner=DEFAULTS)
    assert verdict.patch == []
    assert annotations == template
    _, annotations, _ = decide(statefulset({AMOUNT: "2"}, {**template, PENDING: "x"}), owner=DEFAULTS)
    assert annotations == template


@pytest.mark.parametrize(
    ("old", "new", "asked", "annotations"),
    [
        # running before and after: as it was started
        (1, 1, False, OLD_SIZE),
        (None, 1, False, OLD_SIZE),
        (1, None, False, OLD_SIZE),
        # its own stop, an edit while stopped, its own start: as the Notebook says now
        (1, 0, True, NEW_SIZE),
        (0, 0, True, NEW_SIZE),
        (0, 1, True, NEW_SIZE),
        (0, None, True, NEW_SIZE),
    ],
)
@pytest.mark.parametrize("foreign", [{}, {"a/b": "c"}])
def test_a_changed_size_waits_for_the_notebooks_own_stop_or_start(
    old: int | None, new: int | None, asked: bool, annotations: Any, foreign: dict[str, Any]
) -> None:
    before = statefulset({AMOUNT: "2"}, {**OLD_SIZE, **foreign}, old)
    after = statefulset({AMOUNT: "2"}, {**OLD_SIZE, **foreign}, new)
    was_asked, result, verdict = decide(after, before, NEW_SIZE)
    assert was_asked is asked
    assert result == {**annotations, **foreign}
    if not asked:
        assert verdict.patch == []


@pytest.mark.parametrize(
    "written",
    [
        {**NEW_SIZE, "a": "b"},  # changed
        {"a": "b"},  # removed
        {**OLD_SIZE, "a": "b", PENDING: "x", "bitfusion-client/filter": "x=y"},  # added
        None,
    ],
)
def test_nobody_changes_a_running_template_in_passing(written: dict[str, Any] | None) -> None:
    old = statefulset({AMOUNT: "2"}, {**OLD_SIZE, "a": "b"})
    asked, annotations, _ = decide(statefulset({AMOUNT: "2"}, written), old, NEW_SIZE)
    assert not asked
    assert annotations == {**OLD_SIZE, **({"a": "b"} if written else {})}


def test_a_running_notebook_from_before_the_installation_is_not_remade() -> None:
    old = statefulset({AMOUNT: "2"})
    asked, annotations, verdict = decide(statefulset({AMOUNT: "2"}), old, DEFAULTS)
    assert (asked, annotations, verdict) == (False, None, UNTOUCHED)


def test_even_pending_stays_in_a_running_template() -> None:
    # taking it out would remake the pod; the next stop does it
    old = statefulset({AMOUNT: "2"}, {**OLD_SIZE, PENDING: "x"})
    assert decide(copy.deepcopy(old), old, OLD_SIZE)[2] == UNTOUCHED
    assert decide(statefulset({AMOUNT: "2"}, {**OLD_SIZE, PENDING: "x"}, 0), old, OLD_SIZE)[1] == OLD_SIZE


def test_limits_that_differ_remake_the_pod_anyway_so_the_rest_comes_along() -> None:
    old = statefulset({AMOUNT: "2"}, OLD_SIZE)
    asked, annotations, _ = decide(statefulset({AMOUNT: "1"}, OLD_SIZE), old, NEW_SIZE)
    assert asked
    assert annotations == NEW_SIZE
    # the GPU taken out of the limits: the injector's annotations go in the same write
    asked, annotations, _ = decide(statefulset({}, DEFAULTS), statefulset({AMOUNT: "2"}, DEFAULTS), {})
    assert asked
    assert annotations == {}


@pytest.mark.parametrize(("old", "new"), [(None, None), (1, 0), (0, 1), (0, 0)])
def test_an_owner_that_could_not_be_read_takes_nothing_away(old: int | None, new: int | None) -> None:
    before = statefulset({AMOUNT: "2"}, OLD_SIZE, old) if old is not None else None
    after = statefulset({AMOUNT: "2"}, {**OLD_SIZE, "a": "b"}, new)
    request = parsed(after, before)
    assert needs_owner(request) == OWNER
    assert admit_statefulset(request, None) == UNTOUCHED


@pytest.mark.parametrize(
    ("written", "owner", "expected"),
    [
        ({REQUEST: "-n 1", "foreign": "x"}, {REQUEST: "-n 2"}, {REQUEST: "-n 2", "foreign": "x"}),
        (OLD_SIZE, {}, OLD_SIZE),
        (OLD_SIZE, DEFAULTS, OLD_SIZE),
        ({PENDING: "p"}, NEW_SIZE, {**NEW_SIZE, PENDING: "p"}),
        ({}, {OS: "../../x", VERSION: "450"}, {VERSION: "450"}),
        (None, NEW_SIZE, NEW_SIZE),
    ],
)
def test_an_owner_that_may_have_changed_adds_and_never_removes(
    written: Any, owner: dict[str, str], expected: dict[str, str]
) -> None:
    new = statefulset({AMOUNT: "1"}, written)
    verdict = admit_statefulset(parsed(new), owner, OURS, certain=False)
    after = jsonpatch.apply_patch(new, verdict.patch)
    assert after["spec"]["template"]["metadata"]["annotations"] == expected


def test_an_owner_without_annotations_takes_them_away() -> None:
    _, annotations, _ = decide(statefulset({}, {**OLD_SIZE, "a": "b"}, 0), statefulset({}, OLD_SIZE), {})
    assert annotations == {"a": "b"}


def test_the_reconcilers_own_writes_pass() -> None:
    old, new = statefulset({AMOUNT: "2"}), statefulset({AMOUNT: "2"}, DEFAULTS)
    asked, annotations, verdict = decide(new, old, {}, username=OURS)
    assert (asked, annotations, verdict) == (False, DEFAULTS, UNTOUCHED)
    # without a name of our own nobody is taken for us
    assert decide(new, old, {}, own_username="", username="")[1] == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "DELETE"},
        {"subResource": "scale"},
        {"kind": "Notebook"},
        {"kind": "Deployment"},
        {"object": None},
    ],
)
def test_what_this_webhook_was_not_made_for_passes(fields: dict[str, Any]) -> None:
    kind = fields.pop("kind", "StatefulSet")
    request = parsed(statefulset(), kind=kind, **fields)
    assert needs_owner(request) is None
    assert admit_statefulset(request, NEW_SIZE) == UNTOUCHED


def references(*items: Any) -> Any:
    object_ = statefulset(owned=False)
    object_["metadata"]["ownerReferences"] = list(items)
    return object_


MINE = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "name": "nb", "uid": OWNER_UID}


@pytest.mark.parametrize(
    ("object_", "owner"),
    [
        (statefulset(), OWNER),
        (references(MINE), OWNER),
        (references({"kind": "Pod"}, MINE), OWNER),
        (references({**MINE, "uid": None}), OwnerReference("ann", "nb", "")),
        (statefulset(owned=False), None),
        (references(), None),
        (references(None, "Notebook", 7), None),
        (references({**MINE, "kind": "Workspace"}), None),
        (references({**MINE, "apiVersion": "example.org/v1"}), None),
        (references({**MINE, "apiVersion": None}), None),
        (references({**MINE, "name": ""}), None),
        (notebook(), None),
        ({"metadata": []}, None),
        ({"metadata": {"ownerReferences": {"kind": "Notebook"}}}, None),
        ({}, None),
    ],
)
def test_only_statefulsets_of_a_notebook_are_ours(object_: dict[str, Any], owner: Any) -> None:
    assert owner_notebook(object_, "ann") == owner
    request = parsed(object_, kind="StatefulSet", namespace="ann")
    if owner is None:
        assert needs_owner(request) is None
        assert admit_statefulset(request, NEW_SIZE) == UNTOUCHED
    else:
        assert needs_owner(request) == owner


@pytest.mark.parametrize("old", [None, statefulset({AMOUNT: "1"}, DEFAULTS)])
def test_a_template_that_is_to_be_left_alone(old: Any) -> None:
    alone = statefulset({AMOUNT: "1"}, OLD_SIZE)
    alone["spec"]["template"]["metadata"]["labels"]["bitfusion.io/admission"] = "ignore"
    assert needs_owner(parsed(alone, old)) is None
    assert admit_statefulset(parsed(alone, old), NEW_SIZE) == UNTOUCHED


def test_the_namespace_is_that_of_the_request() -> None:
    object_ = statefulset()
    del object_["metadata"]["namespace"]
    assert needs_owner(parsed(object_, namespace="ann")) == OWNER
    object_["metadata"]["namespace"] = "bob"
    assert needs_owner(parsed(object_, namespace="ann")) == OWNER
    assert owner_notebook(object_) == OwnerReference("bob", "nb", OWNER_UID)


def test_an_object_in_deletion_is_left_alone() -> None:
    object_ = statefulset({}, OLD_SIZE, 0)
    object_["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    request = parsed(object_, statefulset({}, OLD_SIZE))
    assert needs_owner(request) is None
    assert admit_statefulset(request, {}) == UNTOUCHED


@pytest.mark.parametrize("place", [("spec",), ("spec", "template"), ("spec", "template", "metadata")])
@pytest.mark.parametrize("odd", [None, [], "text", 7])
def test_objects_that_the_api_will_refuse_are_left_to_it(place: tuple[Any, ...], odd: object) -> None:
    object_ = statefulset({AMOUNT: "1"}, OLD_SIZE)
    inner = object_
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = odd
    verdict = admit_statefulset(parsed(object_), NEW_SIZE)
    if odd is None and place[-1] == "metadata":
        # absent is no mistake
        assert verdict.patch[0] == {"op": "add", "path": "/spec/template/metadata", "value": {}}
        after = jsonpatch.apply_patch(object_, verdict.patch)
        assert after["spec"]["template"]["metadata"]["annotations"] == NEW_SIZE
    else:
        assert verdict == UNTOUCHED


@pytest.mark.parametrize("odd", [[], ["a"], "text", 7])
def test_annotations_of_another_type_are_never_replaced(odd: object) -> None:
    object_ = statefulset({AMOUNT: "1"})
    object_["spec"]["template"]["metadata"]["annotations"] = odd
    assert admit_statefulset(parsed(object_), NEW_SIZE) == UNTOUCHED
    assert (
        admit_statefulset(parsed(object_, statefulset({AMOUNT: "1"}, {OS: "a", VERSION: "b"})), None)
        == UNTOUCHED
    )
