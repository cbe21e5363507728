"""The text of `%bitfusion status`: what the kernel asks for, holds and waits for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitfusion_client.clock_time import clock_time, elapsed_text
from bitfusion_client.errors import BitfusionError
from bitfusion_client.kernel_state import states
from bitfusion_kernel.gpu import simulated
from bitfusion_kernel.magic import pod_budget

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.magic.kernel_view import KernelView

Rows = list[tuple[str, str]]

IDLE_SHOWN_AFTER = 10.0
"""Seconds; who asks at once after a cell does not ask for that."""


def render(kernel: KernelView, now: float, clock: float, waiting: Sequence[str] = ()) -> str:
    """One line for each fact, `name   value`.

    Args:
        kernel: The kernel.
        now: `time.monotonic()`.
        clock: The same moment in seconds since the epoch.
        waiting: Who waits in the pool, as its client tells it; told of a kernel that holds GPUs.
    """
    notes = [("Note", line) for line in kernel.hints]
    if not kernel.running and _uses_embedded_pool(kernel):
        notes.append(("Note", f"{simulated.pool_note()}."))
    pod = _pod_rows(kernel, clock)
    others = [("" if number else "Others wait", who) for number, who in enumerate(waiting)]
    rows = [*_kernel_rows(kernel, now, clock), *(others if kernel.running else ())]
    return _aligned([*rows, *pod, ("Client", _client(kernel)), *notes])


def render_lease(acquisition: Acquisition, now: float) -> str:
    """The GPUs that `%bitfusion acquire` got, in the same form."""
    return _aligned(lease_rows(acquisition, now))


def _kernel_rows(kernel: KernelView, now: float, clock: float) -> Rows:
    acquisition = kernel.acquisition
    if acquisition is None:
        return [("Kernel", "no GPU; the next cell asks for one"), ("Request", _request(kernel))]
    state = kernel.state
    if state["state"] == states.RELEASING:
        what = "its position in the queue" if state["lease"] is None else "its GPU"
        return [("Kernel", f"gives back {what}"), ("Request", acquisition.asked_for)]
    if kernel.running:
        outage = _outage_rows(acquisition, clock)
        rows = [("Kernel", _runs_on(acquisition)), *outage, *lease_rows(acquisition, now)]
        idle = kernel.idle_status()
        return [*rows, *([("Idle", idle)] if idle else _idle_rows(state["idle_since"], clock))]
    rows = [
        ("Kernel", "starting" if acquisition.granted else f"waiting for a GPU at {clock_time(clock, clock)}"),
        ("Request", acquisition.asked_for),
    ]
    queue = acquisition.queue
    if queue is not None:
        which = "among the notebooks of this pod" if acquisition.waits_for_pod else "in the queue"
        if queue.standing:
            rows.append(("Position", f"{queue.queue_position} of {queue.queue_length} {which}"))
    if not acquisition.granted:
        if queue is not None:
            if not acquisition.waits_for_pod:  # else the rows about the pod name them
                rows += [("Held by", who) for who in queue.held_by]
                rows += [("Before you", who) for who in queue.before]
            rows += [("Why", queue.why)] if queue.why else []
        rows += _outage_rows(acquisition, clock)
    waited = now - acquisition.asked_at
    rows.append(("Waited", f"{elapsed_text(waited)}, since {clock_time(clock - waited, clock)}"))
    return rows


def _idle_rows(since: float | None, clock: float) -> Rows:
    """Since when no code runs, once that is a while."""
    if since is None or clock - since < IDLE_SHOWN_AFTER:
        return []
    return [("Idle for", f"{elapsed_text(clock - since)}, since {clock_time(since, clock)}")]


def _pod_rows(kernel: KernelView, clock: float) -> Rows:
    """The budget of the pod, and why its other kernels are not counted if they are not."""
    try:
        standing = kernel.pod_budget
    except BitfusionError:
        return []  # the row of the request says what is wrong
    rows = [] if standing is None else pod_budget.rows(standing, clock)
    wait = None if kernel.acquisition is None else kernel.acquisition.pod_wait
    if wait is not None and wait.not_counted:
        rows.append(("Note", f"The other kernels of this pod are not counted: {wait.not_counted}"))
    return rows


def _outage_rows(acquisition: Acquisition, clock: float) -> Rows:
    outage = acquisition.outage
    if outage is None:
        return []
    end = outage.end(clock)
    return [("Pool", outage.headline(clock)), *([("", end)] if end else ())]


def _runs_on(acquisition: Acquisition) -> str:
    if not acquisition.simulated:
        return "running on its GPU"
    which = "its GPU is" if len(acquisition.devices) == 1 else "its GPUs are"
    return f"running; {which} simulated, so the CPU computes"


def lease_rows(acquisition: Acquisition, now: float) -> Rows:
    """Request, GPUs, server, lock file and age of a lease, as far as the bitfusion client has told them."""
    rows = [("Request", acquisition.request.describe())]
    if acquisition.devices:
        rows += [
            ("" if number else "GPU", device.describe()) for number, device in enumerate(acquisition.devices)
        ]
    elif acquisition.gpu_ids:
        numbers = ", ".join(str(number) for number in acquisition.gpu_ids)
        memory = f" – {acquisition.memory_mib} MiB each" if acquisition.memory_mib else ""
        rows.append(("GPU", numbers + memory))
    if acquisition.server:
        rows.append(("Server", acquisition.server))
    if acquisition.lock_file:
        rows.append(("Lock file", acquisition.lock_file))
    if acquisition.held_since is not None:
        rows.append(("Held for", elapsed_text(now - acquisition.held_since)))
    return rows


def _request(kernel: KernelView) -> str:
    try:
        asked = kernel.request.describe()
        return f"what is left of {asked}" if kernel.takes_what_is_left else asked
    except BitfusionError as error:
        return error.user_message


def _client(kernel: KernelView) -> str:
    try:
        client = kernel.find_client()
    except BitfusionError as error:
        return error.user_message.splitlines()[0]
    return client.path + (" (embedded pool on this machine)" if client.kind == "embedded" else "")


def _uses_embedded_pool(kernel: KernelView) -> bool:
    try:
        return kernel.find_client().is_embedded_pool
    except BitfusionError:
        return False


def _aligned(rows: Rows) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}   {value}" for name, value in rows)
