"""Every state of the kernel × every event; the table stands here once more, so that no slip changes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bitfusion_client.errors import ClientNotFound
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.processes.messages import LaunchedEvent
from bitfusion_kernel.proxy.lifecycle import IllegalTransition, KernelLifecycle, KernelState

LAUNCHED = LaunchedEvent(launcher_pid=10, kernel_pid=11, environment={})

EVENTS: dict[str, Callable[[KernelLifecycle], None]] = {
    "request": lambda kernel: kernel.request(),
    "go_on": lambda kernel: kernel.go_on(Acquisition(1, GpuRequest(), 0.0), wanted=True),
    "launched": lambda kernel: kernel.launched(LAUNCHED, 1.0),
    "connected": lambda kernel: kernel.kernel_connected(),
    "cancel": lambda kernel: kernel.cancel(),
    "release": lambda kernel: kernel.release(),
    "relay_shutdown": lambda kernel: kernel.relay_shutdown(),
    "wrapper_exited": lambda kernel: kernel.wrapper_exited(1),
    "kernel_lost": lambda kernel: kernel.kernel_lost(),
    "kernel_exited": lambda kernel: kernel.kernel_exited(1),
    "end": lambda kernel: kernel.end(5),
}
WAYS: dict[KernelState, tuple[str, ...]] = {
    KernelState.NOT_REQUESTED: (),
    KernelState.WAITING: ("request",),
    KernelState.STARTING: ("request", "launched"),
    KernelState.RUNNING: ("request", "launched", "connected"),
    KernelState.SHUTTING_DOWN: ("request", "launched", "connected", "relay_shutdown"),
    KernelState.RELEASING: ("request", "launched", "connected", "release"),
    KernelState.CANCELLING: ("request", "cancel"),
    KernelState.OVER: ("request", "launched", "connected", "kernel_lost"),
}


def _in(state: KernelState) -> KernelLifecycle:
    kernel = KernelLifecycle(lambda: Acquisition(1, GpuRequest(), 0.0))
    for event in WAYS[state]:
        EVENTS[event](kernel)
    assert kernel.state is state
    return kernel


def _state(kernel: KernelLifecycle) -> KernelState:
    return kernel.state  # through a function: the type checker takes a property for unchanged


TABLE = """
state          request  go_on    launched  connected  cancel      release    relay_shutdown  wrapper_exited  kernel_lost
NOT_REQUESTED  WAITING  WAITING  =         error      error       error      error           =               error
WAITING        =        error    STARTING  error      CANCELLING  error      error           NOT_REQUESTED   error
STARTING       =        error    =         RUNNING    CANCELLING  error      error           NOT_REQUESTED   error
RUNNING        =        error    =         error      error       RELEASING  SHUTTING_DOWN   OVER            OVER
SHUTTING_DOWN  =        error    =         error      error       error      =               OVER            OVER
RELEASING      =        error    =         error      error       =          error           NOT_REQUESTED   error
CANCELLING     =        error    =         error      =           error      error           NOT_REQUESTED   error
OVER           =        error    =         error      error       error      error           =               =
"""  # noqa: E501 - one row a line


def _documented() -> dict[tuple[KernelState, str], str]:
    """The rows of the table, and the two events that change nothing in it or end everything."""
    (_, *events), *rows = map(str.split, TABLE.strip().splitlines())
    table: dict[tuple[KernelState, str], str] = {}
    for name, *cells in rows:
        table |= {(KernelState[name], event): cell for event, cell in zip(events, cells, strict=True)}
    for state in KernelState:
        table[state, "kernel_exited"] = "="
        table[state, "end"] = "OVER"
    return table


DOCUMENTED = _documented()


def test_the_table_is_complete() -> None:
    assert set(DOCUMENTED) == {(state, event) for state in KernelState for event in EVENTS}


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [(*key, outcome) for key, outcome in DOCUMENTED.items()],
    ids=lambda value: value.name if isinstance(value, KernelState) else str(value),
)
def test_each_event_in_each_state(state: KernelState, event: str, expected: str) -> None:
    kernel = _in(state)
    if expected == "error":
        with pytest.raises(IllegalTransition, match=state.value):
            EVENTS[event](kernel)
        assert kernel.state is state
    else:
        EVENTS[event](kernel)
        assert kernel.state is (state if expected == "=" else KernelState[expected])


@pytest.mark.parametrize("state", list(KernelState))
def test_questions(state: KernelState) -> None:
    kernel = _in(state)
    connected = state in (KernelState.RUNNING, KernelState.SHUTTING_DOWN)
    waits = state in (KernelState.WAITING, KernelState.STARTING, KernelState.CANCELLING)
    assert kernel.connected is connected
    assert kernel.connected_soon is (connected or state is KernelState.STARTING)
    assert kernel.cancellable is waits
    assert kernel.over is (state is KernelState.OVER)
    assert (kernel.exit_status is None) is (state is not KernelState.OVER)
    assert kernel.requested is (state is not KernelState.NOT_REQUESTED)


def test_a_request_that_fails_changes_nothing_and_can_be_made_again() -> None:
    errors = [ClientNotFound(("/no/such",))]

    def start() -> Acquisition:
        if errors:
            raise errors.pop()
        return Acquisition(1, GpuRequest(), 0.0)

    kernel = KernelLifecycle(start)
    with pytest.raises(ClientNotFound):
        kernel.request()
    assert _state(kernel) is KernelState.NOT_REQUESTED
    kernel.request()
    assert _state(kernel) is KernelState.WAITING


def test_an_early_request_that_fails_is_reported_once_by_the_next() -> None:
    errors = [ClientNotFound(("/no/such",))]

    def start() -> Acquisition:
        if errors:
            raise errors.pop()
        return Acquisition(1, GpuRequest(), 0.0)

    kernel = KernelLifecycle(start)
    kernel.request_early()
    assert _state(kernel) is KernelState.NOT_REQUESTED
    with pytest.raises(ClientNotFound):
        kernel.request()
    kernel.request()
    assert _state(kernel) is KernelState.WAITING


def test_an_early_request_that_works_is_the_only_one() -> None:
    started: list[Acquisition] = []

    def start() -> Acquisition:
        started.append(Acquisition(len(started) + 1, GpuRequest(), 0.0))
        return started[-1]

    kernel = KernelLifecycle(start)
    kernel.request_early()
    kernel.request()
    assert len(started) == 1


def test_a_wait_that_ends_leaves_its_attempt_for_the_log() -> None:
    kernel = _in(KernelState.STARTING)
    attempt = kernel.acquisition
    kernel.wrapper_exited(3)
    assert kernel.acquisition is None
    assert kernel.last_acquisition is attempt
    assert attempt is not None
    assert attempt.wrapper_status == 3


@pytest.mark.parametrize(
    ("state", "kernel_status", "exit_status"),
    [
        (KernelState.RUNNING, -9, 1),
        (KernelState.RUNNING, 3, 1),
        (KernelState.RUNNING, None, 1),
        (KernelState.RUNNING, 0, 0),
        (KernelState.SHUTTING_DOWN, -9, 0),
    ],
)
@pytest.mark.parametrize("event", ["wrapper_exited", "kernel_lost"])
def test_only_an_unexpected_end_of_the_kernel_is_a_failure(
    state: KernelState, kernel_status: int | None, exit_status: int, event: str
) -> None:
    kernel = _in(state)
    if kernel_status is not None:
        kernel.kernel_exited(kernel_status)
    EVENTS[event](kernel)
    assert kernel.exit_status == exit_status


def test_the_first_exit_status_stands() -> None:
    kernel = _in(KernelState.WAITING)
    kernel.end(129)
    kernel.end(0)
    assert kernel.exit_status == 129


def test_a_grant_in_the_moment_of_cancelling_is_recorded_and_starts_nothing() -> None:
    kernel = _in(KernelState.CANCELLING)
    kernel.launched(LAUNCHED, 1.0)
    assert kernel.state is KernelState.CANCELLING
    assert kernel.acquisition is not None
    assert kernel.acquisition.kernel_pid == 11
