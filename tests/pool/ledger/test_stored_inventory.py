"""The inventory in the ledger: it follows pool.toml while leases and waiters stay."""

from __future__ import annotations

import pytest

from bitfusion_client.errors import NeverSatisfiable
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.servers import default_servers
from bitfusion_pool.ledger.entries import HELD
from bitfusion_pool.ledger.storage.stored_inventory import StoredInventory
from bitfusion_pool.ledger.waiting import wait_for_turn
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient


def test_without_a_file_the_pool_is_the_default_one(client: PoolClient) -> None:
    with client.ledger() as ledger:
        assert ledger.servers == default_servers()


def test_who_opens_a_new_pool_while_another_process_writes_it_sees_its_gpus(
    client: PoolClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is through between the first question of this one and the second."""
    asked = StoredInventory.configuration_version

    def another_is_faster(inventory: StoredInventory) -> str | None:
        monkeypatch.setattr(StoredInventory, "configuration_version", asked)
        client.ledger().close()
        return inventory.configuration_version

    monkeypatch.setattr(StoredInventory, "configuration_version", property(another_is_faster))
    with client.ledger() as ledger:
        assert ledger.servers == default_servers()


def test_a_changed_file_is_followed_and_leases_stay(client: PoolClient) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
        client.configure("[[servers]]\n[[servers.devices]]\nmemory_mib = 20000\ncount = 3\n")
        with client.ledger() as later:
            assert later.free_memory() == {
                ("127.0.0.1:56001", 0): 3840,
                ("127.0.0.1:56001", 1): 3840,
                ("127.0.0.1:56001", 2): 20000,
            }
            (client.folder / "pool.toml").unlink()
            with client.ledger() as without:
                assert without.servers == later.servers
        ledger.release(entry.entry_id)
        lock.close()


def test_a_server_that_is_added_serves_who_waits(client: PoolClient) -> None:
    with client.ledger() as ledger:
        first, lock = ledger.submit(GpuRequest(2), somebody())
        second, other = ledger.submit(GpuRequest(2), somebody())
        client.configure('[[servers]]\nname = "new"\naddress = "10.0.0.2"\n[[servers.devices]]\ncount = 2\n')
        with client.ledger() as later:
            found = later.entry(second.entry_id)
            assert found is not None
            assert found.state == HELD
            for entry_id in (first.entry_id, second.entry_id):
                later.release(entry_id)
        lock.close()
        other.close()


def test_a_waiter_whom_the_changed_pool_can_never_serve_is_an_error(client: PoolClient) -> None:
    with client.ledger() as ledger:
        held, lock = ledger.submit(GpuRequest(2), somebody())
        waiting, other = ledger.submit(GpuRequest(2), somebody())
        client.configure("[[servers]]\n[[servers.devices]]\n")
        client.ledger().close()
        with pytest.raises(NeverSatisfiable) as caught:
            wait_for_turn(ledger, waiting, 10)
        assert str(caught.value) == (
            "no server can satisfy the request: 2 GPUs with 16160 MiB of memory each; "
            "the largest server has 1 GPUs with 16160 MiB"
        )
        ledger.release(held.entry_id)
        lock.close()
        other.close()


def test_a_waiter_grants_by_the_pool_as_it_is_now(client: PoolClient) -> None:
    with client.ledger() as ledger:
        held, lock = ledger.submit(GpuRequest(2), somebody())
        waiting, other = ledger.submit(GpuRequest(1), somebody())
        client.configure("[[servers]]\n[[servers.devices]]\nmemory_mib = 9000\n")
        client.ledger().close()
        lock.close()
        granted = wait_for_turn(ledger, waiting, 10)
        assert [share.memory_mib for share in granted.shares] == [9000]
        assert ledger.entry(held.entry_id) is None
        ledger.release(granted.entry_id)
        other.close()
