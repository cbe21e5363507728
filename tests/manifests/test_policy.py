"""The ValidatingAdmissionPolicy refuses what the webhook refuses, in words of its own."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.manifests.built import NOTEBOOKS
from tests.manifests.judge import Judge, refusal
from tests.manifests.sizes import (
    ANNOTATIONS,
    COUNTS,
    GPU,
    KEYS,
    LOOKALIKES,
    MEMORIES,
    PERCENTS,
    PLACES,
    TABLE,
    notebook,
)
from tests.support.waiting import wait_until


@pytest.mark.parametrize("limits", TABLE, ids=lambda limits: ",".join(f"{k}={v}" for k, v in limits.items()))
def test_policy_and_webhook_refuse_the_same_sizes(judge: Judge, limits: dict[str, Any]) -> None:
    body = notebook("nb", limits)
    assert (judge.policy(body) is None) == (judge.webhook(body) is None)


@pytest.mark.parametrize(("limits", "requests"), PLACES, ids=str)
@pytest.mark.parametrize("overridden", [False, True], ids=["", "overridden"])
def test_policy_and_webhook_refuse_the_same_places(
    judge: Judge, limits: dict[str, Any], requests: dict[str, Any], overridden: bool
) -> None:
    annotations = {"bitfusion.io/request": "-n 1"} if overridden else None
    body = notebook("nb", limits, requests=requests, annotations=annotations)
    assert (judge.policy(body) is None) == (judge.webhook(body) is None)


@pytest.mark.parametrize("annotations", ANNOTATIONS, ids=lambda given: str(given)[:60])
@pytest.mark.parametrize("limits", [{}, {f"{GPU}50": "1"}], ids=["asks for nothing", "asks"])
def test_policy_and_webhook_refuse_the_same_annotations(
    judge: Judge, limits: dict[str, Any], annotations: dict[str, str]
) -> None:
    body = notebook("nb", limits, annotations=annotations)
    text = annotations.get("bitfusion-client/filter", "=")
    if limits and "=" not in text and len(text) <= 1024:
        body["spec"]["template"]["spec"]["containers"][0]["resources"] = {}  # its words are the webhook's
    assert (judge.policy(body) is None) == (judge.webhook(body) is None)


@pytest.mark.parametrize("name", LOOKALIKES)
def test_policy_and_webhook_suggest_the_same_size(judge: Judge, name: str) -> None:
    body = notebook("nb", {f"bitfusion.io/{name}": "1"})
    ours, theirs = suggested(judge.policy(body)), suggested(judge.webhook(body))
    assert ours == theirs
    if ours:
        assert judge.webhook(notebook("nb", {ours: "1"})) is None or ours.endswith(("percent", "memory"))


def suggested(words: str | None) -> str | None:
    """The key that a refusal says was meant."""
    found = re.search(r"[dD]id you mean (\S+)\?", words or "")
    return found and found[1]


WORDS = (
    *("1", "3", "0", "50", "100", "101", "8", "1024", "1025", "x", "x", "x", "X", "*", "×"),
    *("gib", "mib", "Gi", "GB", "%", "-", "_", "half", "0.5"),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(WORDS), max_size=6).map("".join), st.sampled_from(["1", "341", "342", "1024"])
)
def test_policy_and_webhook_take_any_key_alike(judge: Judge, key: str, value: str) -> None:
    body = notebook("nb", {GPU + key: value})
    ours, theirs = judge.policy(body), judge.webhook(body)
    assert (ours is None) == (theirs is None)
    assert suggested(ours) == suggested(theirs)


PARTS = st.dictionaries(
    st.sampled_from(
        [
            *(f"{GPU}{key}" for key in ("amount", "percent", "memory", "50", "8gib")),
            *("bitfusion.io/gpus", "bitfusion.io/gpu"),
        ]
    ),
    st.sampled_from(["1", 1, "2", "1000m", "0", "0m", "x"]),
    max_size=2,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PARTS, PARTS, st.booleans())
def test_policy_and_webhook_refuse_the_same_limits_and_requests(
    judge: Judge, limits: dict[str, Any], requests: dict[str, Any], overridden: bool
) -> None:
    annotations = {"bitfusion.io/request": "-n 1"} if overridden else None
    assert judge.agree(notebook("nb", limits, requests=requests, annotations=annotations))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([f"{GPU}{key}" for key in ("amount", "percent", "memory", *KEYS)]),
        st.sampled_from([*COUNTS, *PERCENTS, *MEMORIES, 1, 50]),
        max_size=3,
    )
)
def test_policy_and_webhook_refuse_the_same_combinations(judge: Judge, limits: dict[str, Any]) -> None:
    assert judge.agree(notebook("nb", limits))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            {f"{GPU}amount": "0"},
            "0 Bitfusion GPUs (bitfusion.io/gpu-amount) cannot be requested. Choose 1 or more, or no GPU at "
            "all.",
        ),
        (
            {f"{GPU}amount": "0.5"},
            'Bitfusion GPUs come in whole numbers from 1 to 1024, not "0.5" (bitfusion.io/gpu-amount). '
            'Half a GPU is written as bitfusion.io/gpu-50: "1".',
        ),
        (
            {f"{GPU}amount": "two"},
            'Bitfusion GPUs come in whole numbers from 1 to 1024, not "two" (bitfusion.io/gpu-amount). '
            'Half a GPU is written as bitfusion.io/gpu-50: "1".',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}percent": "0"},
            "The share of a Bitfusion GPU is a whole number of percent from 1 to 100, "
            'not "0" (bitfusion.io/gpu-percent).',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}percent": "101"},
            "The share of a Bitfusion GPU is a whole number of percent from 1 to 100, "
            'not "101" (bitfusion.io/gpu-percent).',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}percent": "50", f"{GPU}memory": "8Gi"},
            "A Bitfusion GPU is shared by percent or by memory, not by both: keep bitfusion.io/gpu-percent "
            "or bitfusion.io/gpu-memory, and remove the other one.",
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}memory": "8GB"},
            "The memory of a Bitfusion GPU is an amount of at least 1Mi, such as 8Gi or 8000Mi, "
            'not "8GB" (bitfusion.io/gpu-memory).',
        ),
        (
            {f"{GPU}percent": "50"},
            "The share of a Bitfusion GPU is given, but not the number of GPUs: add "
            'bitfusion.io/gpu-amount: "1".',
        ),
        (
            {f"{GPU}foo": "1"},
            '"bitfusion.io/gpu-foo" is not a Bitfusion size. There are bitfusion.io/gpu-amount (whole GPUs), '
            "bitfusion.io/gpu-1 to gpu-100 (percent of each GPU), memory of each GPU as in "
            "bitfusion.io/gpu-8gib or gpu-8000mib, and 2 to 1024 GPUs at once as in gpu-3x50.",
        ),
        (
            {f"{GPU}1x50": "1"},
            '"bitfusion.io/gpu-1x50" is not a Bitfusion size. Did you mean bitfusion.io/gpu-50?',
        ),
        (
            {f"{GPU}3x50": "0"},
            "0 Bitfusion GPUs (bitfusion.io/gpu-3x50) cannot be requested. Choose 1 or more, or no GPU at "
            "all.",
        ),
        (
            {f"{GPU}3x50": "400"},
            '"bitfusion.io/gpu-3x50" is 3 Bitfusion GPUs at once, of which there can be 1 to 341, not "400".',
        ),
        (
            {f"{GPU}050": "1"},
            '"bitfusion.io/gpu-050" is not a Bitfusion size. Did you mean bitfusion.io/gpu-50?',
        ),
        (
            {"bitfusion.io/gpu": "50"},
            "bitfusion.io/gpu is what the cluster counts; a notebook cannot request it. Write "
            'bitfusion.io/gpu-amount: "1" for a whole GPU, bitfusion.io/gpu-50: "1" for half of one.',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}percent": "50%"},
            "The share of a Bitfusion GPU is a whole number of percent from 1 to 100, "
            'not "50%" (bitfusion.io/gpu-percent). Write 50.',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}memory": "8"},
            "The memory of a Bitfusion GPU is an amount of at least 1Mi, such as 8Gi or 8000Mi, "
            'not "8" (bitfusion.io/gpu-memory). Without a unit the value is in bytes: write 8Gi.',
        ),
        (
            {f"{GPU}amount": "1", f"{GPU}memory": "8192"},
            "The memory of a Bitfusion GPU is an amount of at least 1Mi, such as 8Gi or 8000Mi, "
            'not "8192" (bitfusion.io/gpu-memory). Without a unit the value is in bytes: write 8192Mi.',
        ),
        (
            {f"{GPU}2000000000gib": "1"},
            '"bitfusion.io/gpu-2000000000gib" is more memory than any GPU has.',
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_to_do(
    judge: Judge, limits: dict[str, str], words: str
) -> None:
    assert judge.policy(notebook("nb", limits)) == words


@pytest.mark.parametrize(
    ("limits", "requests", "words"),
    [
        (
            {},
            {f"{GPU}50": "1"},
            "Bitfusion GPUs are only in the requests (bitfusion.io/gpu-50), so no pod can be created. "
            "Put the size in the limits; you can omit it from the requests.",
        ),
        (
            {f"{GPU}50": "1"},
            {f"{GPU}50": 2},
            'The requests have "2" and the limits "1" (bitfusion.io/gpu-50), so no pod can be '
            "created. Leave it out of the requests.",
        ),
    ],
)
def test_a_wrong_place_is_told(
    judge: Judge, limits: dict[str, Any], requests: dict[str, Any], words: str
) -> None:
    assert judge.policy(notebook("nb", limits, requests=requests)) == words


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        (
            {"auto-management/bitfusion": "all"},
            'The annotation auto-management/bitfusion must be injection or none, not "all". With all, the '
            "notebook server itself would hold the GPUs until the notebook is stopped.",
        ),
        (
            {"bitfusion-client/version": "../../x"},
            "The annotations bitfusion-client/os and bitfusion-client/version must be letters, digits, dots, "
            "- or _, at most 63. Remove them to have the client chosen by the image.",
        ),
        (
            {"bitfusion-client/filter": "f" * 1025},
            "The annotation bitfusion-client/filter must be at most 1024 characters.",
        ),
        (
            {"bitfusion.io/request": "-n 1" + " " * 4093},
            "The annotation bitfusion.io/request must be at most 4096 characters.",
        ),
        (
            {"bitfusion.io/path": "/opt/bin"},
            "The annotation bitfusion.io/path must be none (no command in /usr/local/bin) or absent.",
        ),
        (
            {"bitfusion.io/gpu-image": "two words"},
            "The annotation bitfusion.io/gpu-image must be an image reference without spaces, at most 512 "
            "characters.",
        ),
    ],
)
def test_a_wrong_annotation_is_told(judge: Judge, annotations: dict[str, str], words: str) -> None:
    assert judge.policy(notebook("nb", {}, annotations=annotations)) == words


def test_a_long_value_is_cut(judge: Judge) -> None:
    words = judge.policy(notebook("nb", {}, annotations={"auto-management/bitfusion": "é" * 5000})) or ""
    assert f'not "{"é" * 60}".' in words


def test_two_sizes_are_named_both(judge: Judge) -> None:
    words = judge.policy(notebook("nb", {f"{GPU}50": "1", f"{GPU}amount": "1"}))
    # The apiserver gives a map's keys in any order.
    either = [
        f"This notebook has two Bitfusion sizes, {GPU}{first} and {GPU}{second}. Keep one of them."
        for first, second in (("50", "amount"), ("amount", "50"))
    ]
    assert words in either


def test_two_containers_that_ask_are_refused_by_both(judge: Judge) -> None:
    body = notebook("nb", {f"{GPU}50": "1"}, {f"{GPU}50": "1"})
    assert judge.webhook(body)
    assert judge.policy(body) == (
        'Bitfusion GPUs are requested by several containers of this notebook, "nb" and "nb-1". Keep the '
        "size on the notebook's own container and remove it from the others."
    )
    assert judge.policy(notebook("nb", {f"{GPU}50": "1"}, {"cpu": "1"})) is None


def test_an_init_container_that_asks_is_refused_by_both(judge: Judge) -> None:
    body = notebook("nb", {f"{GPU}50": "1"})
    resources = {"limits": {f"{GPU}50": "1"}}
    body["spec"]["template"]["spec"]["initContainers"] = [
        {"name": "prepare", "image": "x", "resources": resources}
    ]
    assert judge.webhook(body)
    assert judge.policy(body) == (
        'Init container "prepare" requests Bitfusion GPUs; only the notebook\'s own '
        "container can. Set the size there."
    )


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_every_served_version_is_judged(cluster: Cluster, judge: Judge, version: str) -> None:
    path = judge.path.replace("v1beta1", version)
    with pytest.raises(Refused, match="0 Bitfusion GPUs"):
        cluster.client.create(path, notebook("nb", {f"{GPU}amount": "0"}, version=version), dryRun="All")


def test_limits_do_not_matter_beside_the_annotation_that_overrides_them(judge: Judge) -> None:
    body = notebook("nb", {f"{GPU}amount": "0"})
    body["metadata"]["annotations"] = {"bitfusion.io/request": "-n 1 -p 0.5"}
    assert judge.policy(body) is None
    assert judge.webhook(body) is None
    body["metadata"]["annotations"] = {"bitfusion.io/request": "  "}
    assert judge.policy(body) is not None
    assert judge.webhook(body) is not None


def test_a_notebook_older_than_the_policy_can_be_stopped_labelled_and_deleted(
    cluster: Cluster, judge: Judge
) -> None:
    namespace = cluster.new_namespace({"bitfusion.io/admission": "ignore"})
    path = NOTEBOOKS.format(namespace=namespace)
    body = notebook("old", {f"{GPU}amount": 0.5, "cpu": "1"})
    body["metadata"]["finalizers"] = ["example.com/later"]
    made = cluster.client.create(path, body)
    label = {"metadata": {"labels": {"bitfusion.io/admission": None}}}
    cluster.client.merge(f"/api/v1/namespaces/{namespace}", label)
    wait_until(lambda: refusal(cluster, path, notebook("new", {f"{GPU}amount": "0"})), "looked after", 10)

    old = f"{path}/old"
    cluster.client.merge(old, {"metadata": {"annotations": {"kubeflow-resource-stopped": "now"}}})
    # as Kubeflow's culler puts it back: read into Go's types, which spell amounts anew
    culled = cluster.client.get(old)
    culled["metadata"]["annotations"] = {"notebooks.kubeflow.org/last-activity": "2026-11-21T08:00:00Z"}
    culled["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][f"{GPU}amount"] = "500m"
    cluster.client.put(old, culled)
    changed = copy.deepcopy(made)
    changed["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
    del changed["metadata"]["resourceVersion"]
    limits = {"spec": changed["spec"]}
    cluster.client.merge(old, limits)
    with pytest.raises(Refused, match='not "-1"'):
        cluster.client.patch(
            old,
            [
                {
                    "op": "add",
                    "path": "/spec/template/spec/containers/0/resources/limits/bitfusion.io~1gpu-amount",
                    "value": "-1",
                }
            ],
        )
    cluster.client.delete(old)
    cluster.client.merge(old, {"metadata": {"finalizers": None}})
    wait_until(lambda: not cluster.client.exists(old), limit_s=10)


@pytest.mark.parametrize("where", ["namespace", "notebook"])
def test_the_opt_out_label_is_respected(cluster: Cluster, judge: Judge, where: str) -> None:
    label = {"bitfusion.io/admission": "ignore"}
    namespace = cluster.new_namespace(label if where == "namespace" else {})
    body = notebook("nb", {f"{GPU}amount": "0"})
    body["metadata"]["labels"] = label if where == "notebook" else {}
    cluster.client.create(NOTEBOOKS.format(namespace=namespace), body, dryRun="All")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"template": {}},
        {"template": {"spec": {}}},
        {"template": {"spec": {"containers": []}}},
        {"template": {"spec": {"containers": [{}]}}},
        {"template": {"spec": {"containers": [{"resources": {}}]}}},
        {"template": {"spec": {"containers": [{"resources": {"limits": {}}}]}}},
        {"template": {"spec": {"containers": [{"resources": {"limits": None}}]}}},
        {"template": {"spec": {"containers": "none"}}},
        {"template": None},
    ],
    ids=str,
)
def test_what_is_no_notebook_is_left_to_its_schema(judge: Judge, spec: dict[str, Any]) -> None:
    body = notebook("nb", {})
    body["spec"] = spec
    assert judge.policy(body) is None
    assert judge.webhook(body) is None
