"""Admission of Notebooks: what is written, refused and warned about."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES, ImageRule
from bitfusion_cluster.webhooks.review import UNTOUCHED, Review, Verdict, read_review
from notebook_controller_patch.admission.notebook import admit_notebook
from tests.notebook_controller_patch.admission.refusals import COUNT, REFUSALS
from tests.notebook_controller_patch.admission.reviews import (
    AMOUNT,
    DEFAULTS,
    IMAGE,
    LABEL,
    MANAGEMENT,
    MEMORY,
    OLD_IMAGE,
    OS,
    REQUEST,
    STOPPED,
    VERSION,
    notebook,
    review,
)

HALF = "bitfusion.io/gpu-50"
CHOSEN = f"Bitfusion client chosen for the image {IMAGE}: {OS}=ubuntu22, {VERSION}=454"
RESTARTS = (
    "this edit restarts the running notebook. A size changed in the annotation bitfusion.io/request waits "
    "for the next start instead"
)
FULL_PATCH = [
    {"op": "add", "path": "/metadata/annotations/auto-management~1bitfusion", "value": "injection"},
    {"op": "add", "path": "/metadata/annotations/bitfusion-client~1os", "value": "ubuntu22"},
    {"op": "add", "path": "/metadata/annotations/bitfusion-client~1version", "value": "454"},
    {"op": "add", "path": "/metadata/labels/bitfusion.io~1requested", "value": "true"},
]


def parsed(new: Any, old: Any = None, **fields: Any) -> Review:
    return read_review(review(new, old, **fields))


def admit(new: Any, old: Any = None, rules: Any = DEFAULT_RULES, **fields: Any) -> Verdict:
    return admit_notebook(parsed(new, old, **fields), rules)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("limits", [{AMOUNT: "2"}, {AMOUNT: 2}, {HALF: "1"}, {AMOUNT: "1", MEMORY: "8Gi"}])
def test_a_notebook_that_asks_gets_its_annotations_and_its_label(
    limits: dict[str, Any], dry_run: bool
) -> None:
    verdict = admit(notebook(limits), dryRun=dry_run)
    assert verdict == Verdict(patch=FULL_PATCH, notes=(CHOSEN,))


def test_absent_maps_are_made_once_and_first() -> None:
    new = notebook({AMOUNT: "1"})
    new["metadata"].pop("labels")
    new["metadata"]["annotations"] = None
    patch = list(admit(new).patch)
    assert patch == [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        *FULL_PATCH[:3],
        {"op": "add", "path": "/metadata/labels", "value": {}},
        FULL_PATCH[3],
    ]
    del new["metadata"]
    assert admit(new).patch == [{"op": "add", "path": "/metadata", "value": {}}, *patch]


def test_the_limits_stay_as_written_and_the_second_pass_is_empty() -> None:
    new = notebook({HALF: "1"}, {"a/b~c": "d"})
    after = jsonpatch.apply_patch(new, admit(new).patch)
    assert after["spec"] == new["spec"]
    assert after["metadata"]["annotations"] == {**new["metadata"]["annotations"], **DEFAULTS}
    assert admit(after) == UNTOUCHED
    assert admit(after, new) == UNTOUCHED


def test_the_rules_choose_the_client() -> None:
    verdict = admit(notebook({HALF: "1"}, image="team/x:1"), rules=(ImageRule("team/*", "centos8", "401"),))
    assert [operation["value"] for operation in verdict.patch] == ["injection", "centos8", "401", "true"]
    verdict = admit(notebook({HALF: "1"}, image=OLD_IMAGE))
    assert [operation["value"] for operation in verdict.patch] == ["injection", "ubuntu20", "450", "true"]


def test_what_the_user_wrote_wins() -> None:
    verdict = admit(notebook({HALF: "1"}, {MANAGEMENT: "none", OS: "debian12", VERSION: "1"}))
    assert verdict == Verdict(patch=FULL_PATCH[3:])


def test_a_size_by_annotation_alone_asks_too() -> None:
    assert admit(notebook({}, {REQUEST: "-n 1 -p 0.5"})).patch == FULL_PATCH


def test_the_gpu_removed_our_annotations_go() -> None:
    asking = notebook({HALF: "1"}, {**DEFAULTS, "a": "b"}, {LABEL: "true"})
    verdict = admit(notebook({}, {**DEFAULTS, "a": "b"}, {LABEL: "true"}), asking)
    assert verdict.patch == [
        {"op": "remove", "path": "/metadata/annotations/auto-management~1bitfusion"},
        {"op": "remove", "path": "/metadata/annotations/bitfusion-client~1os"},
        {"op": "remove", "path": "/metadata/annotations/bitfusion-client~1version"},
        {"op": "remove", "path": "/metadata/labels/bitfusion.io~1requested"},
    ]
    assert verdict.warnings == (RESTARTS,)
    assert verdict.notes == (
        f"Bitfusion GPUs are no longer requested; removed: {LABEL}, {MANAGEMENT}, {OS}, {VERSION}",
    )


@pytest.mark.parametrize(
    "limits", [{}, {"nvidia.com/gpu": "1"}, {"bitfusion.io/fpga": "1"}, {"example.com/gpu-50": "1"}]
)
def test_other_notebooks_are_none_of_our_business(limits: dict[str, Any]) -> None:
    assert admit(notebook(limits, DEFAULTS)) == UNTOUCHED


@pytest.mark.parametrize(("limits", "annotations", "message"), REFUSALS)
def test_refusals_as_the_form_shows_them(limits: Any, annotations: Any, message: Any) -> None:
    verdict = admit(notebook(limits, annotations))
    assert (verdict.allowed, verdict.code, verdict.patch, verdict.warnings) == (False, 422, [], ())
    assert verdict.message.startswith(message)
    if message.endswith("."):
        assert verdict.message == message
    # a bar of the form: one line that can be taken in at a glance
    assert len(verdict.message) < 320
    assert verdict.message.isprintable()


def test_two_containers_that_ask_are_refused() -> None:
    new = notebook({AMOUNT: "1"})
    new["spec"]["template"]["spec"]["containers"].append(
        {"name": "side", "resources": {"limits": {HALF: "1"}}}
    )
    assert admit(new).message == (
        f'{HALF} is requested by container "side", but "nb" also requests GPUs; only one container of a '
        "notebook can. Keep the size on the notebook's own container and remove it from the others."
    )


REPEATED = [
    ({HALF: "1"}, {HALF: "1"}),
    ({HALF: 1}, {HALF: "1000m"}),
    ({AMOUNT: "1", MEMORY: "8Gi"}, {AMOUNT: "1", MEMORY: "8192Mi"}),
]


def with_requests(limits: dict[str, Any], requests: dict[str, Any], annotations: Any = None) -> Any:
    new = notebook(limits, annotations)
    new["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].update(requests)
    return new


@pytest.mark.parametrize(("limits", "requests"), REPEATED)
def test_requests_may_repeat_the_limits(limits: dict[str, Any], requests: dict[str, Any]) -> None:
    assert admit(with_requests(limits, requests)).patch == FULL_PATCH


MOVE = (
    "is in the requests but not in the limits, so no pod can be created. Put it in the limits; you can "
    "omit it from the requests."
)
UNIT = (
    "bitfusion.io/gpu is not a Bitfusion size: it is what the cluster counts; only the pod "
    "injector may write it. Write bitfusion.io/gpu-amount: 1 for a whole GPU, bitfusion.io/gpu-50: 1 for "
    "half of "
    "one."
)


@pytest.mark.parametrize(
    ("limits", "requests", "message"),
    [
        ({}, {HALF: "1"}, f"{HALF} {MOVE}"),
        ({AMOUNT: "1"}, {AMOUNT: "1", HALF: "1"}, f"{HALF} {MOVE}"),
        (
            {HALF: "1"},
            {HALF: 2},
            f'Invalid value "2" for {HALF} in the requests: must be what the limits have, "1"; leave it out '
            "of the requests.",
        ),
        ({"bitfusion.io/gpu": "50"}, {}, UNIT),
        ({}, {"bitfusion.io/gpu": "50"}, UNIT),
        (
            {"bitfusion.io/gpus": "1"},
            {},
            "bitfusion.io/gpus is not a Bitfusion size; did you mean bitfusion.io/gpu-amount? If the "
            "form offers it, ask your administrator to correct the form's list.",
        ),
        *(
            (
                {wrong: "1"},
                {},
                f"{wrong} is not a Bitfusion size; did you mean {HALF}? If the form offers it, ask your "
                "administrator to correct the form's list.",
            )
            for wrong in ("bitfusion.io/gpu_50", "bitfusion.io/GPU-50", "bitfusion.io/gpu50")
        ),
    ],
)
@pytest.mark.parametrize("overridden", [False, True])
def test_what_no_pod_could_be_made_of_is_refused(
    limits: dict[str, Any], requests: dict[str, Any], message: str, overridden: bool
) -> None:
    annotations = {REQUEST: "-n 1"} if overridden else None
    verdict = admit(with_requests(limits, requests, annotations))
    assert (verdict.allowed, verdict.code, verdict.message) == (False, 422, message)
    # and later, when it stands there already, never again
    before = with_requests(limits, requests, annotations)
    for after in (edited(before, {STOPPED: "now"}), edited(before, limits={"cpu": "2"})):
        passed = admit(after, before)
        assert passed.allowed
        assert passed.patch == []
        assert passed.warnings[0].startswith("left unchanged, but no GPU can be assigned: ")


def test_each_wrong_value_is_judged_by_whether_it_is_new() -> None:
    wrong = notebook({AMOUNT: "0"}, {VERSION: "../../x"})
    assert admit(edited(wrong, limits={AMOUNT: "1"}), wrong).allowed
    assert admit(edited(wrong, {VERSION: "450"}), wrong).allowed
    assert "../../y" in admit(edited(wrong, {VERSION: "../../y"}), wrong).message
    assert "-1" in admit(edited(wrong, limits={AMOUNT: "-1"}), wrong).message
    assert "-n 0" in admit(edited(wrong, {REQUEST: "-n 0"}), wrong).message
    # limits that an annotation had overridden count from its removal on
    overridden = notebook({AMOUNT: "0"}, {REQUEST: "-n 1"})
    assert admit(edited(overridden, {REQUEST: "-n 2"}), overridden).allowed
    assert not admit(edited(overridden, {REQUEST: ""}), overridden).allowed
    # a filter says nothing before GPUs are asked for
    filtered = notebook({}, {"bitfusion-client/filter": "nonsense"})
    assert admit(filtered).allowed
    assert not admit(edited(filtered, limits={AMOUNT: "1"}), filtered).allowed


def edited(base: Any, annotations: Any = None, limits: Any = None) -> Any:
    new = copy.deepcopy(base)
    new["metadata"]["annotations"].update(annotations or {})
    new["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"].update(limits or {})
    return new


def test_a_wrong_notebook_from_before_us_can_still_be_stopped_culled_and_deleted() -> None:
    wrong = notebook({AMOUNT: "0"})
    for change in (
        {STOPPED: "2026-11-21T08:00:00Z"},
        {"notebooks.kubeflow.org/last-activity": "2026-11-21T08:00:00Z"},
    ):
        assert admit(edited(wrong, change), wrong) == Verdict(
            warnings=(
                f'left unchanged, but no GPU can be assigned: Invalid value "0" for {AMOUNT}: {COUNT[:-1]}',
            )
        )
    ending = copy.deepcopy(wrong)
    ending["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    ending["metadata"]["finalizers"] = []
    assert admit(ending, wrong) == UNTOUCHED
    assert admit(None, wrong, operation="DELETE") == UNTOUCHED


@pytest.mark.parametrize("limits", [{}, {AMOUNT: "1"}])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {MANAGEMENT: "all"},
            f'Invalid value "all" for {MANAGEMENT}: must be injection or none; this would run the '
            "notebook server itself on the GPUs, which it would hold until the notebook is stopped.",
        ),
        (
            {VERSION: "../../x"},
            f'Invalid value "../../x" for {VERSION}: must be letters, digits, dots, - or _, at most 63; '
            "remove the annotation to have the client chosen by the image.",
        ),
        (
            {"bitfusion-client/filter": "f" * 262_144},
            f'Invalid value "{"f" * 59}…" for bitfusion-client/filter: must be at most 1024 characters.',
        ),
    ],
)
def test_a_carried_annotation_is_refused_when_it_is_written_and_never_later(
    limits: dict[str, Any], wrong: dict[str, str], words: str
) -> None:
    """Whoever stops, culls, labels or deletes a notebook that was wrong before is not kept from it."""
    right = notebook(limits, DEFAULTS if limits else None, {LABEL: "true"} if limits else None)
    after = edited(right, wrong)
    assert admit(after) == Verdict(False, message=words, code=422)
    assert admit(after, right) == Verdict(False, message=words, code=422)
    for change in ({STOPPED: "2026-11-21T08:00:00Z"}, {"a/b": "c"}):
        verdict = admit(edited(after, change), after)
        assert verdict.allowed
        assert verdict.warnings == (f"left unchanged, but no GPU can be assigned: {words[:-1]}",)
    assert admit(right, after).allowed


# What Kubeflow's culler made of a Notebook's resources when it noted the last activity: it reads the object
# into Go's types and PUTs all of it.
WRITTEN = {"cpu": 0.5, "memory": "1024Mi", AMOUNT: 1}
CULLED = {"cpu": "500m", "memory": "1Gi", AMOUNT: "1"}
ACTIVITY = {"notebooks.kubeflow.org/last-activity": "2026-11-21T08:00:00Z"}


def culled(base: Any, limits: dict[str, Any]) -> Any:
    new = edited(base, ACTIVITY)
    container = new["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = limits
    container["resources"]["claims"] = []
    new["spec"]["template"]["spec"]["securityContext"] = {}
    return new


@pytest.mark.parametrize(
    ("written", "rewritten"), [(0.5, "500m"), (0, "0"), ("1500m", "1.5"), ("2000", "2e3"), (-1, "-1")]
)
def test_the_culler_spells_a_wrong_notebook_anew_and_passes(written: object, rewritten: object) -> None:
    wrong = notebook({"cpu": 0.5, "memory": "1024Mi", AMOUNT: written})
    verdict = admit(culled(wrong, {"cpu": "500m", "memory": "1Gi", AMOUNT: rewritten}), wrong)
    assert verdict.allowed, verdict.message
    assert [warning[:12] for warning in verdict.warnings] == ["left unchang"]


def test_the_culler_restarts_nothing_and_is_told_of_no_restart() -> None:
    base = notebook(WRITTEN, DEFAULTS, {LABEL: "true"})
    assert admit(culled(base, CULLED), base) == UNTOUCHED
    # the same edit with another size does
    assert admit(culled(base, {**CULLED, AMOUNT: "2"}), base).warnings == (RESTARTS,)


def test_a_wrong_notebook_edited_in_its_bitfusion_part_must_become_right() -> None:
    wrong = notebook({AMOUNT: "0"})
    assert not admit(edited(wrong, limits={AMOUNT: "-1"}), wrong).allowed
    assert not admit(edited(wrong, {REQUEST: "-n 0"}), wrong).allowed
    assert admit(edited(wrong, limits={AMOUNT: "1"}), wrong).allowed
    assert admit(edited(wrong, {REQUEST: "-n 1"}), wrong).allowed


@pytest.mark.parametrize(
    ("old", "new", "warned"),
    [
        ({}, {AMOUNT: "2"}, True),
        ({"cpu": "2"}, {}, True),
        ({}, {}, False),
    ],
)
@pytest.mark.parametrize("stopped", [None, "before", "after"])
def test_an_edit_of_the_spec_that_restarts_a_running_notebook_is_announced(
    old: dict[str, Any], new: dict[str, Any], warned: bool, stopped: str | None
) -> None:
    base = notebook({AMOUNT: "1"}, DEFAULTS, {LABEL: "true"})
    before, after = edited(base, limits=old), edited(base, limits=new)
    if stopped:
        (before if stopped == "before" else after)["metadata"]["annotations"][STOPPED] = "now"
    verdict = admit(after, before)
    assert verdict.patch == []
    assert verdict.warnings == ((RESTARTS,) if warned and not stopped else ())


def test_a_size_changed_in_the_annotation_needs_no_warning() -> None:
    base = notebook({AMOUNT: "1"}, DEFAULTS, {LABEL: "true"})
    assert admit(edited(base, {REQUEST: "-n 2"}), base) == UNTOUCHED


def test_restarts_of_notebooks_without_bitfusion_are_not_ours_to_announce() -> None:
    assert admit(edited(notebook(), limits={"cpu": "2"}), notebook()) == UNTOUCHED


def test_another_image_with_the_former_images_client_is_told() -> None:
    former = notebook({AMOUNT: "1"}, {**DEFAULTS, OS: "ubuntu20", VERSION: "450"}, {LABEL: "true"}, OLD_IMAGE)
    present = copy.deepcopy(former)
    present["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
    assert admit(present, former).warnings == (
        RESTARTS,
        "the client is still that of the former image: bitfusion-client/os=ubuntu20, "
        "bitfusion-client/version=450. Remove these annotations to have them chosen again",
    )
    for name in (OS, VERSION):
        del present["metadata"]["annotations"][name]
    verdict = admit(present, former)
    assert [operation["value"] for operation in verdict.patch] == ["ubuntu22", "454"]
    assert (verdict.warnings, verdict.notes) == ((RESTARTS,), (CHOSEN,))


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "DELETE"},
        {"operation": "CONNECT"},
        {"subResource": "status"},
        {"kind": "StatefulSet"},
        {"kind": "Pod"},
        {"object": None},
        {"object": "text"},
    ],
)
def test_what_this_webhook_was_not_made_for_passes(fields: dict[str, Any]) -> None:
    kind = fields.pop("kind", "Notebook")
    assert admit(notebook({AMOUNT: "0"}), kind=kind, **fields) == UNTOUCHED


@pytest.mark.parametrize("limits", [{AMOUNT: "2"}, {AMOUNT: "0"}, {}])
def test_a_notebook_that_is_to_be_left_alone(limits: dict[str, Any]) -> None:
    alone = notebook(limits, DEFAULTS, {"bitfusion.io/admission": "ignore", LABEL: "true"})
    assert admit(alone) == UNTOUCHED
    # the edit that brings the label is sent, because the object before it is selected
    assert admit(alone, notebook(limits)).patch == []
    assert admit(notebook({AMOUNT: "1"}, labels={"bitfusion.io/admission": "please"})).patch == FULL_PATCH


@pytest.mark.parametrize("part", ["annotations", "labels"])
@pytest.mark.parametrize("odd", [[], ["a"], "text", 1, True])
def test_an_object_that_the_api_will_refuse_is_left_to_it(part: str, odd: object) -> None:
    new = notebook({AMOUNT: "1"})
    new["metadata"][part] = odd
    assert admit(new) == UNTOUCHED
    new["metadata"] = odd
    assert admit(new) == UNTOUCHED
