"""`bitfusion-pool reap`: leases of the dead, leftover files, a lease ended by force."""

from __future__ import annotations

import os

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient


def test_a_lease_without_lock_file_is_pointed_out_and_can_be_ended(client: PoolClient) -> None:
    with client.ledger() as ledger:
        entry, lock = ledger.submit(GpuRequest(2), somebody())
    lock.remove()
    assert (
        "\nThe lock files of these were deleted; nobody can tell whether they still run:\n"
        f"  {entry.entry_id}\n"
        "Once you know that they have ended: bitfusion-pool reap --force LEASE\n"
    ) in client.admin("status").stdout
    assert client.admin("reap", "--force", entry.entry_id).stdout == f"ended lease {entry.entry_id}\n"
    assert client.entries(HELD) == []
    again = client.admin("reap", "--force", entry.entry_id)
    assert (again.returncode, again.stderr) == (1, f"Error: there is no lease {entry.entry_id}\n")


def test_reap_takes_back_what_the_dead_left_and_tidies_the_folder(client: PoolClient) -> None:
    with client.ledger() as ledger:
        _, lock = ledger.submit(GpuRequest(2), somebody())
    lock.close()
    (client.folder / "locks" / "leftover").touch()
    os.mkfifo(client.folder / "bells" / "leftover")
    done = client.admin("reap")
    assert done.stdout == "released 1 leases and queue positions, removed 1 leftover lock files\n"
    assert os.listdir(client.folder / "locks") == os.listdir(client.folder / "bells") == []
