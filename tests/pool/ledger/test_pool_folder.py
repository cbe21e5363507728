"""Where a user's pool is, and that it stays theirs."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.files.pool_folder import default_folder, ensure_folder, pool_folder
from bitfusion_pool.own_files import NotOurs
from tests.pool.holders import somebody
from tests.pool.pool_client import PoolClient

only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"BITFUSION_POOL_DIR": "/x/../y", "XDG_STATE_HOME": "/state"}, "/y"),
        ({"BITFUSION_POOL_DIR": "", "XDG_STATE_HOME": "/state"}, "/state/bitfusion-pool"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/"}, "/.local/state/bitfusion-pool"),
        ({"HOME": "/"}, "/.local/state/bitfusion-pool"),
    ],
)
def test_a_pool_is_below_the_users_state_folder(environ: dict[str, str], folder: str) -> None:
    assert pool_folder(environ) == folder


@only_root
def test_a_home_of_another_user_is_not_taken_for_ours(tmp_path: Path) -> None:
    os.chown(tmp_path, 54321, 54321)
    own = f"{pwd.getpwuid(os.geteuid()).pw_dir}/.local/state/bitfusion-pool"
    assert default_folder({"HOME": str(tmp_path)}) == default_folder({}) == own


def test_the_default_pool_is_closed_again_after_something_opened_it(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    folder = default_folder(environ)
    ensure_folder(folder, environ)
    os.chmod(folder, 0o2770)  # as the kubelet does with a volume that has an fsGroup
    assert ensure_folder(folder, environ) == folder
    assert os.stat(folder).st_mode & 0o777 == 0o700


def test_a_named_folder_that_others_may_write_to_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(NotOurs):
        ensure_folder(str(folder), {"BITFUSION_POOL_DIR": str(folder)})
    assert (folder.stat().st_mode & 0o777, list(folder.iterdir())) == (0o770, [])


@pytest.mark.parametrize("name", ["locks", "bells"])
def test_a_subfolder_that_a_cleaner_removed_is_made_again(client: PoolClient, name: str) -> None:
    with client.ledger() as ledger:
        held, lock = ledger.submit(GpuRequest(2), somebody())
        shutil.rmtree(client.folder / name)
        waiting = client.start("run", "-n", "1", "--", "true")
        client.until_waiting(1)
        ledger.release(held.entry_id)
        lock.close()
        _, err = waiting.communicate()
        assert waiting.returncode == 0, err
    assert (client.folder / name).stat().st_mode & 0o7777 == 0o700
    assert client.admin("reap").returncode == 0
