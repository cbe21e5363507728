"""What other webhooks do to resources and volumes after ours: the client costs nothing and keeps no node."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bitfusion_client.request.quantities import parse_quantity
from bitfusion_device_plugin.injector.injection.client_map import ClientRule
from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS, InjectorSettings
from tests.bitfusion_device_plugin.injector.pods import (
    HALF,
    LOCAL_VOLUMES,
    Object,
    container,
    inject,
    mounts,
    named,
    pod,
)
from tests.bitfusion_device_plugin.injector.webhooks import (
    COPIED,
    LOWERS,
    RENAMED,
    Change,
    applied,
    container_in_front,
    local_volume_named,
    overridden,
    raised,
    recommended,
    volumes_renamed,
)

VMWARE = InjectorSettings((ClientRule("*", "*", "vmware", "packages:1", "p.deb"),))


@pytest.fixture(params=[DEFAULT_SETTINGS, VMWARE], ids=["stand-in", "vmware"])
def settings(request: pytest.FixtureRequest) -> InjectorSettings:
    return request.param  # type: ignore[no-any-return]  # pytest's


def weight(made: Object, part: str, name: str) -> float:
    """What a pod weighs to scheduler and quota: its containers together, or its largest init container."""

    def amount(each: Object) -> float:
        top, bottom = parse_quantity(each.get("resources", {}).get(part, {}).get(name, "0"))
        return top / bottom

    spec = made["spec"]
    together = sum(map(amount, spec["containers"]))
    return max(together, *(amount(each) for each in spec.get("initContainers", ())), 0)


@pytest.mark.parametrize("later", [*LOWERS, raised], ids=lambda change: change.__name__)
@pytest.mark.parametrize("before_others", [False, True], ids=["after ours", "before ours"])
def test_a_pod_weighs_what_it_weighs_without_us(
    settings: InjectorSettings, later: Change, before_others: bool
) -> None:
    plain = pod(container({HALF: "1"}), annotations=None)
    if before_others:
        made = inject(applied(plain, [later]), settings=settings)
    else:
        made = inject(applied(inject(plain, settings=settings), [later]), settings=settings)
    without = applied(plain, [later])
    for part in ("limits", "requests"):
        for name in COPIED:
            assert weight(made, part, name) == weight(without, part, name), f"{part} of {name}"


LIMITS: dict[str, Any] = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"}


@pytest.mark.parametrize(
    ("ours", "containers", "after"),
    [
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1"}}),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "2000m"}}, {"limits": {"cpu": "2"}}),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, {"limits": {"cpu": "1"}}),
        ({"limits": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}}),
        ({}, {"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}}),
        (None, {"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}}),
        ({"limits": {"x.y/z": "1", "cpu": "1"}}, {}, {"limits": {"x.y/z": "1"}}),
        ({"limits": {"cpu": "nonsense"}}, {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1"}}),
        ({"limits": {"ephemeral-storage": "10Gi"}}, {"limits": LIMITS}, {"limits": LIMITS}),
        ({"claims": [{"name": "x"}], "requests": {"cpu": "1"}}, {}, {"claims": [{"name": "x"}]}),
    ],
)
def test_ours_is_never_larger_than_the_container(
    settings: InjectorSettings, ours: Any, containers: Object, after: Object
) -> None:
    once = inject(pod(container({HALF: "1"})), settings=settings)
    units = {"bitfusion.io/gpu": "50"}
    (asking,) = once["spec"]["containers"]
    asking["resources"] = {**containers, "limits": {**containers.get("limits", {}), **units}}
    for each in once["spec"]["initContainers"]:
        each["resources"] = copy.deepcopy(ours)
    for each in inject(once, settings=settings)["spec"]["initContainers"]:
        assert each["resources"] == after


def test_what_a_quota_may_want_of_every_container_is_copied() -> None:
    before = pod(container({HALF: "1", "ephemeral-storage": "1Gi"}))
    (ours,) = inject(before)["spec"]["initContainers"]
    assert set(ours["resources"]["requests"]) == {"cpu", "memory", "ephemeral-storage"}


def is_kept_on_its_node(made: Object) -> bool:
    """As the cluster autoscaler sees it: ``HasBlockingLocalStorage`` of utils/drain/drain.go."""
    named_safe = made["metadata"].get("annotations", {}).get(LOCAL_VOLUMES, "").split(",")
    return any(
        ("hostPath" in volume or ("emptyDir" in volume and volume["emptyDir"].get("medium") != "Memory"))
        and volume["name"] not in named_safe
        for volume in made["spec"].get("volumes", ())
    )


SHARED_MEMORY = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
SCRATCH: Object = {"name": "scratch", "emptyDir": {}}


@pytest.mark.parametrize("volumes", [[], [SHARED_MEMORY], [SCRATCH]], ids=["none", "memory", "scratch"])
@pytest.mark.parametrize(
    ("given", "after"),
    [
        (None, "bitfusion-client"),
        ("", "bitfusion-client"),
        ("scratch", "scratch,bitfusion-client"),
        ("a, b", "a, b,bitfusion-client"),
        ("bitfusion-client,scratch", "bitfusion-client,scratch"),
        ("bitfusion-client2, bitfusion-client", "bitfusion-client2, bitfusion-client,bitfusion-client"),
    ],
)
def test_the_cluster_autoscaler_moves_a_pod_that_it_would_move_without_us(
    volumes: list[Object], given: str | None, after: str
) -> None:
    annotations = {} if given is None else {LOCAL_VOLUMES: given}
    before = pod(container({HALF: "1"}), annotations=annotations, volumes=volumes)
    made = inject(before)
    assert made["metadata"]["annotations"][LOCAL_VOLUMES] == after
    assert is_kept_on_its_node(made) == is_kept_on_its_node(before)


@pytest.mark.parametrize(
    "later",
    [[local_volume_named], [volumes_renamed], [volumes_renamed, local_volume_named], [container_in_front]],
    ids=lambda changes: changes[-1].__name__,
)
def test_the_volume_stays_named_whatever_others_do_after_us(later: list[Change]) -> None:
    plain = pod(container({HALF: "1"}), annotations={}, volumes=[SHARED_MEMORY])
    made = inject(applied(inject(plain), later))
    assert is_kept_on_its_node(made) == is_kept_on_its_node(applied(plain, later))


def test_volumes_that_were_renamed_are_known_again(settings: InjectorSettings) -> None:
    once = inject(pod(container({HALF: "1"}), annotations={}, volumes=[SCRATCH]), settings=settings)
    renamed = applied(once, [volumes_renamed])
    renamed["spec"]["containers"].append(container({HALF: "1"}, "late"))
    spec = inject(renamed, settings=settings)["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == [
        f"{RENAMED}scratch",
        f"{RENAMED}bitfusion-client",
        f"{RENAMED}bitfusion-identity",
    ]
    for name in ("nb", "late"):
        found = [(volume, path) for volume, path, _ in mounts(named(spec["containers"], name))]
        assert (f"{RENAMED}bitfusion-client", "/bitfusion") in found
        assert (f"{RENAMED}bitfusion-identity", "/bitfusion/identity") in found
        assert len(found) == len(set(found))
    ours = [each for each in spec["initContainers"] if each["name"].startswith("bitfusion-")]
    assert {mount["name"] for each in ours for mount in each["volumeMounts"]} == {
        f"{RENAMED}bitfusion-client"
    }


def test_a_webhook_of_every_kind_in_any_order() -> None:
    plain = pod(container({HALF: "1"}), annotations={}, volumes=[SHARED_MEMORY])
    later = [container_in_front, recommended, volumes_renamed, overridden, local_volume_named]
    made = inject(applied(inject(plain), later))
    assert made["spec"]["initContainers"][0]["name"] == "bitfusion-client"
    assert named(made["spec"]["containers"], "nb")["resources"]["limits"]["bitfusion.io/gpu"] == "50"
