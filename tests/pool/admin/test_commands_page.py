"""What the pages of the pool's commands and of real cards have people type, and what is printed."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import Holder
from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.inventory.nvidia.fake_machine import ONE, TWO, FakeMachine, card
from tests.pool.pool_client import COMMAND, PoolClient
from tests.support.documents import ROOT
from tests.support.machine import scaled
from tests.support.run_blocks import ran

REFERENCE, CARDS = "docs/reference/pool-commands.md", "docs/how-to/nvidia-cards.md"
HOLDER = re.compile(r"(?<=│ )\d\d s │ it ends │ \w{16}")


def shown(page: str, before: str) -> tuple[str, str]:
    """The commands of a page that stand after some words, and what they print there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    after = text[text.index(before) :]
    found = re.search(r"(?s)```sh\n(.*?)```\n```text\n(.*?)```", after)
    assert found is not None
    return found[1], found[2]


def typed(client: PoolClient, folder: Path, commands: str) -> str:
    """What they print, where a person has only pip besides."""
    ran(commands)
    (folder / "pip").symlink_to("/bin/true")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env={**client.environ, "PATH": f"{Path(COMMAND).parent}:{folder}:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=scaled(30),
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.replace(str(client.folder), "/home/ada/.local/state/bitfusion-pool")


@pytest.mark.runs(f"{REFERENCE}#bitfusion-pool status")
def test_the_pools_state(client: PoolClient, ledger: Ledger, tmp_path: Path) -> None:
    commands, expected = shown(REFERENCE, "\n## bitfusion-pool status\n")
    _, lock = ledger.submit(GpuRequest(1, 0.5), Holder("digits.ipynb", "ada"))
    with closing(sqlite3.connect(client.folder / "ledger.db", isolation_level=None)) as db:
        db.execute("UPDATE entries SET granted = ?", (time.time() - 32,))
    printed = typed(client, tmp_path, commands)
    lock.close()
    assert HOLDER.sub("", printed) == HOLDER.sub("", expected)


@pytest.mark.runs(f"{REFERENCE}#nvidia-smi")
def test_what_a_program_sees(client: PoolClient, tmp_path: Path) -> None:
    commands, expected = shown(REFERENCE, "\n## nvidia-smi\n")
    assert expected in typed(client, tmp_path, commands)


@pytest.mark.runs(CARDS)
def test_a_pool_of_real_cards(client: PoolClient, tmp_path: Path) -> None:
    commands, expected = shown(CARDS, "")
    client.environ.update(FakeMachine(tmp_path, card(ONE), card(TWO, percent=None)).variables)
    assert typed(client, tmp_path, commands).startswith(expected.rstrip("…\n"))
