"""Cells that keep a kernel waiting for a GPU or running, and the notice that a waiting one shows."""

from __future__ import annotations

from tests.jupyter.client import Cell, Client, Message
from tests.support.waiting import Deadline


def running_cell(client: Client) -> Cell:
    """A cell that runs, and a child process of it, until somebody ends them."""
    cell = client.send(
        "import subprocess, time\nchild = subprocess.Popen(['sleep', '300'])\n"
        "print('runs', flush=True)\ntime.sleep(300)"
    )
    client.pump(cell.stream, 15, "the running cell")
    return cell


def waiting_cell(client: Client, code: str = "print('never')") -> Cell:
    """A cell that waits for a GPU and shows its place: its request is in the queue."""
    cell = client.send(code)
    wait_for_notice(client, cell)
    return cell


def releasing_cell(client: Client) -> Cell:
    """A cell that has the GPU given back, which has begun."""
    cell = client.send("%bitfusion release -y")
    client.pump(lambda: "busy" in cell.kinds, 10, "the beginning", lambda: cell.seen)
    return cell


def resizing_cell(client: Client, size: str) -> Cell:
    """A cell that waits for another size while its kernel keeps what it has."""
    cell = client.send(f"%bitfusion request {size} --now -y")
    client.pump(lambda: notices(cell), 10, "the wait in the cell", lambda: cell.seen)
    return cell


def wait_for_death(client: Client, cell: Cell, limit_s: float | Deadline) -> None:
    """Until the cell shows why its kernel died; a dead kernel replies to nothing."""
    client.pump(lambda: cell.of("error"), limit_s, "the reason of the death", lambda: cell.kinds)
    client.settle(0.3)
    assert cell.reply is None


def notices(cell: Cell) -> list[Message]:
    """The contents of the messages that show the wait, in order."""
    return [message["content"] for message in cell.of("display_data", "update_display_data")]


def notice_texts(cell: Cell) -> list[str]:
    """What they show as plain text."""
    return [notice["data"]["text/plain"] for notice in notices(cell)]


def wait_for_notice(client: Client, cell: Cell, words: str = "1 of 1") -> Message:
    """The newest notice, once one holds these words."""
    client.pump(
        lambda: any(words in text for text in notice_texts(cell)),
        10,
        f"a notice with {words!r}",
        lambda: notice_texts(cell),
    )
    return notices(cell)[-1]


def without_notice(kinds: list[str]) -> list[str]:
    """The kinds of a cell's messages without those of a wait that it showed before it ran."""
    if "clear_output" in kinds and kinds[1] == "display_data":
        return [kinds[0], *kinds[kinds.index("clear_output") + 1 :]]
    return kinds
