"""A whole kernel whose `bitfusion run` says that its pool is out of reach, is back, or was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.command.client_output import format_back_in_reach, format_out_of_reach, format_pool_lost
from bitfusion_kernel.protocol.wire import Message
from tests.kernel.proxy_harness import ProxyHarness, StartProxy, kinds
from tests.support.machine import scaled

POOL = "gpu.example:56001"
RUN = f"""
child = subprocess.Popen(words[words.index("--") + 1 :])

def say(name, line):
    while not os.path.exists(os.path.join(os.environ["SAID_IN"], name)):
        if child.poll() is not None:
            sys.exit(child.returncode)
        time.sleep(0.01)
    print(line, file=sys.stderr, flush=True)

say("away", "[WARN] 2026-11-21T00:00:00Z {format_out_of_reach(POOL, "no answer for 5 s", 85)}")
say("back", "[INFO] 2026-11-21T00:00:42Z {format_back_in_reach(POOL, 42)}")
say("away again", "[WARN] 2026-11-21T00:01:00Z {format_out_of_reach(POOL, "Connection refused", 12)}")
say("lost", "")
child.terminate()
child.wait()
print("Error: {format_pool_lost(POOL, 12)}", file=sys.stderr, flush=True)
sys.exit(1)
"""


SET_UP = """
import os, time

def tell(name):
    open(os.path.join(os.environ["SAID_IN"], name), "w").close()

def until(name):
    while not os.path.exists(os.path.join(os.environ["SAID_IN"], name)):
        time.sleep(0.01)
"""


@pytest.fixture
def running(proxy: StartProxy, tmp_path: Path) -> ProxyHarness:
    """A proxy whose kernel has run a first cell; its `bitfusion run` speaks when such files are made."""
    harness = proxy(RUN, SAID_IN=str(tmp_path))
    assert harness.reply(harness.cell(SET_UP))["status"] == "ok"
    return harness


def shown(harness: ProxyHarness, request: str, kind: str) -> Message:
    return harness.on_iopub(lambda m: m.type == kind and m.parent_header.get("msg_id") == request)


def test_a_cell_that_runs_shows_it_between_its_own_output_and_ends_as_ever(
    running: ProxyHarness, tmp_path: Path
) -> None:
    cell = running.cell("print('before', flush=True); until('go on'); print('after')")
    shown(running, cell, "stream")
    (tmp_path / "away").touch()
    first = shown(running, cell, "display_data")
    assert first.content["data"]["text/plain"].startswith(f"The GPU pool {POOL} is out of reach since ")
    (tmp_path / "back").touch()
    second = shown(running, cell, "update_display_data")
    assert second.content["transient"] == first.content["transient"]
    assert second.content["data"]["text/plain"].endswith(": nothing was lost")
    (tmp_path / "go on").touch()
    assert running.reply(cell)["status"] == "ok"
    seen = kinds(running.until_idle(cell))
    assert seen == [
        *("busy", "execute_input", "stream", "display_data", "update_display_data", "stream", "idle"),
    ]
    rows = running.printed(running.cell("%bitfusion")).splitlines()
    assert rows[1].startswith(f"Pool       The GPU pool {POOL} was out of reach from ")
    assert "Pool gpu.example:56001 is back after 42 s" in running.printed(running.cell("%bitfusion log"))


def test_a_kernel_that_is_ended_for_it_says_so_in_the_cell_that_ran(running: ProxyHarness) -> None:
    code = "tell('away'); tell('back'); tell('away again'); tell('lost'); time.sleep(60)"
    cell, behind = running.cell(code), running.cell("1")
    error = running.error(cell)
    assert error["ename"] == "PoolLost"
    assert error["traceback"][2] == f"Answer: {format_pool_lost(POOL, 12)}"
    assert running.process.wait(scaled(5)) == 1
    assert running.unanswered(cell, behind)
