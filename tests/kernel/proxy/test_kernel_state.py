"""How each state of the lifecycle is called outside, and what else is told of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from bitfusion_client.kernel_state import states
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.pod_wait import PodWait
from bitfusion_kernel.processes.messages import LaunchedEvent
from bitfusion_kernel.proxy import kernel_state
from bitfusion_kernel.proxy.kernel_state import PUBLISHED, Asked, Facts
from bitfusion_kernel.proxy.lifecycle import KernelState
from tests.kernel.gpu.acquisitions import STAMP, asked, launched
from tests.kernel.proxy.parts import Parts
from tests.support.kernel_state_schema import FILE_SCHEMA, SCHEMA, check

DEVICES = json.dumps(
    [
        {"id": 0, "name": "V100", "memory_mib": 8080, "total_mib": 16160, "server": "a:1", "simulated": True},
        {"id": 1, "simulated": True},
    ]
)


def test_every_state_of_the_lifecycle_is_called_something_and_everything_is_some_state() -> None:
    assert set(PUBLISHED) == set(KernelState)
    facts = [Facts(*(bool(bits >> place & 1) for place in range(4))) for bits in range(16)]
    assert {called(each) for called in PUBLISHED.values() for each in facts} == set(states.STATES)
    assert SCHEMA["$defs"]["file"]["properties"]["state"]["enum"] == list(states.STATES)


@pytest.mark.parametrize(
    ("state", "facts", "called"),
    [
        (KernelState.NOT_REQUESTED, Facts(works=True), "none"),
        (KernelState.WAITING, Facts(), "waiting"),
        (KernelState.WAITING, Facts(granted=True), "starting"),  # a restart on a kept lease
        (KernelState.STARTING, Facts(granted=True), "starting"),
        (KernelState.RUNNING, Facts(granted=True), "idle"),
        (KernelState.RUNNING, Facts(granted=True, works=True), "running"),
        (KernelState.SHUTTING_DOWN, Facts(works=True), "releasing"),
        (KernelState.SHUTTING_DOWN, Facts(works=True, kept=True), "parked"),
        (KernelState.RELEASING, Facts(granted=True, works=True), "releasing"),
        (KernelState.CANCELLING, Facts(), "releasing"),
        (KernelState.OVER, Facts(), "releasing"),
        (KernelState.OVER, Facts(kept=True), "parked"),
        (KernelState.OVER, Facts(kept=True, exists=False), "none"),
    ],
)
def test_names(state: KernelState, facts: Facts, called: str) -> None:
    assert PUBLISHED[state](facts) == called


def test_a_name_follows_the_life_of_a_kernel() -> None:
    parts = Parts()

    def name(*, works: bool = False, kept: bool = False) -> str:
        return kernel_state.name(parts.lifecycle, works=works, kept=kept)

    assert name(works=True) == "none"
    parts.lifecycle.request()
    assert name() == "waiting"
    parts.lifecycle.launched(LaunchedEvent(10, 11, {}), time.monotonic())
    assert name() == "starting"
    parts.lifecycle.kernel_connected()
    assert (name(), name(works=True)) == ("idle", "running")
    parts.lifecycle.relay_shutdown()
    assert (name(), name(kept=True)) == ("releasing", "parked")
    parts.lifecycle.kernel_lost()
    assert (name(), name(kept=True)) == ("releasing", "parked")
    parts.lifecycle.wrapper_exited(0)
    assert (name(), name(kept=True)) == ("none", "none")


def test_where_the_wrapper_has_said_that_it_has_gpus_a_kernel_starts() -> None:
    parts = Parts()
    parts.lifecycle.request()
    parts.started[0].on_line(
        f"{STAMP} Requesting GPUs [0] with 8080 MiB of memory from server 0, with version 4...", 0
    )
    assert kernel_state.name(parts.lifecycle, works=False, kept=False) == "starting"


@pytest.mark.parametrize("state", states.STATES)
def test_what_the_file_tells_is_as_the_schema_says(state: str) -> None:
    told = kernel_state.headline(state, 1e9, "")
    check(told, FILE_SCHEMA)
    assert told["notebook"] is None
    assert told["idle_since"] == (1e9 if state == "idle" else None)


def told(acquisition: Any, request: Asked | None = None, *times: float | None) -> dict[str, Any]:
    """A whole state, which is as the schema says."""
    rest = kernel_state.details(acquisition, request, "5e", *(times or (None, None)))
    check(kernel_state.headline("idle", 1e9, "x.ipynb") | rest)
    return rest


def test_where_nothing_is_asked_for_the_next_request_is_told() -> None:
    assert told(None) == {
        "kernel_id": "5e",
        "request": None,
        "asked_at": None,
        "granted_at": None,
        "waited_s": None,
        "idle_release_at": None,
        "queue": None,
        "lease": None,
    }
    size = GpuRequest(2, 0.5, filters=(("model", "V100"),), servers=("a:1",), timeout=60.0)
    assert told(None, Asked(size, True, "what is left"))["request"] == {
        "text": "what is left",
        "what_is_left": True,
        "gpus": 2,
        "partial": 0.5,
        "filters": ["model=V100"],
        "servers": ["a:1"],
        "timeout": 60.0,
    }
    assert told(None, Asked(GpuRequest(1, memory_mib=100)))["request"] == {
        "text": "1 GPU × 100 MiB",
        "what_is_left": False,
        "gpus": 1,
        "memory_mib": 100,
    }


def test_while_it_waits_place_and_those_ahead_are_told() -> None:
    acquisition = asked()
    assert told(acquisition, Asked(acquisition.request), 1e9, None)["queue"] is None
    acquisition.on_line(f"{STAMP} Waiting for GPUs: position 2 of 3; held by ada; before you bob", 0.0)
    assert told(acquisition, Asked(acquisition.request), 1e9, None)["queue"] == {
        "of": "pool",
        "position": 2,
        "length": 3,
        "held_by": ["ada"],
        "before": ["bob"],
        "why": None,
    }
    acquisition.pod_wait = PodWait(takes_what_is_left=True)
    assert told(acquisition)["queue"]["of"] == "pod"


def test_what_it_holds_is_told_and_no_place_any_more() -> None:
    acquisition = launched(BITFUSION_POOL_DEVICES=DEVICES)
    acquisition.on_line(f"{STAMP} Waiting for GPUs: position 1 of 1; held by ada", 0.0)
    state = told(acquisition, Asked(acquisition.request), 1e9, 1e9 + 2.5)
    assert (state["waited_s"], state["queue"]) == (2.5, None)
    assert state["lease"] == {
        "devices": [
            {
                "id": 0,
                "name": "V100",
                "memory_mib": 8080,
                "total_mib": 16160,
                "server": "a:1",
                "simulated": True,
            },
            {
                "id": 1,
                "name": "GPU",
                "memory_mib": None,
                "total_mib": None,
                "server": None,
                "simulated": True,
            },
        ],
        "server": None,
        "simulated": True,
    }


def test_of_a_client_that_describes_no_devices_numbers_and_memory_are_told() -> None:
    nothing = {"name": None, "total_mib": None, "server": None, "simulated": False}
    assert told(launched())["lease"] == {
        "devices": [{"id": number, "memory_mib": 8080, **nothing} for number in (0, 1)],
        "server": None,
        "simulated": False,
    }


def test_a_clock_that_was_set_back_makes_no_wait_of_less_than_nothing() -> None:
    assert told(launched(), None, 1e9, 1e9 - 5)["waited_s"] == 0.0
