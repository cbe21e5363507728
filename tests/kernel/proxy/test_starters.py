"""Whose end is Jupyter's: behind a shell, in a pid namespace, or when it was too fast to be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection

import pytest

from bitfusion_kernel.proxy.jupyter.starters import PidSpace, starters
from tests.kernel.proxy_harness import StartProxy


class Seen(PidSpace):
    """Processes as a test wants them."""

    def __init__(
        self,
        alive: Collection[int] = (),
        above: Collection[int] = (),
        newest: int = 5000,
        of_jupyter: Collection[int] = (),
    ) -> None:
        self._alive, self._above, self._newest, self._of_jupyter = alive, list(above), newest, of_jupyter

    def is_alive(self, pid: int) -> bool:
        """As given."""
        return pid in self._alive

    def ancestors(self, pid: int) -> list[int]:
        """As given."""
        return self._above

    def newest(self) -> int:
        """As given."""
        return self._newest

    def was_started_by(self, pid: int, jupyter: int) -> bool:
        """As given."""
        return pid in self._of_jupyter


JUPYTER = 700


@pytest.mark.parametrize(
    ("parent", "here", "watched"),
    [
        (800, Seen(alive=[JUPYTER, 800], above=[JUPYTER, 1]), [800, JUPYTER]),  # a shell between
        (1, Seen(), None),  # Jupyter has died, an init has adopted the proxy
        (650, Seen(alive=[650]), None),  # or a subreaper has
        (0, Seen(newest=1), []),  # process 1 of a pid namespace of its own
        (1, Seen(newest=4), [1]),  # there, behind a shell: such a number was never given
        (1, Seen(newest=5000, of_jupyter=[1]), [1]),  # the same in a container that has started much before
        (3, Seen(alive=[3, JUPYTER], above=[1]), [3]),  # there the number is somebody else's
    ],
)
def test_who_is_watched(parent: int, here: Seen, watched: list[int] | None) -> None:
    assert starters(JUPYTER, parent, here) == watched


def test_what_is_seen_of_real_processes() -> None:
    here = PidSpace()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert (here.is_alive(os.getpid()), here.is_alive(ended.pid), here.is_alive(2**70)) == (
        True,
        False,
        False,
    )
    assert os.getppid() in here.ancestors(os.getpid())
    assert here.newest() >= ended.pid
    with subprocess.Popen(["sleep", "60"], env={"JPY_PARENT_PID": "12"}) as child:
        # between fork and exec a child still shows its parent's environment
        while not (seen := here.was_started_by(child.pid, 12)) and child.poll() is None:
            pass
        assert seen
        assert not here.was_started_by(child.pid, 1)
        child.kill()
    assert not here.was_started_by(ended.pid, 12)


@pytest.mark.parametrize("nonsense", ["²", "jupyter", "-5", str(2**70)])
def test_a_variable_that_names_no_process_is_no_obstacle(proxy: StartProxy, nonsense: str) -> None:
    harness = proxy(JPY_PARENT_PID=nonsense)
    assert harness.reply(harness.send("kernel_info_request"))["status"] == "ok"
