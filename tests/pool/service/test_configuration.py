"""pool.toml is read again while the service runs: leases stay, and a wrong file changes nothing."""

from __future__ import annotations

import os
import signal
import time

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD, RESERVED
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, Look, Resume
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient
from tests.support.waiting import wait_until

ONE = '[[servers]]\nname = "local"\n[[servers.devices]]\n'
THREE = ONE + "count = 3\n"
ELSEWHERE = '[[servers]]\nname = "new"\naddress = "10.0.0.2"\n[[servers.devices]]\ncount = 2\n'
BOTH = GpuRequest(2)


def configure(service: RunningService, text: str) -> None:
    """As an editor does: all at once."""
    draft = service.folder / "draft"
    draft.write_text(text)
    draft.rename(service.folder / "pool.toml")


def free(service: RunningService) -> dict[tuple[str, int], int]:
    with service.client() as client:
        snapshot = client.ask(Look(), PoolSnapshot)
    return {(share.server, share.number): share.memory_mib for share in snapshot.free}


def until_gpus(service: RunningService, *keys: str) -> None:
    wait_until(lambda: [key for key, _ in free(service)] == list(keys), lambda: (service.log, free(service)))


def told(service: RunningService, message: str) -> list[dict[str, object]]:
    return [line for line in service.log if line["message"] == message]


def test_a_changed_file_is_noticed_and_serves_who_waits(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH)
        waiter.wait(GpuRequest(1))
        configure(service, THREE)
        assert waiter.expect(Granted).entry.shares[0].number == 2
        (line,) = wait_until(lambda: told(service, "pool.toml read again"), lambda: service.log)
        assert (line["servers"], line["gpus"]) == (1, 3)
    with service.client() as newcomer:
        assert newcomer.ask(Look(), PoolSnapshot).servers[0].devices[2].number == 2


def test_leases_on_devices_that_vanish_stay_and_are_given_to_nobody_else(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter:
        granted = holder.acquire(BOTH)
        reserved_on = GpuRequest(1, 0.5)
        configure(service, ELSEWHERE)
        until_gpus(service, "10.0.0.2:56001", "10.0.0.2:56001")
        assert [entry.entry_id for entry in service.entries()] == [granted.entry.entry_id]
        assert waiter.acquire(reserved_on).server.key == "10.0.0.2:56001"
        # they come back, and are still held
        configure(service, ONE)
        until_gpus(service, "127.0.0.1:56001")
        assert free(service) == {("127.0.0.1:56001", 0): 0}
        with service.client() as other:
            other.wait(GpuRequest(1))
            holder.release(granted)
            assert other.expect(Granted).server.key == "127.0.0.1:56001"


def test_one_comes_back_to_a_lease_whose_server_is_gone(service: RunningService) -> None:
    with service.client() as client:
        granted = client.acquire(BOTH)
        reserved = None
        configure(service, ELSEWHERE)
        until_gpus(service, "10.0.0.2:56001", "10.0.0.2:56001")
        again = client.ask(Resume(granted.entry.entry_id, granted.secret), Granted)
        assert (again.server.key, [device.number for device in again.server.devices]) == (
            "127.0.0.1:56001",
            [0, 1],
        )
        assert again.server.devices[0].shown_name == "GPU that the pool no longer has (simulated)"
        reserved = client.ask(Acquire(BOTH, kind=RESERVED), Granted)
        configure(service, ONE)
        until_gpus(service, "127.0.0.1:56001")
        assert client.ask(Resume(reserved.entry.entry_id, reserved.secret), Granted).entry.shares


def test_a_request_that_no_server_can_serve_any_more_is_refused(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH)
        waiter.wait(BOTH)
        configure(service, ONE)
        refused = waiter.expect(Refused)
        assert refused.code == refusal_codes.NEVER
        assert refused.message == (
            "no server can satisfy the request: 2 GPUs with 16160 MiB of memory each; "
            "the largest server has 1 GPUs with 16160 MiB"
        )
        assert [entry.state for entry in service.until_entries(1)] == [HELD]
        waiter.wait(GpuRequest(1))  # its connection goes on


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[servers]", "pool configuration {path} is wrong: "),
        ("[[servers]]\nport = 0\n", "pool configuration {path} is wrong: "),
        (
            "\n".join(
                f'[[servers]]\naddress = "10.0.{n}.1"\n[[servers.devices]]\ncount = 256' for n in range(9)
            ),
            "the pool has more servers and GPUs than fit in a message",
        ),
    ],
    ids=["no TOML", "a wrong value", "too many"],
)
def test_a_wrong_file_is_logged_once_and_changes_nothing(
    service: RunningService, text: str, why: str
) -> None:
    before = free(service)
    configure(service, text)
    what = "pool.toml is not followed, the pool stays as it was"
    (line,) = wait_until(lambda: told(service, what), lambda: service.log)
    assert str(line["reason"]).startswith(why.format(path=service.folder / "pool.toml"))
    assert free(service) == before
    os.kill(service.pid, signal.SIGHUP)  # who asks is told again
    wait_until(lambda: len(told(service, what)) == 2, lambda: service.log)
    time.sleep(1.2)  # longer than between two looks
    assert len(told(service, what)) == 2
    configure(service, THREE)
    until_gpus(service, *["127.0.0.1:56001"] * 3)


def test_something_else_in_its_place_keeps_nobody_waiting(service: RunningService) -> None:
    os.mkfifo(service.folder / "pool.toml")
    (line,) = wait_until(
        lambda: told(service, "pool.toml is not followed, the pool stays as it was"), lambda: service.log
    )
    assert "is a named pipe" in str(line["reason"])
    with service.client() as client:
        client.acquire(BOTH)


def test_a_reload_says_that_nothing_has_changed(service: RunningService) -> None:
    os.kill(service.pid, signal.SIGHUP)
    (line,) = wait_until(lambda: told(service, "pool.toml has not changed"), lambda: service.log)
    assert (line["servers"], line["gpus"]) == (1, 2)
    with service.client() as client:
        client.acquire(BOTH)


def test_emulation_settings_are_followed(service: RunningService) -> None:
    with service.client() as client:
        assert "when_full=wait" in client.ask(Look(), PoolSnapshot).emulation
        configure(service, ONE + '[manners]\nwhen_full = "fail"\n')
        wait_until(lambda: "when_full=fail" in client.ask(Look(), PoolSnapshot).emulation, "the settings")
    with SocketClient(service.socket) as newcomer:
        assert "when_full=fail" in newcomer.hello().emulation
