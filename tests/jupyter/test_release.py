"""Giving a GPU back and ending a wait, while the notebook stays open."""

from __future__ import annotations

import time

import pytest

from tests.jupyter.cells import waiting_cell
from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.conftest import OURS, Launch
from tests.jupyter.embedded_pool import Pool
from tests.support.machine import scaled

GIVEN_BACK = "1 GPU given back. The next cell takes a GPU again, and begins with no variables.\n"


@pytest.mark.parametrize("name", OURS)
def test_release_gives_the_gpu_back_and_the_next_cell_takes_one_again(
    launch: Launch, pool: Pool, name: str
) -> None:
    kernel = launch(name)
    kernel.run("x = 1")
    pid = kernel.pid
    for _ in range(3):
        cell = kernel.run("%bitfusion release -y")
        assert (cell.status, cell.stream()) == ("ok", GIVEN_BACK)
        assert pool.leases() == []
        assert kernel.run("%bitfusion").stream().startswith("Kernel    no GPU; the next cell asks for one\n")
        again = kernel.run("print('x' in globals())")
        assert (again.count, again.stream()) == (1, "False\n")
        assert len(pool.leases()) == 1
        assert kernel.run("x = 1").count == 2
    assert kernel.pid == pid
    kernel.stop()
    wait_for_no_process(pool, 3)


def test_whoever_waits_gets_the_gpu_that_was_given_back_and_the_next_cell_waits(
    launch: Launch, pool: Pool
) -> None:
    mine, other = launch("bitfusion"), launch("bitfusion")
    mine.run("x = 1")
    cell = waiting_cell(other.client, "print('other')")
    began = time.monotonic()
    mine.run("%bitfusion release -y")
    other.client.finish(cell, 10)
    assert cell.stream() == "other\n"
    assert time.monotonic() - began < scaled(5)
    waits = waiting_cell(mine.client, "print('mine')")
    other.run("%bitfusion release -y")
    mine.client.finish(waits, 10)
    assert waits.stream() == "mine\n"


@pytest.mark.parametrize(("typed", "given_back"), [("y", True), ("yes", True), ("", False), ("no", False)])
def test_a_person_is_asked_before_variables_are_lost(
    launch: Launch, pool: Pool, typed: str, given_back: bool
) -> None:
    kernel = launch("bitfusion")
    kernel.run("x = 1")
    cell = kernel.client.send("%bitfusion release", allow_stdin=True)
    kernel.client.pump(lambda: kernel.client.input_requests, 10, "the question")
    assert kernel.client.input_requests[-1]["content"]["prompt"].startswith("Give 1 GPU back? The variables")
    kernel.client.answer(typed)
    kernel.client.finish(cell, 10)
    assert cell.stream() == (GIVEN_BACK if given_back else "Nothing was given back.\n")
    assert len(pool.leases()) == (0 if given_back else 1)
    assert kernel.run("print('x' in globals())").stream() == ("False\n" if given_back else "True\n")


def test_where_nobody_can_be_asked_it_says_how_to_mean_it(launch: Launch, pool: Pool) -> None:
    kernel = launch("bitfusion")
    kernel.run("x = 1")
    cell = kernel.run("%bitfusion release", allow_stdin=False)
    assert cell.status == "error"
    assert cell.error["traceback"][-1] == "What to do: say that it is meant: add -y to the line."
    inside = kernel.run("y = 2\n%bitfusion release")
    assert "add -y to the line" in inside.stream("stderr")
    assert kernel.run("(x, y)").result == "(1, 2)"


def test_a_line_in_the_middle_of_a_cell_gives_the_gpu_back_when_the_cell_is_over(
    launch: Launch, pool: Pool
) -> None:
    kernel = launch("bitfusion")
    cell = kernel.run("x = 1\n%bitfusion release -y\nprint(x)")
    assert cell.stream() == f"When this cell is over: {GIVEN_BACK}1\n"
    pool.wait_until_free(3)
    assert kernel.run("print('x' in globals())").stream() == "False\n"


def test_release_without_a_gpu_says_so(launch: Launch, pool: Pool) -> None:
    kernel = launch("bitfusion")
    assert kernel.run("%bitfusion release -y").stream() == "This kernel holds no GPU.\n"
    cell = kernel.run("%bitfusion release --now")
    assert "can't read '--now' in %bitfusion release" in cell.error_text


def test_comms_are_closed_towards_clients_as_at_a_restart(launch: Launch, pool: Pool) -> None:
    kernel = launch("bitfusion")
    kernel.run("from comm import create_comm\nc = create_comm(target_name='x')\nprint(c.comm_id)")
    comm = kernel.run("print(c.comm_id)").stream().strip()
    kernel.run("%bitfusion release -y")

    def is_closed() -> bool:
        ended = [each for each in kernel.client.iopub if each["msg_type"] == "comm_close"]
        return any(each["content"]["comm_id"] == comm for each in ended)

    kernel.client.pump(is_closed, 5, "comm_close")


def test_another_size_while_waiting_is_asked_for_at_once(launch: Launch, pool: Pool) -> None:
    pool.write(gpus=1)
    mine, other = launch("bitfusion"), launch("bitfusion")
    other.run("%bitfusion request -p 0.5\n%bitfusion acquire")
    cell = waiting_cell(mine.client, "print('mine')")
    aside = mine.run("%bitfusion request -p 0.5")
    assert aside.stream() == (
        "This kernel asks for 1 GPU × 50 %. It is a new request, at the end of the queue.\n"
    )
    mine.client.finish(cell, 10)
    assert cell.stream() == "mine\n"
    assert sorted(lease["request"]["partial"] for lease in pool.leases()) == [0.5, 0.5]


def test_cancel_ends_the_wait_of_the_cell(launch: Launch, pool: Pool) -> None:
    kernel = launch("bitfusion")
    with pool.held():
        cell = waiting_cell(kernel.client)
        assert kernel.run("%bitfusion cancel").stream() == "This kernel no longer waits for 1 GPU.\n"
        kernel.client.finish(cell, 5)
        assert cell.error["ename"] == "WaitCancelled"
        assert "cancelled after" in cell.error_text
        assert pool.waiting() == []
        assert kernel.run("%bitfusion cancel").stream() == "This kernel waits for nothing.\n"
    assert kernel.run("6 * 7").result == "42"
    held = "This kernel has its GPU; %bitfusion release gives it back.\n"
    assert kernel.run("%bitfusion cancel").stream() == held
