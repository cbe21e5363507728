"""What the caches keep of an object has a bound, whatever a tenant writes into it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record
from bitfusion_cluster.watching.cache import Cache
from notebook_controller_patch.reconcile.decisions import assess
from notebook_controller_patch.reconcile.records import statefulset_record
from tests.notebook_controller_patch.reconcile.objects import CLIENT, admitted, notebook, statefulset
from tests.support.notebooks import container

Object = dict[str, Any]

TWO = {"bitfusion.io/gpu-amount": "2"}
FILTER, REQUEST = "bitfusion-client/filter", "bitfusion.io/request"
LARGEST = 250_000  # characters: all annotations of an object have 256 KiB together
KEPT = 20_000  # bytes of one record, at most


def size_of(record: object) -> int:
    return len(repr(record).encode())


def annotated(value: str, name: str = FILTER) -> Object:
    return notebook("nb", TWO, annotations={name: value})


def with_init_containers(*containers: Object) -> Object:
    made = notebook("nb")
    made["spec"]["template"]["spec"]["initContainers"] = list(containers)
    return made


def with_containers(*containers: Object) -> Object:
    made = notebook("nb", TWO)
    made["spec"]["template"]["spec"]["containers"] = list(containers)
    return made


HUGE = [
    *(
        pytest.param(annotated("x" * LARGEST, name), id=name)
        for name in (*CLIENT, FILTER, REQUEST, "bitfusion.io/pending", "bitfusion.io/running-request", "a/b")
    ),
    pytest.param(with_containers(container("nb", TWO, image="i" * 1_400_000)), id="image"),
    pytest.param(with_containers(container("n" * 1_400_000, TWO)), id="name of a container"),
    pytest.param(
        with_containers(container("nb", {"bitfusion.io/gpu-50": "9" * 1_400_000})), id="amount as text"
    ),
    pytest.param(
        with_containers(container("nb", {"bitfusion.io/gpu-50": 10**4000})), id="amount as a number"
    ),
    pytest.param(
        with_containers(container("nb", {"bitfusion.io/gpu-50": ["x"] * 99_999})), id="amount as a list"
    ),
    pytest.param(with_containers(container("nb", {"bitfusion.io/gpu-" + "9" * 1_400_000: "1"})), id="key"),
    pytest.param(
        with_containers(container("nb", {f"bitfusion.io/gpu-{n}": "1" for n in range(9999)})), id="many keys"
    ),
    pytest.param(with_containers(*(container(f"c-{n}") for n in range(5000))), id="many containers"),
    pytest.param(with_containers(*(container(f"c-{n}", TWO) for n in range(5000))), id="many that ask"),
]
MANY_FIRST = [
    pytest.param(with_init_containers(*(container(f"i-{n}", TWO) for n in range(5000))), id="all ask"),
    pytest.param(
        with_init_containers(*(container(f"i-{n}") for n in range(4999)), container("last", TWO)),
        id="the last one asks",
    ),
]


@pytest.mark.parametrize("data", MANY_FIRST)
def test_of_many_init_containers_those_are_kept_that_are_refused(data: Object) -> None:
    record = notebook_record(data)
    assert record is not None
    assert size_of(record) < KEPT
    with pytest.raises(InvalidRequest, match="is requested by init container"):
        assess(record, None, DEFAULT_RULES)


@pytest.mark.parametrize("data", HUGE)
def test_a_record_is_small_whatever_the_object_holds(data: Object) -> None:
    record = notebook_record(data)
    assert record is not None
    assert size_of(record) < KEPT
    of_set = statefulset_record(statefulset(data, annotations=data["metadata"]["annotations"]))
    assert of_set is not None
    assert size_of(of_set) < KEPT


@pytest.mark.parametrize("data", [each for each in HUGE if each.id not in (*CLIENT, "a/b")])
def test_what_is_cut_off_makes_nothing_right(data: Object) -> None:
    """What the whole object is refused for, its record is refused for, too."""
    record = notebook_record(data)
    assert record is not None
    try:
        assess(record, None, DEFAULT_RULES)
    except InvalidRequest:
        refused = True
    else:
        refused = False
    names = [name for name in (FILTER, REQUEST) if len(data["metadata"]["annotations"].get(name, "")) > 4096]
    asking = [
        each
        for each in data["spec"]["template"]["spec"]["containers"]
        if any(key.startswith("bitfusion.io/gpu-") for key in each.get("resources", {}).get("limits", {}))
    ]
    wrong_size = len(asking) > 1 or any(
        set(each["resources"]["limits"]) - set(TWO) - {"cpu", "memory"} for each in asking
    )
    assert refused == bool(names or wrong_size)


def test_a_size_that_changes_behind_what_is_kept_is_not_needed() -> None:
    """Three keys of a size can stand side by side; of more, those that are kept are too many already."""
    record = notebook_record(admitted(limits={f"bitfusion.io/gpu-{n}": "1" for n in range(20, 40)}))
    assert record is not None
    with pytest.raises(InvalidRequest, match="is a second size in addition to"):
        assess(record, None, DEFAULT_RULES)


def test_a_tenant_who_edits_again_and_again_fills_nothing() -> None:
    """1,600 edits of one annotation of 250 kB took 307 MiB, which ended both replicas."""
    cache: Cache[NotebookRecord] = Cache()
    sts = statefulset(admitted())
    tracemalloc.start()
    try:
        for edit in range(1600):
            value = f"{edit:07}" + "v" * LARGEST
            made = notebook_record(annotated(value))
            of_set = statefulset_record(
                {
                    **sts,
                    "spec": {
                        **sts["spec"],
                        "template": {"metadata": {"annotations": {FILTER: value, REQUEST: value}}},
                    },
                }
            )
            assert made is not None
            assert of_set is not None
            cache.put(made)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(
        f"\n1,600 edits of {LARGEST} characters: {kept / 2**20:.1f} MiB kept, at most {peak / 2**20:.1f} MiB"
    )
    assert kept < 16 * 2**20
