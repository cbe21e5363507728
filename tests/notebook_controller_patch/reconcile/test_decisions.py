"""What is decided about one notebook, as a table of states; and the words a person reads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_client.kubernetes.refusals import refusal
from bitfusion_cluster.api.events import Said
from bitfusion_cluster.notebooks.notebook_record import notebook_record
from notebook_controller_patch.reconcile.decisions import (
    Action,
    DeletePod,
    PatchNotebook,
    PatchTemplate,
    assess,
    decide,
)
from notebook_controller_patch.reconcile.events import request_refused
from notebook_controller_patch.reconcile.records import pod_record, statefulset_record
from tests.notebook_controller_patch.reconcile.objects import (
    CLIENT,
    LABEL,
    MANAGEMENT,
    OS,
    PENDING,
    REQUEST,
    RUNNING,
    VERSION,
    Object,
    admitted,
    notebook,
    pod,
    statefulset,
)
from tests.support.notebooks import CREATOR, container

TWO = {"bitfusion.io/gpu-amount": "2"}
WAITS = "1 GPU × 50 % instead of 2 GPUs, from the next start"


def versioned(data: Object, version: str) -> Object:
    data["metadata"]["resourceVersion"] = version
    return data


def decided(of: Object, sts: Object | None = None, its_pod: Object | None = None) -> list[Action]:
    record = notebook_record(versioned(of, "11"))
    assert record is not None
    sts_record = statefulset_record(versioned(sts, "22")) if sts else None
    its_pod_record = pod_record(versioned(its_pod, "33")) if its_pod else None
    try:
        assessment = assess(record, sts_record, DEFAULT_RULES)
    except InvalidRequest as error:
        return [request_refused(refusal(error))]
    return decide(assessment, its_pod_record) if assessment is not None else []


def test_a_notebook_that_has_opted_out_is_left_alone() -> None:
    assert kinds(decided(notebook(limits=TWO))) == ["PatchNotebook"]
    assert decided(notebook(limits=TWO, labels={"bitfusion.io/admission": "ignore"})) == []
    assert kinds(decided(notebook(limits=TWO, labels={"bitfusion.io/admission": "please"}))) == [
        "PatchNotebook"
    ]


def kinds(actions: list[Action]) -> list[str]:
    return [action.reason if isinstance(action, Said) else type(action).__name__ for action in actions]


def patched(data: Object, actions: list[Action], kind: type) -> Object:
    """The object after the patches of that kind; fails if a patch would."""
    result = copy.deepcopy(data)
    for action in actions:
        if isinstance(action, PatchNotebook | PatchTemplate) and isinstance(action, kind):
            result = jsonpatch.JsonPatch(list(action.operations)).apply(result)
    return result


def notes(data: Object) -> dict[str, str]:
    found: dict[str, str] = data["metadata"].get("annotations") or {}
    return found


def template(data: Object) -> dict[str, str]:
    return notes(data["spec"]["template"])


# what is right already


@pytest.mark.parametrize(
    ("of", "sts"),
    [
        pytest.param(notebook(), None, id="asks for nothing"),
        pytest.param(notebook(annotations={"foreign.io/x": "1"}), "plain", id="asks for nothing, runs"),
        pytest.param(admitted(), None, id="no StatefulSet yet"),
        pytest.param(admitted(), "equal", id="runs as it should"),
        pytest.param(admitted(), "stopped", id="stopped as it should"),
        pytest.param(admitted(), "copied", id="Kubeflow 1.8 copied foreign annotations too"),
        pytest.param(
            admitted(annotations={PENDING: WAITS, RUNNING: "-n 2", REQUEST: "-n 1 -p 0.5"}),
            "runs",
            id="told already",
        ),
    ],
)
def test_nothing_to_do(of: Object, sts: str | None) -> None:
    sets: dict[str | None, Object | None] = {
        None: None,
        "plain": statefulset(of),
        "equal": statefulset(of, annotations=CLIENT),
        "runs": statefulset(of, annotations=CLIENT),
        "stopped": statefulset(of, replicas=0, annotations=CLIENT),
        "copied": statefulset(
            of, annotations={**CLIENT, "notary.io/seal": "x", "kubeflow-resource-stopped": ""}
        ),
    }
    assert decided(of, sets[sts]) == []


def test_a_notebook_that_is_going_is_left_alone() -> None:
    going = notebook(limits=TWO)
    going["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert decided(going, statefulset(going, replicas=0)) == []


def test_the_statefulset_of_an_earlier_notebook_of_the_same_name_is_not_touched() -> None:
    of = admitted()
    earlier = statefulset({**of, "metadata": {**of["metadata"], "uid": "uid-before"}}, replicas=0)
    assert decided(of, earlier) == []


# what admission missed


def test_a_notebook_made_while_admission_was_away_is_healed() -> None:
    of = notebook(limits={"bitfusion.io/gpu-50": 1}, annotations={OS: "centos8"})
    (action,) = decided(of)
    assert isinstance(action, PatchNotebook)
    assert action.operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "11"}
    healed = patched(of, [action], PatchNotebook)
    assert notes(healed) == {**notes(of), **CLIENT, OS: "centos8"}
    assert healed["metadata"]["labels"] == {LABEL: "true"}
    assert healed["spec"] == of["spec"]
    assert decided(healed) == []


def test_a_notebook_without_any_annotation_is_healed() -> None:
    of = notebook(limits=TWO)
    del of["metadata"]["annotations"]
    assert notes(patched(of, decided(of), PatchNotebook)) == CLIENT


def test_gpus_removed_while_admission_was_away() -> None:
    of = notebook(annotations={**CLIENT, VERSION: "401"}, labels={LABEL: "true", "app": "x"})
    healed = patched(of, decided(of), PatchNotebook)
    assert notes(healed) == {**CREATOR, VERSION: "401"}
    assert healed["metadata"]["labels"] == {"app": "x"}
    assert decided(healed) == []


def test_a_stopped_statefulset_gets_what_the_notebook_says() -> None:
    of = admitted(annotations={REQUEST: "-n 1 -p 0.5"})
    stale = statefulset(
        of, replicas=0, annotations={**CLIENT, OS: "ubuntu20", "foreign.io/x": "1", PENDING: "x"}
    )
    (action,) = decided(of, stale)
    assert isinstance(action, PatchTemplate)
    assert action.operations[0] == {"op": "test", "path": "/spec/replicas", "value": 0}
    healed = patched(stale, [action], PatchTemplate)
    assert template(healed) == {**CLIENT, REQUEST: "-n 1 -p 0.5", "foreign.io/x": "1"}
    assert decided(of, healed) == []


def test_a_stopped_statefulset_without_annotations_is_healed_with_its_notebook() -> None:
    of = notebook(limits=TWO)
    bare = statefulset(of, replicas=0)
    actions = decided(of, bare)
    assert kinds(actions) == ["PatchNotebook", "PatchTemplate"]
    assert template(patched(bare, actions, PatchTemplate)) == CLIENT


def test_annotations_removed_from_the_notebook_leave_the_stopped_template() -> None:
    of = notebook()
    stale = statefulset(of, replicas=0, annotations={**CLIENT, "foreign.io/x": "1"})
    assert template(patched(stale, decided(of, stale), PatchTemplate)) == {"foreign.io/x": "1"}


# a running notebook is never restarted


def test_a_change_of_a_running_notebook_is_told_and_waits() -> None:
    of = admitted(annotations={REQUEST: "-n 1 -p 0.5"})
    running = statefulset(of, annotations=CLIENT)
    actions = decided(of, running)
    assert kinds(actions) == ["BitfusionChangePending", "PatchNotebook"]
    assert actions[0] == Said(
        "Normal",
        "BitfusionChangePending",
        "Bitfusion: 1 GPU × 50 % instead of 2 GPUs, from the next start. "
        "To apply it, stop and start the notebook when it suits you; it is not restarted automatically.",
    )
    told = patched(of, actions, PatchNotebook)
    assert notes(told)[PENDING] == WAITS
    assert notes(told)[RUNNING] == "-n 2"
    assert decided(told, running) == []


def test_a_change_that_an_earlier_version_noted_is_noted_as_data_too() -> None:
    of = admitted(annotations={REQUEST: "-n 1 -p 0.5", PENDING: WAITS})
    running = statefulset(of, annotations=CLIENT)
    actions = decided(of, running)
    assert kinds(actions) == ["PatchNotebook"], "and is not told again"
    noted = patched(of, actions, PatchNotebook)
    assert (notes(noted)[PENDING], notes(noted)[RUNNING]) == (WAITS, "-n 2")
    assert decided(noted, running) == []


def test_another_change_before_the_start_is_told_again() -> None:
    of = admitted(annotations={REQUEST: "-n 4", PENDING: WAITS, RUNNING: "-n 2"})
    actions = decided(of, statefulset(of, annotations=CLIENT))
    assert kinds(actions) == ["BitfusionChangePending", "PatchNotebook"]
    told = notes(patched(of, actions, PatchNotebook))
    assert told[PENDING] == "4 GPUs instead of 2 GPUs, from the next start"


@pytest.mark.parametrize(
    ("its_pod", "ready"),
    [
        pytest.param(None, True, id="ready"),
        pytest.param({"node": "n1", "phase": "Running"}, False, id="running, not ready"),
        pytest.param({"node": "n1"}, False, id="bound to a node"),
        pytest.param({"phase": "Failed"}, False, id="failed"),
        pytest.param({"limits": {"bitfusion.io/gpu": "200"}}, False, id="translated, waits for a node"),
    ],
)
def test_a_running_notebook_older_than_the_installation_is_not_restarted(
    its_pod: dict[str, Any] | None, ready: bool
) -> None:
    of = notebook(limits=TWO)
    sts = statefulset(of, ready=ready)
    actions = decided(of, sts, pod(sts, **its_pod) if its_pod is not None else None)
    assert kinds(actions) == ["BitfusionChangePending", "PatchNotebook"]
    healed = notes(patched(of, actions, PatchNotebook))
    assert healed[PENDING] == (
        "auto-management/bitfusion injection, bitfusion-client/os ubuntu22, bitfusion-client/version "
        "454, from the next start"
    )
    assert {name: healed[name] for name in CLIENT} == CLIENT


INJECTED = {"auto-management/status": "injected"}


def test_what_the_injector_has_put_into_the_running_pod_is_not_pending() -> None:
    # stopped, changed and started while admission was away: the template was told nothing
    of = admitted(annotations={REQUEST: "-n 1 -p 0.5"})
    sts = statefulset(of, annotations=CLIENT)
    changed = {**CLIENT, REQUEST: "-n 1 -p 0.5"}
    assert decided(of, sts, pod(sts, {**changed, **INJECTED}, "Running", "n1")) == []
    waits = kinds(decided(of, sts, pod(sts, {**CLIENT, **INJECTED}, "Running", "n1")))
    assert waits == ["BitfusionChangePending", "PatchNotebook"]
    without_injector = kinds(decided(of, sts, pod(sts, changed, "Running", "n1")))
    assert without_injector == ["BitfusionChangePending", "PatchNotebook"]
    others = pod(statefulset(notebook(uid="another")), {**changed, **INJECTED}, "Running", "n1")
    others["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert kinds(decided(of, sts, others)) == ["BitfusionChangePending", "PatchNotebook"]


def test_a_pending_change_that_the_injector_has_applied_is_told() -> None:
    of = admitted(annotations={REQUEST: "-n 1 -p 0.5", PENDING: WAITS, RUNNING: "-n 2"})
    sts = statefulset(of, annotations=CLIENT)
    its_pod = pod(sts, {**CLIENT, REQUEST: "-n 1 -p 0.5", **INJECTED}, "Running", "n1")
    actions = decided(of, sts, its_pod)
    assert kinds(actions) == ["BitfusionChangeApplied", "PatchNotebook"]
    assert decided(patched(of, actions, PatchNotebook), sts, its_pod) == []


def test_the_defaults_of_a_notebook_that_admission_missed_are_not_pending() -> None:
    of = notebook(limits=TWO)
    sts = statefulset(of)
    its_pod = pod(sts, INJECTED, "Running", "n1")
    actions = decided(of, sts, its_pod)
    assert kinds(actions) == ["PatchNotebook"]
    healed = patched(of, actions, PatchNotebook)
    assert PENDING not in notes(healed)
    assert decided(healed, sts, its_pod) == []
    healed["metadata"]["annotations"][OS] = "centos8"
    (told, _) = decided(healed, sts, its_pod)
    assert isinstance(told, Said)
    assert "bitfusion-client/os centos8 instead of ubuntu22, from the next start" in told.message


MADE = "The change has been made: from now on this notebook starts with {} of Bitfusion."


@pytest.mark.parametrize("replicas", [1, 0])
def test_a_change_that_was_applied_is_told_in_the_same_words_before_and_after_the_start(
    replicas: int,
) -> None:
    of = admitted(annotations={REQUEST: "-n 1 -p 0.5", PENDING: WAITS, RUNNING: "-n 2"})
    applied = statefulset(of, replicas=replicas, annotations={**CLIENT, REQUEST: "-n 1 -p 0.5"})
    actions = decided(of, applied)
    assert actions[0] == Said("Normal", "BitfusionChangeApplied", MADE.format("1 GPU × 50 %"))
    done = patched(of, actions, PatchNotebook)
    assert not {PENDING, RUNNING} & set(notes(done))
    assert decided(done, applied) == []


def test_gpus_given_up_are_told_when_they_are_gone() -> None:
    waits = "no GPU instead of 2 GPUs, from the next start"
    of = notebook(annotations={PENDING: waits, RUNNING: "-n 2"})
    actions = decided(of, statefulset(of, replicas=0))
    assert actions[0] == Said("Normal", "BitfusionChangeApplied", MADE.format("no GPU"))


def test_a_change_that_was_taken_back_is_told() -> None:
    of = admitted(annotations={PENDING: WAITS, RUNNING: "-n 2"})
    actions = decided(of, statefulset(of, annotations=CLIENT))
    assert actions[0] == Said(
        "Normal",
        "BitfusionChangeWithdrawn",
        "The Bitfusion change is no longer pending: this notebook keeps 2 GPUs.",
    )
    assert not {PENDING, RUNNING} & set(notes(patched(of, actions, PatchNotebook)))


def test_gpus_asked_for_and_taken_back_are_told() -> None:
    of = notebook(annotations={PENDING: "2 GPUs instead of no GPU, from the next start", RUNNING: "none"})
    assert kinds(decided(of, statefulset(of))) == ["BitfusionChangeWithdrawn", "PatchNotebook"]


def test_a_change_of_the_client_only_is_told_as_applied() -> None:
    waits = "bitfusion-client/os centos8 instead of ubuntu22, from the next start"
    of = admitted(annotations={OS: "centos8", PENDING: waits})
    actions = decided(of, statefulset(of, annotations={**CLIENT, OS: "centos8"}))
    assert kinds(actions) == ["BitfusionChangeApplied", "PatchNotebook"]


def test_a_stopped_statefulset_is_healed_before_anything_is_told() -> None:
    of = admitted(annotations={REQUEST: "-n 1 -p 0.5", PENDING: WAITS})
    stale = statefulset(of, replicas=0, annotations=CLIENT)
    actions = decided(of, stale)
    assert kinds(actions) == ["PatchTemplate"]
    assert kinds(decided(of, patched(stale, actions, PatchTemplate))) == [
        "BitfusionChangeApplied",
        "PatchNotebook",
    ]


def test_what_waits_stays_told_while_there_is_no_statefulset() -> None:
    of = admitted(annotations={REQUEST: "-n 1 -p 0.5", PENDING: WAITS})
    assert decided(of) == []


# refused sizes that slipped in


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            {"bitfusion.io/gpu-amount": "0"},
            'Invalid value "0" for bitfusion.io/gpu-amount: must be a whole number from 1 to 1024. '
            "If the notebook needs no GPU, choose None for GPUs or leave the key out.",
        ),
        (
            {"bitfusion.io/gpu-500": "1"},
            "bitfusion.io/gpu-500 is not a Bitfusion size; sizes are gpu-amount (with gpu-percent or "
            "gpu-memory), gpu-1 to gpu-100 (percent), gpu-8gib and gpu-8000mib, also for 2 to 1024 GPUs "
            "at once: gpu-3x50. If the form offers it, ask your administrator to correct the form's list.",
        ),
    ],
)
def test_a_wrong_size_is_told_in_the_words_of_the_form(limits: dict[str, str], words: str) -> None:
    of = notebook(limits=limits)
    expected = f"{words} Until this is corrected, the notebook gets no Bitfusion GPU."
    for sts in (None, statefulset(of, replicas=0), statefulset(of)):
        assert decided(of, sts) == [Said("Warning", "BitfusionRequestRefused", expected)]


@pytest.mark.parametrize(
    ("limits", "requests", "words"),
    [
        ({}, TWO, "is in the requests but not in the limits"),
        (TWO, {"bitfusion.io/gpu-amount": "1"}, 'must be what the limits have, "2"'),
        ({"bitfusion.io/gpus": "1"}, {}, "did you mean bitfusion.io/gpu-amount?"),
        ({"bitfusion.io/gpu": "50"}, {}, "only the pod injector may write it"),
        ({}, {"bitfusion.io/GPU-50": "1"}, "did you mean bitfusion.io/gpu-50?"),
    ],
)
def test_what_no_pod_could_be_made_of_is_told_if_it_slipped_in(
    limits: dict[str, str], requests: dict[str, str], words: str
) -> None:
    of = notebook(limits=limits)
    of["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] |= requests
    (event,) = decided(of)
    assert isinstance(event, Said)
    assert (event.type, event.reason) == ("Warning", "BitfusionRequestRefused")
    assert words in event.message


def test_requests_that_repeat_the_limits_are_right() -> None:
    of = admitted()
    of["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] |= {"bitfusion.io/gpu-amount": 2}
    assert decided(of) == []


@pytest.mark.parametrize(
    "init_containers",
    [
        pytest.param([container("i", TWO)], id="one"),
        pytest.param([container("first"), container("i", TWO)], id="the second"),
        pytest.param([container("i", TWO), container("last", TWO)], id="both"),
    ],
)
def test_gpus_in_an_init_container_are_refused(init_containers: list[Object]) -> None:
    of = notebook()
    of["spec"]["template"]["spec"]["initContainers"] = init_containers
    (event,) = decided(of)
    assert isinstance(event, Said)
    assert event.reason == "BitfusionRequestRefused"
    assert "is requested by init container" in event.message


def test_an_init_container_that_asks_for_none_is_nobodys_business() -> None:
    of = notebook()
    of["spec"]["template"]["spec"]["initContainers"] = [container("i", {"nvidia.com/gpu": "1"})]
    assert decided(of) == []


# pods that were let in without the client


def stuck(its_annotations: dict[str, str] | None = None, **more: Any) -> tuple[Object, Object, Object]:
    of = admitted()
    sts = statefulset(of, ready=False, revising=True, **more)
    return of, sts, pod(sts, its_annotations)


def test_a_pod_that_can_never_start_is_made_again() -> None:
    of, sts, its_pod = stuck()
    actions = decided(of, sts, its_pod)
    assert kinds(actions) == ["BitfusionPodRemade", "PatchTemplate", "DeletePod"]
    assert actions[0] == Said(
        "Normal",
        "BitfusionPodRemade",
        "This notebook's pod was made without the Bitfusion client and could never have started. "
        "It is being created again; nothing that was running was stopped.",
    )
    assert isinstance(actions[1], PatchTemplate)
    assert actions[1].operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "22"}
    assert actions[2] == DeletePod("nb-0", "uid-of-pod-nb", "33")
    healed = patched(sts, actions, PatchTemplate)
    assert template(healed) == CLIENT
    # the template was written, then we were interrupted
    assert kinds(decided(of, healed, its_pod)) == ["BitfusionPodRemade", "DeletePod"]


@pytest.mark.parametrize(
    "its_annotations",
    [CLIENT, {**CLIENT, "auto-management/status": "injected"}],
)
def test_a_pod_with_the_annotations_is_not_made_again(its_annotations: dict[str, str]) -> None:
    of, sts, its_pod = stuck(its_annotations, annotations=CLIENT)
    assert decided(of, sts, its_pod) == []


def test_somebody_elses_pod_of_that_name_is_not_touched() -> None:
    of, sts, its_pod = stuck(annotations=CLIENT)
    its_pod["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert decided(of, sts, its_pod) == []


def test_a_pod_that_is_being_deleted_is_not_touched() -> None:
    of, sts, its_pod = stuck(annotations=CLIENT)
    its_pod["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert decided(of, sts, its_pod) == []


def test_a_template_whose_pod_was_refused_is_healed() -> None:
    of = admitted()
    sts = statefulset(of, ready=False)
    (action,) = decided(of, sts, None)
    assert isinstance(action, PatchTemplate)
    assert action.operations[0]["path"] == "/metadata/resourceVersion"


def asked_by_annotation() -> tuple[Object, dict[str, str]]:
    """A notebook that ran without a size until somebody annotated it; its template's annotations."""
    return notebook(annotations={**CLIENT, REQUEST: "-n 1"}, labels={LABEL: "true"}), {}


def asked_for_more() -> tuple[Object, dict[str, str]]:
    return admitted(annotations={REQUEST: "-n 1 -p 0.5"}), CLIENT


@pytest.mark.parametrize(
    ("annotated", "comes_back"),
    [(asked_by_annotation, False), (asked_by_annotation, True), (asked_for_more, False)],
)
@pytest.mark.parametrize("revising", [False, True])
def test_a_notebook_that_is_annotated_while_its_pod_is_being_replaced_waits_for_its_next_start(
    annotated: Callable[[], tuple[Object, dict[str, str]]], comes_back: bool, revising: bool
) -> None:
    """Its node was drained: the pod that comes next must not be restarted for a change that waits."""
    of, of_template = annotated()
    sts = statefulset(of, ready=False, annotations=of_template or None, revising=revising)
    its_pod = pod(sts, of_template) if comes_back else None
    actions = decided(of, sts, its_pod)
    assert kinds(actions) == ["BitfusionChangePending", "PatchNotebook"]
    assert decided(patched(of, actions, PatchNotebook), sts, its_pod) == []


def test_a_second_container_that_asks_makes_a_pod_wait() -> None:
    of, sts, its_pod = stuck()
    asks = its_pod["spec"]["containers"]
    its_pod["spec"]["containers"] = [container("sidecar"), *asks]
    assert kinds(decided(of, sts, its_pod)) == ["BitfusionPodRemade", "PatchTemplate", "DeletePod"]


def test_the_pods_own_statefulset_is_found_among_its_owners() -> None:
    of, sts, its_pod = stuck()
    owners = its_pod["metadata"]["ownerReferences"]
    its_pod["metadata"]["ownerReferences"] = [
        {**owners[0], "uid": "first"}, *owners, {**owners[0], "uid": "last"},
    ]  # fmt: skip
    assert kinds(decided(of, sts, its_pod)) == ["BitfusionPodRemade", "PatchTemplate", "DeletePod"]
    its_pod["metadata"]["ownerReferences"] = []
    assert kinds(decided(of, sts, its_pod)) == ["BitfusionChangePending", "PatchNotebook"]


@pytest.mark.parametrize(
    ("sts", "asked"),
    [
        pytest.param({"annotations": CLIENT}, False, id="runs as it should"),
        pytest.param({}, True, id="differs, perhaps not from what is in the pod"),
        pytest.param({"ready": False}, True, id="differs, not ready"),
        pytest.param({"ready": False, "annotations": CLIENT}, False, id="starting"),
        pytest.param({"ready": False, "annotations": CLIENT, "revising": True}, True, id="pod is older"),
        pytest.param(
            {"ready": False, "annotations": CLIENT, "unnoticed": True}, True, id="pod is older, one revision"
        ),
        pytest.param({"replicas": 0}, False, id="stopped"),
    ],
)
def test_the_pod_is_read_only_where_it_decides(sts: dict[str, Any], asked: bool) -> None:
    of = admitted()
    notebook_, statefulset_ = notebook_record(of), statefulset_record(statefulset(of, **sts))
    assert notebook_ is not None
    assessment = assess(notebook_, statefulset_, DEFAULT_RULES)
    assert assessment is not None
    assert assessment.needs_pod is asked


# properties

ANNOTATIONS = st.dictionaries(
    st.sampled_from([MANAGEMENT, OS, VERSION, REQUEST, PENDING, RUNNING, "foreign.io/x", "a~b/c"]),
    st.sampled_from(["injection", "ubuntu22", "454", "-n 2", "-n 1 -p 0.5", "-p 7", ""]),
)
LIMITS = st.dictionaries(
    st.sampled_from(
        ["bitfusion.io/gpu-amount", "bitfusion.io/gpu-50", "bitfusion.io/gpu-x", "nvidia.com/gpu"]
    ),
    st.sampled_from(["0", "1", "2", 1, "x"]),
    max_size=2,
)
PODS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "annotations": ANNOTATIONS,
            "phase": st.sampled_from(["Pending", "Running"]),
            "node": st.sampled_from([None, "n"]),
        }
    ),
)


@given(ANNOTATIONS, ANNOTATIONS, LIMITS, st.booleans(), st.integers(0, 1), st.booleans(), st.booleans(), PODS)
def test_what_is_done_is_enough_and_touches_nothing_else(
    of_notebook: dict[str, str],
    of_template: dict[str, str],
    limits: dict[str, Any],
    labelled: bool,
    replicas: int,
    ready: bool,
    revising: bool,
    of_pod: dict[str, Any] | None,
) -> None:
    of = notebook(limits=limits, annotations=of_notebook, labels={LABEL: "true"} if labelled else None)
    sts = statefulset(of, replicas, ready, of_template or None, revising=revising)
    its_pod = pod(sts, **of_pod) if of_pod is not None else None
    actions = decided(of, sts, its_pod)
    if replicas and ready:
        assert not any(isinstance(action, PatchTemplate | DeletePod) for action in actions)
    if its_pod is not None and (its_pod["spec"].get("nodeName") or its_pod["status"]["phase"] != "Pending"):
        assert not any(isinstance(action, PatchTemplate | DeletePod) for action in actions if replicas)
    of_after, sts_after = patched(of, actions, PatchNotebook), patched(sts, actions, PatchTemplate)
    for before, after in ((of, of_after), (sts["spec"]["template"], sts_after["spec"]["template"])):
        for name in ("foreign.io/x", "a~b/c", "notebooks.kubeflow.org/server-type"):
            assert notes(before).get(name) == notes(after).get(name)
        assert before["spec"] == after["spec"]
    assert sts_after["metadata"] == sts["metadata"]
    if any(isinstance(action, DeletePod) for action in actions):
        its_pod = None
    again = decided(of_after, sts_after, its_pod)
    once_more = [action for action in again if not isinstance(action, Said)]
    if once_more:  # a template that was healed first lets the notebook be told
        of_third, sts_third = (
            patched(of_after, again, PatchNotebook),
            patched(sts_after, again, PatchTemplate),
        )
        third = decided(of_third, sts_third, its_pod)
        assert all(isinstance(action, Said) and action.type == "Warning" for action in third)
