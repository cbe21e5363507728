"""An environment larger than what the supervisor takes at once, as Kubernetes services make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kernel.proxy_harness import GRANT, WAIT_FOR_EVER, StartProxy
from tests.support.processes import freeze, thaw

MIB = 1024 * 1024
# One variable may have 128 KiB (MAX_ARG_STRLEN).
LARGE: dict[str, Any] = {f"SERVICE_{number}": "x" * (MIB // 16) for number in range(16)}


def test_a_cell_sees_an_environment_of_one_mebibyte(proxy: StartProxy) -> None:
    harness = proxy(GRANT, **LARGE)
    cell = harness.cell(
        "import os; print(sum(len(v) for k, v in os.environ.items() if k.startswith('SERVICE_')))"
    )
    assert harness.reply(cell)["status"] == "ok"
    assert harness.printed(cell) == f"{MIB}\n"


def test_variables_that_look_like_the_clients_own_do_not_hold_up_the_launcher(
    proxy: StartProxy,
) -> None:
    """A Kubernetes service called `bf-…` gives such variables."""
    large: dict[str, Any] = {f"BF_{name}": value for name, value in LARGE.items()}
    harness = proxy(GRANT, **large)
    cell = harness.cell("print(6 * 7)")
    assert harness.reply(cell)["status"] == "ok"
    assert harness.printed(cell) == "42\n"


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_supervisor_that_takes_nothing_does_not_hold_up_the_proxy(
    proxy: StartProxy, interrupted: bool
) -> None:
    harness = proxy(WAIT_FOR_EVER, **LARGE)
    children = Path(f"/proc/{harness.process.pid}/task/{harness.process.pid}/children").read_text()
    (supervisor,) = map(int, children.split())
    freeze(supervisor)
    try:
        cell = harness.cell("1")
        assert harness.shown(cell).startswith("Asked for 1 GPU")
        assert harness.reply(harness.send("kernel_info_request"))["status"] == "ok"
        if interrupted:
            harness.interrupt()
            assert harness.reply(cell)["ename"] == "WaitCancelled"
    finally:
        thaw(supervisor)
    if interrupted:
        cell = harness.cell("2")
    harness.on_iopub(lambda m: m.parent_header.get("msg_id") == cell and "Position 1 of 2" in str(m.content))
