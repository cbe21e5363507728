"""What a Notebook asks for, whatever the shape of the object."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.notebook_changes import notebook_changes
from bitfusion_client.kubernetes.notebook_request import has_size, notebook_image, notebook_request
from bitfusion_client.request.gpu_request import GpuRequest
from tests.support.notebooks import bare_notebook, container

AMOUNT = "bitfusion.io/gpu-amount"
HALF = "bitfusion.io/gpu-50"
UNITS = "bitfusion.io/gpu"
REQUEST = "bitfusion.io/request"
TWO_ASK = 'but "nb" also requests GPUs; only one container of a notebook can'


@pytest.mark.parametrize(
    ("object_", "request_"),
    [
        (bare_notebook(container(limits={AMOUNT: "2"})), GpuRequest(2)),
        (bare_notebook(container(limits={"cpu": "1", HALF: "1"})), GpuRequest(1, 0.5)),
        (bare_notebook(container(), container("side", {HALF: "1"})), GpuRequest(1, 0.5)),
        (bare_notebook({"resources": {"limits": {HALF: "1"}, "requests": {HALF: 1}}}), GpuRequest(1, 0.5)),
        (
            bare_notebook(container(limits={AMOUNT: "2"}), annotations={REQUEST: "-n 1 -p 0.25"}),
            GpuRequest(1, 0.25),
        ),
        (bare_notebook(container(), annotations={REQUEST: "-n 3"}), GpuRequest(3)),
        (bare_notebook(container(limits={"nvidia.com/gpu": "1"})), None),
        (bare_notebook(container(limits={"bitfusion.io/fpga": "100"})), None),
        (bare_notebook(container()), None),
        (bare_notebook(), None),
        # objects that the API would not let in ask for nothing
        ({}, None),
        ({"metadata": None, "spec": None}, None),
        ({"metadata": [], "spec": {"template": []}}, None),
        ({"spec": {"template": {"spec": {"containers": {"a": 1}}}}}, None),
        ({"spec": {"template": {"spec": {"containers": [None, 1, "x", {}]}}}}, None),
        (bare_notebook({"name": "nb", "resources": None}, {"resources": {"limits": None}}), None),
        (bare_notebook({"name": "nb", "resources": {"limits": [AMOUNT]}}), None),
    ],
)
def test_what_a_notebook_asks_for(object_: Any, request_: GpuRequest | None) -> None:
    assert notebook_request(object_) == request_


@pytest.mark.parametrize(
    ("object_", "message"),
    [
        (
            bare_notebook(container(limits={AMOUNT: "1.5"})),
            f'Invalid value "1.5" for {AMOUNT}: must be a whole number from 1 to 1024',
        ),
        (
            bare_notebook(container(limits={HALF: "2"}), container("side", {AMOUNT: "1"})),
            f'{AMOUNT} is requested by container "side", {TWO_ASK}',
        ),
        (
            bare_notebook(
                container(limits={HALF: "2"}), container("side", {AMOUNT: "1"}), annotations={REQUEST: "-n 1"}
            ),
            f'{AMOUNT} is requested by container "side", {TWO_ASK}',
        ),
        (
            bare_notebook(container(), init_containers=[container("prepare", {HALF: "1"})]),
            f'{HALF} is requested by init container "prepare"; '
            "only the notebook's own container can have GPUs",
        ),
        (
            bare_notebook({"resources": {"limits": {AMOUNT: "1"}, "requests": {HALF: "1"}}}),
            f"{HALF} is in the requests but not in the limits, so no pod can be created",
        ),
        (
            bare_notebook({"resources": {"limits": {HALF: "1"}, "requests": {HALF: "2"}}}),
            f'Invalid value "2" for {HALF} in the requests: must be what the limits have, "1"; '
            "leave it out of the requests",
        ),
        (
            bare_notebook(container(), annotations={REQUEST: "-n 0"}),
            f'Invalid value "-n 0" for {REQUEST}: -n "0" must be a whole number from 1 to 1024',
        ),
        (
            bare_notebook(container(), annotations={REQUEST: None}),
            f'Invalid value "null" for {REQUEST}: must be text',
        ),
    ],
)
def test_what_a_notebook_cannot_ask_for(object_: Any, message: str) -> None:
    for function in (notebook_request, notebook_changes):
        with pytest.raises(InvalidRequest) as caught:
            function(object_)
        assert caught.value.user_message == message


@pytest.mark.parametrize("none", ["0", 0, "0m", "0e3", "0Ki"])
def test_no_units_are_nothing_wherever_they_stand(none: Any) -> None:
    units = {UNITS: none}
    alone = {"name": "nb", "resources": {"limits": units, "requests": units}}
    asks = {"name": "nb", "resources": {"limits": {**units, HALF: "1"}, "requests": {**units, HALF: "1"}}}
    others = [container("side", units), {"name": "mesh", "resources": {"requests": units}}]
    assert notebook_request(bare_notebook(alone, *others, init_containers=others)) is None
    assert notebook_request(bare_notebook(asks, *others, init_containers=others)) == GpuRequest(partial=0.5)


def test_some_units_are_nobodys_request() -> None:
    with pytest.raises(InvalidRequest, match="is what the cluster counts"):
        notebook_request(bare_notebook(container(limits={UNITS: "1m"})))


def test_a_request_without_end_is_not_read() -> None:
    with pytest.raises(InvalidRequest) as caught:
        notebook_request(bare_notebook(container(), annotations={REQUEST: "-n 1 " * 50_000}))
    assert caught.value.user_message.endswith(f'…" for {REQUEST}: must be at most 4096 characters')
    assert len(caught.value.user_message) < 160


def test_the_image_is_that_of_the_container_that_asks_or_of_the_notebooks_own() -> None:
    side = container("side", {HALF: "1"}, "side:1")
    assert notebook_image(bare_notebook(container(image="main:1"), side)) == "side:1"
    by_annotation = bare_notebook(container("side", None, "side:1"), container(image="main:1"))
    assert notebook_image(by_annotation) == "main:1"
    by_annotation["metadata"]["name"] = "other"
    assert notebook_image(by_annotation) == "side:1"
    assert notebook_image({}) is None


def test_a_size_in_the_limits() -> None:
    assert has_size(bare_notebook(container(limits={"cpu": "1", HALF: "x"})))
    assert not has_size(bare_notebook(container(limits={"cpu": "1"})))
