"""A cell that waits for a GPU: what it shows, how the wait ends, and that nothing of it is saved."""

from __future__ import annotations

import re
import time

import pytest

from bitfusion_kernel.proxy.requests.control_requests import INTERRUPT_DELAY
from tests.jupyter.cells import notice_texts, notices, wait_for_notice, without_notice
from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.conftest import FIRST_CELL, OURS, START, Launch
from tests.jupyter.embedded_pool import Pool
from tests.support.waiting import Deadline, wait_until

pytestmark = pytest.mark.parametrize("name", OURS)


def test_notice_shows_place_who_is_ahead_and_time_in_one_display(
    launch: Launch, pool: Pool, name: str
) -> None:
    with pool.held("digits.ipynb"):
        kernel = launch(name)
        kernel.connect()
        begin = time.monotonic()
        cell = kernel.client.send("print('ran')")
        first = wait_for_notice(kernel.client, cell)
        assert cell.seen_at[cell.messages.index(cell.of("display_data")[0])] - begin > 0.25
        assert "digits.ipynb" in first["data"]["text/plain"]
        assert "digits.ipynb" in first["data"]["text/html"]
        assert "nterrupt" in first["data"]["text/plain"], "how to cancel"

        def texts() -> set[str]:
            return set(notice_texts(cell))

        kernel.client.pump(lambda: len(texts()) >= 3, 5, "the elapsed time of three moments", texts)
        assert len(cell.of("display_data")) == 1
        assert len({notice["transient"]["display_id"] for notice in notices(cell)}) == 1
        assert cell.kinds[0] == "busy"
        assert "execute_input" not in cell.kinds
    kernel.client.finish(cell)
    assert (cell.status, cell.count, cell.stream()) == ("ok", 1, "ran\n")


def test_nothing_of_the_wait_is_saved(launch: Launch, pool: Pool, name: str) -> None:
    with pool.held():
        kernel = launch(name)
        silent_cell = kernel.client.send("x = 1")
        wait_for_notice(kernel.client, silent_cell)
        speaking_cell = kernel.client.send("print('one')\ndisplay('two')\n3")
    kernel.client.finish_all(silent_cell, speaking_cell)
    assert silent_cell.saved_outputs() == []
    assert [o["output_type"] for o in speaking_cell.saved_outputs()] == [
        "stream",
        "display_data",
        "execute_result",
    ]
    end_of_wait = silent_cell.kinds.index("clear_output")
    assert silent_cell.of("clear_output")[0]["content"] == {"wait": False}
    assert end_of_wait < silent_cell.kinds.index("execute_input")
    assert not {"display_data", "update_display_data"} & set(silent_cell.kinds[end_of_wait:])


def test_interrupt_ends_the_wait_with_an_error_and_the_kernel_lives(
    launch: Launch, pool: Pool, name: str
) -> None:
    with pool.held():
        kernel = launch(name)
        cell = kernel.client.send("print('never')")
        behind = [kernel.client.send("print('neither')") for _ in range(2)]
        wait_for_notice(kernel.client, cell)
        assert len(pool.waiting()) == 1
        kernel.interrupt()
        kernel.client.finish_all(cell, *behind, limit_s=5)
        assert cell.status == "error"
        assert "1 GPU" in cell.error_text
        assert "execute_input" not in cell.kinds
        assert [output["output_type"] for output in cell.saved_outputs()] == ["error"]
        for other in behind:
            assert other.status == "aborted"
            assert other.reply is not None
            assert other.reply["metadata"]["status"] == "aborted"
            assert other.kinds == ["busy", "idle"]
        pool.wait_until_nobody_waits(2)
        assert kernel.manager.is_alive()
        again = kernel.client.send("print('later')")
        wait_for_notice(kernel.client, again)
    kernel.client.finish(again)
    assert (again.status, again.count, again.stream()) == ("ok", 1, "later\n")


def test_cells_behind_a_cancelled_one_go_on_without_stop_on_error(
    launch: Launch, pool: Pool, name: str
) -> None:
    with pool.held():
        kernel = launch(name)
        cell = kernel.client.send("print('never')", stop_on_error=False)
        behind = kernel.client.send("print('ran')")
        wait_for_notice(kernel.client, cell)
        kernel.interrupt()
        kernel.client.finish(cell, 5)
        wait_for_notice(kernel.client, behind)
    kernel.client.finish(behind)
    assert (cell.status, behind.status, behind.count, behind.stream()) == ("error", "ok", 1, "ran\n")


def test_the_holder_sees_who_waits(launch: Launch, pool: Pool, name: str) -> None:
    kernel = launch(name)
    kernel.run("x = 1")
    assert "Others wait" not in kernel.run("%bitfusion").stream()
    with pool.asked_before("digits.ipynb", 1):
        for line in ("%bitfusion", "x = 2\n%bitfusion status"):
            told = kernel.run(line).stream()
            assert re.search(r"^Others wait +position 1: .*digits\.ipynb", told, re.MULTILINE), told


def test_two_kernels_take_turns(launch: Launch, pool: Pool, name: str) -> None:
    first, second = launch(name), launch(FIRST_CELL)
    assert first.run("'mine'").count == 1
    cell = second.client.send("'now mine'")
    wait_for_notice(second.client, cell)
    first.stop()
    second.client.finish(cell, 10)
    assert (cell.count, cell.result) == (1, "'now mine'")


def test_two_clients_see_the_wait(launch: Launch, pool: Pool, name: str) -> None:
    with pool.held():
        kernel = launch(name)
        asking, watching = kernel.connect(), kernel.connect()
        cell = asking.send("print('for both')")
        wait_for_notice(asking, cell)
        late = kernel.connect()
        seen, seen_late = watching.watch(cell), late.watch(cell)
        wait_for_notice(watching, seen)
        late.pump(lambda: notices(seen_late), 5, "a notice for a client that came late")
        assert seen.messages[0]["content"]["execution_state"] == "busy"
    asking.finish(cell)
    watching.finish(seen)
    late.finish(seen_late)
    assert seen.stream() == seen_late.stream() == "for both\n"
    assert seen.saved_outputs() == cell.saved_outputs()


@pytest.mark.parametrize("now", [False, True], ids=["gently", "at once"])
def test_shutdown_while_waiting_leaves_nothing(launch: Launch, pool: Pool, name: str, now: bool) -> None:
    with pool.held() as holder:
        kernel = launch(name)
        cell = kernel.client.send("print('never')")
        wait_for_notice(kernel.client, cell)
        deadline = Deadline(2)
        kernel.manager.shutdown_kernel(now=now)
        assert not deadline.passed
        limit = 6 if now else 2  # for all that a killed process can tell, somebody restarts it
        pool.wait_until_nobody_waits(limit)
        wait_for_no_process(pool, limit + 1, holder=holder.pid)


@pytest.mark.parametrize("attended", [True, False])
def test_shutdown_message_while_waiting_is_answered(
    launch: Launch, pool: Pool, name: str, attended: bool
) -> None:
    with pool.held():
        kernel = launch(name)
        cell = kernel.client.send("1", allow_stdin=attended)
        wait_for_notice(kernel.client, cell)
        reply = kernel.client.request("shutdown_request", {"restart": False}, "control", limit_s=5)
        assert (reply["status"], reply["restart"]) == ("ok", False)
        last = "clear_output" if attended else "error"
        kernel.client.pump(lambda: cell.of(last), 5, "the end of the notice", lambda: cell.kinds)
        reasons = [] if attended else ["WaitCancelled"]
        assert [output["ename"] for output in cell.saved_outputs()] == reasons
        kernel.wait_for_end(3)


@pytest.mark.parametrize("now", [False, True], ids=["gently", "at once"])
def test_restart_while_waiting_asks_anew(launch: Launch, pool: Pool, name: str, now: bool) -> None:
    with pool.held():
        kernel = launch(name)
        wait_for_notice(kernel.client, kernel.client.send("print('lost')"))
        kernel.restart(now=now)
        cell = kernel.client.send("print('kept')")
        wait_for_notice(kernel.client, cell, "1 of")
    kernel.client.finish(cell)
    assert (cell.status, cell.count, cell.stream()) == ("ok", 1, "kept\n")


def test_interrupt_before_a_shutdown_shows_no_error(launch: Launch, pool: Pool, name: str) -> None:
    """Jupyter interrupts about 2 ms before every shutdown: that must not look like a cancelled cell."""
    with pool.held():
        for _ in range(10):
            kernel = launch(name)
            cell = kernel.client.send("print('never')")
            wait_for_notice(kernel.client, cell)
            begin = time.monotonic()
            kernel.client.ask("interrupt_request", {}, "control")
            reply = kernel.client.request("shutdown_request", {"restart": True}, "control", limit_s=5)
            assert reply["status"] == "ok"
            if time.monotonic() - begin < INTERRUPT_DELAY:  # else the machine stood still in between
                break
        kernel.client.settle(0.3)
        assert not cell.of("error")
        kernel.wait_for_end(3)
        kernel.restart(now=True)  # or its place in the queue would be kept for a while


def test_stale_interrupt_from_before_the_start_is_ignored(launch: Launch, pool: Pool, name: str) -> None:
    kernel = launch(name)
    client = kernel.connect(ready=False)
    assert client.request("interrupt_request", {}, "control")["status"] == "ok"
    cell = client.run("print('unharmed')")
    assert (cell.status, cell.stream()) == ("ok", "unharmed\n")


def test_everything_else_is_answered_while_waiting(launch: Launch, pool: Pool, name: str) -> None:
    with pool.held():
        kernel = launch(name)
        client = kernel.connect()
        cell = client.send("print('ran')")
        wait_for_notice(client, cell)
        assert client.request("kernel_info_request", limit_s=2)["implementation"] == "ipython"
        assert client.request("kernel_info_request", channel="control", limit_s=2)["status"] == "ok"
        complete = client.request("complete_request", {"code": "pri", "cursor_pos": 3}, limit_s=2)
        assert (complete["status"], complete["matches"]) == ("ok", [])
        inspect = client.request(
            "inspect_request", {"code": "a", "cursor_pos": 1, "detail_level": 0}, limit_s=2
        )
        assert (inspect["status"], inspect["found"]) == ("ok", False)
        assert client.request("comm_info_request", limit_s=2) == {"status": "ok", "comms": {}}
        assert client.request("is_complete_request", {"code": "if x:"}, limit_s=2)["status"] == "incomplete"
        debug = {"seq": 1, "type": "request", "command": "debugInfo"}
        assert client.request("debug_request", debug, "control", limit_s=2)["body"]["isStarted"] is False
        wait_for_notice(client, cell)
    client.finish(cell)
    assert cell.stream() == "ran\n"


def test_only_a_wait_of_more_than_a_moment_is_shown(launch: Launch, pool: Pool, name: str) -> None:
    cell = launch(name).run("x = 1")
    if notices(cell):  # the kernel took its time to start, as on a busy machine
        assert cell.seen_at[cell.kinds.index("display_data")] - cell.seen_at[0] > 0.25
    assert without_notice(cell.kinds) == ["busy", "execute_input", "idle"]


def test_nothing_is_left_when_the_last_kernel_ends(launch: Launch, pool: Pool, name: str) -> None:
    kernel = launch(name)
    kernel.run("1")
    assert len(pool.leases()) == 1
    kernel.stop()
    pool.wait_until_free(2)
    wait_for_no_process(pool, 2)


def test_start_waits_before_any_cell(launch: Launch, pool: Pool, name: str) -> None:
    with pool.held():
        kernel = launch(name)
        kernel.connect()
        wanted = 1 if name == START else 0
        wait_until(lambda: len(pool.waiting()) == wanted, f"{wanted} waiting", 3)
        kernel.client.settle(0.5)
        assert len(pool.waiting()) == wanted
