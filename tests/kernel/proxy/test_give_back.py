"""A kernel ends and gives its GPUs back while its proxy stays, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from tests.kernel.proxy_harness import GRANT, ProxyHarness, StartProxy
from tests.support.waiting import wait_until

GIVEN_BACK = "1 GPU given back. The next cell takes a GPU again, and begins with no variables.\n"


@pytest.fixture
def harness(proxy: StartProxy) -> ProxyHarness:
    """A proxy whose kernel has run a cell."""
    made = proxy(GRANT)
    made.reply(made.cell("x = 1"))
    return made


def pid_of(harness: ProxyHarness) -> int:
    """The kernel's, once the proxy has its reply, too: it may be stopped then."""
    cell = harness.cell("import os; print(os.getpid())")
    pid = int(harness.printed(cell))
    harness.reply(cell)
    return pid


def has_x(harness: ProxyHarness) -> str:
    """Whether the variables are there, in the kernel's words; what the proxy says before it is left out."""
    return harness.printed(harness.cell("print('x' in globals())")).splitlines()[-1]


def test_a_cell_that_comes_while_a_kernel_is_being_ended_runs_in_the_next_one(harness: ProxyHarness) -> None:
    release, cell = harness.cell("%bitfusion release -y"), harness.cell("print('x' in globals())")
    assert harness.printed(release) == GIVEN_BACK
    assert harness.printed(cell).splitlines()[-1] == "False"
    assert has_x(harness) == "False"


LATE_IDLE = """
import time
kernel = get_ipython().kernel
tell = kernel._publish_status_and_flush
def late(status, channel, *args, **named):
    if (status, channel) == ("idle", "shell"):
        time.sleep(0.3)
    return tell(status, channel, *args, **named)
kernel._publish_status_and_flush = late
"""


def test_a_cell_whose_reply_has_come_still_says_that_it_is_over(harness: ProxyHarness) -> None:
    """As under load: a cell without its idle runs for ever in the notebook."""
    harness.reply(harness.cell(LATE_IDLE))
    cell = harness.cell("print('last words')")
    harness.reply(cell)
    release = harness.cell("%bitfusion release -y")
    assert harness.printed(cell) == "last words\n"
    assert harness.printed(release) == GIVEN_BACK


BUSY_COMM = """
import time
from comm import create_comm
made = create_comm(target_name="slider", comm_id="slider")
def on_message(message):
    print("moved", flush=True)
    time.sleep(60)
made.on_msg(on_message)
"""


def test_comms_are_closed_also_while_a_widgets_callback_runs(harness: ProxyHarness) -> None:
    """The kernel's shell answers nothing then, its control does."""
    harness.reply(harness.cell(BUSY_COMM))
    harness.send("comm_msg", comm_id="slider", data={})
    harness.on_iopub(lambda message: message.content.get("text") == "moved\n")
    release = harness.cell("%bitfusion release -y")
    harness.on_iopub(lambda message: message.type == "comm_close")
    assert harness.printed(release) == GIVEN_BACK


def test_a_kernel_that_does_not_answer_is_ended_without_its_comms(harness: ProxyHarness) -> None:
    pid = pid_of(harness)
    os.kill(pid, signal.SIGSTOP)
    assert harness.printed(harness.cell("%bitfusion release -y")) == GIVEN_BACK
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the kernel")
    assert has_x(harness) == "False"


def test_a_cell_of_another_shell_is_told_why_it_ended(harness: ProxyHarness) -> None:
    created = harness.reply(harness.send("create_subshell_request", on="control"), on="control")
    other = harness.cell(
        "import time; print('runs', flush=True); time.sleep(60)", subshell=created["subshell_id"]
    )
    harness.on_iopub(lambda message: message.content.get("text") == "runs\n")
    assert harness.printed(harness.cell("%bitfusion release -y")) == GIVEN_BACK
    reply = harness.reply(other)
    assert (reply["status"], reply["ename"]) == ("error", "GpuGivenBack")


@pytest.mark.parametrize("victim", ["kernel", "wrapper"])
def test_what_dies_while_it_is_given_back_is_given_back(harness: ProxyHarness, victim: str) -> None:
    pid = pid_of(harness)
    victims = {"kernel": pid, "wrapper": _wrapper(harness)}
    os.kill(pid, signal.SIGSTOP)  # it does not say what comms there are
    release = harness.cell("%bitfusion release -y")
    harness.reply(harness.send("kernel_info_request"))
    with contextlib.suppress(ProcessLookupError):  # the machine has stood still until both had ended
        os.kill(victims[victim], signal.SIGKILL)
    assert harness.printed(release) == GIVEN_BACK
    assert has_x(harness) == "False"


def _wrapper(harness: ProxyHarness) -> int:
    (supervisor,) = _children(harness.process.pid)
    return _children(supervisor)[0]


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


@pytest.mark.parametrize("restart", [False, True])
def test_a_shutdown_in_the_middle_ends_the_proxy(harness: ProxyHarness, restart: bool) -> None:
    harness.cell("%bitfusion release -y")
    harness.send("shutdown_request", on="control", restart=restart)
    assert harness.process.wait(20) == 0
