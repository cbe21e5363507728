"""Which rule serves which request, and what it makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest, NeverSatisfiable, WrongSetting
from bitfusion_client.gpu_pods.size_rules import (
    DEFAULT_RULES,
    SHARED,
    NoSuchSize,
    SizeRule,
    check_sizes,
    gpu_resources,
    parse_rule,
    parse_rules,
    rule_for,
)
from bitfusion_client.gpu_pods.values import Place
from bitfusion_client.request.gpu_request import GpuRequest
from tests.client.strategies import requests

PLACE = Place("rules[0]", "pods.yaml")


def limits(**amounts: str) -> dict[str, Any]:
    return {"resources": {"limits": {f"example.org/{name}": value for name, value in amounts.items()}}}


def rule(serves: dict[str, Any], **others: Any) -> SizeRule:
    return parse_rule({"name": "a", "serves": serves, **others}, PLACE)


SMALL = {"gpus": {"most": 1}, "share": {"most": 0.14}, "memory": {"most": "5Gi"}}
SLICES = parse_rules(
    [
        {"name": "small", "serves": SMALL, "container": limits(small="{gpus}"), "keeps_memory": True},
        {"name": "half", "serves": {"share": {"most": 0.5}}, "container": limits(half="{gpus}")},
        {"name": "whole", "serves": {"whole": True}, "container": limits(gpu="{gpus}")},
    ],
    Place("rules"),
)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (GpuRequest(1, 0.1), "small"),
        (GpuRequest(1, 0.14), "small"),
        (GpuRequest(1, 0.141), "half"),
        (GpuRequest(2, 0.1), "half"),
        (GpuRequest(1, 0.5), "half"),
        (GpuRequest(1, 1.0), "whole"),
        (GpuRequest(8), "whole"),
        (GpuRequest(1, None, 5120), "small"),
        (GpuRequest(1, None, 1), "small"),
    ],
)
def test_the_first_rule_that_serves_is_taken(request_: GpuRequest, name: str) -> None:
    found = rule_for(request_, SLICES)
    assert found.rule.name == name
    (amount,) = found.container["resources"]["limits"].values()
    assert amount == str(request_.gpus)
    assert found.keeps_memory is (name == "small")


@pytest.mark.parametrize(
    "request_", [GpuRequest(1, 0.6), GpuRequest(1, None, 5121), GpuRequest(2, None, 512)]
)
def test_a_size_that_no_rule_serves_is_refused_with_those_that_there_are(request_: GpuRequest) -> None:
    with pytest.raises(NoSuchSize) as caught:
        rule_for(request_, SLICES)
    assert isinstance(caught.value, NeverSatisfiable)
    assert caught.value.user_message.splitlines() == [
        "This cluster does not offer GPUs in this size.",
        f"Asked for: {request_.describe()}",
        "Answer: there are 1 GPU: shares up to 14 %, memory up to 5Gi; 1 or more GPUs: shares up to 50 %; "
        "1 or more GPUs: whole",
        "What to do: choose one of these sizes (`%bitfusion request -n 1`), or ask your administrator to add "
        "another.",
    ]
    assert check_sizes([GpuRequest(1), request_], SLICES) == [request_]


@pytest.mark.parametrize(
    ("request_", "gpu_memory", "numbers"),
    [
        (GpuRequest(2, 0.5), None, ["2", "50", "0.5"]),
        (GpuRequest(2, 0.5), "16Gi", ["2", "50", "0.5", "8192"]),
        (GpuRequest(1), "16Gi", ["1", "100", "1", "16384"]),
        (GpuRequest(1, 0.29), "40Gi", ["1", "29", "0.29", "11878"]),
        (GpuRequest(1, 0.291), None, ["1", "30", "0.291"]),
        (GpuRequest(1, 1e-9), "1Gi", ["1", "1", "0.0001", "1"]),
        (GpuRequest(3, None, 8192), "16Gi", ["3", "50", "0.5", "8192"]),
        (GpuRequest(3, None, 5461), "16Gi", ["3", "34", "0.3334", "5461"]),
    ],
)
def test_the_numbers_of_a_request(request_: GpuRequest, gpu_memory: str | None, numbers: list[str]) -> None:
    names = ["{gpus}", "{percent}", "{share}", "{memory_mib}"][: len(numbers)]
    fragment = {"metadata": {"annotations": {f"a{index}": name for index, name in enumerate(names)}}}
    serves = {"whole": True, "share": True} | ({"memory": True} if gpu_memory else {})
    data = {"gpu_memory": gpu_memory} if gpu_memory else {}
    found = rule_for(request_, [rule(serves, pod=fragment, **data)])
    assert list(found.pod["metadata"]["annotations"].values()) == numbers


def test_more_memory_than_a_gpu_has_is_no_size() -> None:
    one = rule({"memory": True}, gpu_memory="16Gi")
    assert one.serves(GpuRequest(1, None, 16384))
    assert not one.serves(GpuRequest(1, None, 16385))


@pytest.mark.parametrize(
    ("serves", "number", "missing"),
    [
        ({"share": True}, "{memory_mib}", True),
        ({"whole": True}, "{memory_mib}", True),
        ({"memory": True}, "{memory_mib}", False),
        ({"memory": True}, "{percent}", True),
        ({"memory": True, "share": True}, "{share}", True),
        ({"share": True, "whole": True}, "{percent}", False),
    ],
)
def test_a_number_that_cannot_be_known_is_refused_when_it_is_read(
    serves: dict[str, Any], number: str, missing: bool
) -> None:
    if not missing:
        assert rule(serves, container=limits(a=number))
        return
    with pytest.raises(WrongSetting, match=r"rules\[0\]\.gpu_memory.*pods\.yaml"):
        rule(serves, container=limits(a=number))
    assert rule(serves, container=limits(a=number), gpu_memory="16Gi")


def test_what_is_shared_is_told() -> None:
    assert rule_for(GpuRequest(1), [rule({"whole": True})]).note == ""
    assert rule_for(GpuRequest(1), [rule({"whole": True}, isolated=False)]).note == SHARED
    assert rule_for(GpuRequest(1), [rule({"whole": True}, isolated=False, note="slow")]).note == "slow"


@pytest.mark.parametrize(
    "request_", [GpuRequest(1, filters=(("model", "V100"),)), GpuRequest(1, servers=("a:1",))]
)
def test_filters_and_servers_are_refused(request_: GpuRequest) -> None:
    with pytest.raises(InvalidRequest, match="GPU pods"):
        rule_for(request_, DEFAULT_RULES)


def test_the_resources_are_those_that_are_no_cpu_and_no_memory() -> None:
    one = rule({"whole": True}, container={"resources": {"limits": {"cpu": 1, "a.org/gpu": "{gpus}"}}})
    by_annotation = rule({"share": True}, pod={"metadata": {"annotations": {"gpu-fraction": "{share}"}}})
    assert (one.resources, by_annotation.resources) == (("a.org/gpu",), ())
    assert gpu_resources([*DEFAULT_RULES, one, one]) == ("nvidia.com/gpu", "a.org/gpu")


def test_a_filled_fragment_shares_nothing_with_its_rule() -> None:
    found = rule_for(GpuRequest(1), DEFAULT_RULES)
    found.pod["spec"]["tolerations"][0]["key"] = "changed"
    found.container["resources"]["limits"].clear()
    assert rule_for(GpuRequest(1), DEFAULT_RULES).container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert DEFAULT_RULES[0].pod["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (7, "rules[0]"),
        ({}, "rules[0].name"),
        ({"name": "a"}, "rules[0].serves"),
        ({"name": "a", "serves": {}}, "rules[0].serves"),
        ({"name": "a", "serves": {"gpus": {"most": 1}}}, "rules[0].serves"),
        ({"name": "a", "serves": {"share": False}}, "rules[0].serves"),
        ({"name": "a", "serves": {"whole": "yes"}}, "rules[0].serves.whole"),
        ({"name": "a", "serves": {"whole": True, "gpus": 1}}, "rules[0].serves.gpus"),
        ({"name": "a", "serves": {"whole": True, "gpus": {"most": 0}}}, "rules[0].serves.gpus.most"),
        ({"name": "a", "serves": {"whole": True, "gpus": {"least": 3, "most": 2}}}, "rules[0].serves.gpus"),
        ({"name": "a", "serves": {"share": {"most": 1.5}}}, "rules[0].serves.share.most"),
        ({"name": "a", "serves": {"share": {"most": float("nan")}}}, "rules[0].serves.share.most"),
        ({"name": "a", "serves": {"share": {"up_to": 1}}}, "rules[0].serves.share.up_to"),
        ({"name": "a", "serves": {"memory": {"most": 5}}}, "rules[0].serves.memory.most"),
        ({"name": "a", "serves": {"memory": {"most": "1e30"}}}, "rules[0].serves.memory.most"),
        ({"name": "a", "serves": {"whole": True}, "isolated": "no"}, "rules[0].isolated"),
        ({"name": "a", "serves": {"whole": True}, "note": "a\nb"}, "rules[0].note"),
        ({"name": "a" * 61, "serves": {"whole": True}}, "rules[0].name"),
        ({"name": "a", "serves": {"whole": True}, "command": []}, "rules[0].command"),
    ],
)
def test_a_wrong_rule_is_named_by_its_field(data: Any, place: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        parse_rule(data, PLACE)
    assert caught.value.name == place
    assert "pods.yaml" in caught.value.user_message


def test_two_rules_of_one_name_and_too_many_are_refused() -> None:
    one = {"name": "a", "serves": {"whole": True}}
    with pytest.raises(WrongSetting, match=r"rules\[1\]\.name"):
        parse_rules([one, one], Place("rules"))
    with pytest.raises(WrongSetting, match="at most 64 rules"):
        parse_rules([{**one, "name": str(number)} for number in range(65)], Place("rules"))


@given(requests())
def test_every_request_is_served_or_refused_in_words(request_: GpuRequest) -> None:
    try:
        found = rule_for(request_, SLICES)
    except (NoSuchSize, InvalidRequest):
        assert request_.filters or request_.servers or check_sizes([request_], SLICES)
    else:
        assert found.rule.serves(request_)
        assert "{" not in str(list(found.container["resources"]["limits"].values()))


@given(st.data())
def test_a_rule_reads_back_from_its_json(data: st.DataObject) -> None:
    share = data.draw(st.none() | st.floats(0.001, 1))
    serves: dict[str, Any] = {"whole": True, "gpus": {"most": data.draw(st.integers(1, 1024))}}
    if share is not None:
        serves["share"] = {"least": data.draw(st.floats(1e-6, share)), "most": share}
    if data.draw(st.booleans()):
        serves["memory"] = {"most": data.draw(st.integers(256, 1 << 40))}
    one = rule(serves, gpu_memory="40Gi", container=limits(a="{memory_mib}"), note="n", isolated=False)
    assert parse_rule(one.to_json(), PLACE) == one
    assert one.describe()
