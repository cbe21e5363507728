"""What clients say of the kernels under their leases: noted without an answer, whatever it is."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import Entry
from bitfusion_pool.messages.from_client import Look, Report
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient
from tests.support.machine import scaled
from tests.support.waiting import wait_until


@pytest.fixture
def holder(service: RunningService) -> Iterator[SocketClient]:
    with service.client() as client:
        yield client


@pytest.fixture
def granted(holder: SocketClient) -> Granted:
    return holder.acquire(GpuRequest(2))


def said(granted: Granted, **more: object) -> Report:
    values = {"state": "idle", "for_s": 5.0, "idle_s": 60.0, "notebook": "digits.ipynb", **more}
    return Report(granted.entry.entry_id, granted.secret, **values)  # type: ignore[arg-type]


def shown(holder: SocketClient) -> Entry:
    """The lease as others see it, up to half a second ago; nothing but this question is answered."""
    (entry,) = holder.ask(Look(), PoolSnapshot).entries
    return entry


def test_what_a_client_says_is_what_others_see(
    holder: SocketClient, granted: Granted, service: RunningService
) -> None:
    said_at = time.time()
    holder.send(said(granted))
    wait_until(lambda: shown(holder).activity is not None)
    activity = shown(holder).activity
    assert activity is not None
    assert (activity.state, activity.notebook) == ("idle", "digits.ipynb")
    assert activity.idle_since is not None
    for since, age_s in ((activity.since, 5), (activity.idle_since, 60)):
        assert said_at - 1 <= since + age_s <= time.time() + 1
    holder.send(said(granted, state="running"))
    wait_until(lambda: (found := shown(holder).activity) is not None and found.idle_since is None)
    holder.send(said(granted, state=""))
    wait_until(lambda: shown(holder).activity is None)
    holder.send(said(granted))
    holder.release(granted)
    holder.send(said(granted))  # of a lease that is over
    assert holder.ask(Look(), PoolSnapshot).entries == ()
    assert service.entries() == []


def test_nobody_says_anything_of_others(
    holder: SocketClient, granted: Granted, service: RunningService
) -> None:
    with service.client() as other:
        lease = granted.entry.entry_id
        for secret in ("", "0" * 32, "\0"):
            other.send(Report(lease, secret, "idle", 5.0, 60.0, "mine"))
        other.send(Report("x" * 10_000, granted.secret, "idle"))
        time.sleep(0.6)  # by then no snapshot from before is shown
        assert shown(other).activity is None


@pytest.mark.parametrize(
    ("more", "notebook"),
    [
        ({"notebook": "\x1b[2J\n" * 1000}, "\\x1b[2J " * 7 + "\\x1…"),
        ({"notebook": "│" * 2000}, "│" * 59 + "…"),
        ({"for_s": -1e300, "idle_s": 1e300}, None),
        ({"for_s": 1e300}, None),
        ({"state": "sleeping"}, None),
        ({"state": "idle" * 1000}, None),
    ],
    ids=lambda value: f"{value}"[:20] if isinstance(value, dict) else "",
)
def test_no_text_and_no_time_breaks_what_others_see(
    holder: SocketClient, granted: Granted, more: dict[str, object], notebook: str | None
) -> None:
    holder.send(said(granted, **more))
    time.sleep(0.6)
    activity = shown(holder).activity
    assert (None if activity is None else activity.notebook) == notebook


def test_a_flood_of_reports_keeps_nobody_waiting(
    holder: SocketClient, granted: Granted, service: RunningService
) -> None:
    with service.client() as other:
        for number in range(400):
            holder.send(said(granted, notebook=str(number)))
        begin = time.monotonic()
        other.ask(Look(), PoolSnapshot)
        assert time.monotonic() - begin < scaled(2.0)
        wait_until(lambda: (found := shown(other).activity) is not None and found.notebook == "399")


def test_a_restart_of_the_service_forgets_nothing(
    holder: SocketClient, granted: Granted, service: RunningService
) -> None:
    holder.send(said(granted))
    wait_until(lambda: shown(holder).activity is not None)
    service.end()
    service.start()
    with service.client() as other:
        activity = shown(other).activity
        assert activity is not None
        assert activity.notebook == "digits.ipynb"
