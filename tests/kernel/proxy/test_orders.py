"""What comes on the proxy's socket while no cell runs is done at once; while one runs, when that is over."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.kernel_state import proxy_socket, watch
from tests.kernel.proxy_harness import GRANT, STAMP, WAIT_FOR_EVER, ProxyHarness, StartProxy
from tests.support.kernel_state_schema import check
from tests.support.machine import scaled
from tests.support.waiting import wait_until

LIMIT = scaled(10)
ANEW = "The next cell takes a GPU again, and begins with no variables."
BUSY = f"""
print("{STAMP} Waiting for GPUs: position 1 of 2; held by ada: x.ipynb (1 GPU, <14:03>)", flush=True)
while not os.path.exists({{grant!r}}): time.sleep(0.01)
{GRANT}"""


class Outside:
    """A program beside the notebook, and what it sees."""

    def __init__(self, harness: ProxyHarness) -> None:
        self.harness = harness
        harness.reply(harness.send("kernel_info_request"))
        self.path = harness.await_socket()

    def connect(self, **question: object) -> socket.socket:
        """A peer that has asked."""
        peer = proxy_socket.connect(self.path, LIMIT)
        peer.sendall(json.dumps(question).encode() + b"\n")
        return peer

    def ask(self, words: str = "", **question: object) -> str:
        """The sentence that is answered."""
        return sentence(self.connect(**(question or {"words": words})))

    @property
    def state(self) -> dict[str, Any]:
        """The published one."""
        told = watch.look(str(self.harness.folder / "connection.json"), os.environ, seconds=LIMIT)
        check(told)
        return told

    def await_state(self, name: str) -> dict[str, Any]:
        """The state, once it is called so."""
        wait_until(lambda: self.state["state"] == name, lambda: f"{name}: it is {self.state['state']}")
        return self.state

    @property
    def starts(self) -> int:
        """How often GPUs have been asked for."""
        log = self.harness.folder / "starts"
        return len(log.read_text()) if log.exists() else 0


def sentence(peer: socket.socket) -> str:
    """What a peer is answered: one line, after which the proxy closes."""
    with peer, peer.makefile("r") as lines:
        answer = json.loads(lines.read())
    assert list(answer) in (["text"], ["error"])
    return str(answer["text" if "text" in answer else "error"])


def counted(run: str) -> str:
    """A client that counts how often it was asked."""
    return f"open(os.path.join(os.path.dirname(sys.argv[0]), 'starts'), 'a').write('x')\n{run}"


@pytest.fixture
def held(proxy: StartProxy) -> Outside:
    """A kernel that has run a cell and is idle."""
    outside = Outside(proxy(counted(GRANT)))
    outside.harness.reply(outside.harness.cell("x = 1"))
    outside.await_state("idle")
    return outside


def has_x(outside: Outside) -> str:
    return outside.harness.printed(outside.harness.cell("print('x' in globals())")).splitlines()[-1]


def test_release_gives_an_idle_kernels_gpus_back_at_once_and_only_once(held: Outside) -> None:
    first, second = held.connect(words="release -y"), held.connect(words="release -y")
    told = [sentence(first), sentence(second)]
    assert told == [f"Giving 1 GPU back now. {ANEW}", "This kernel is already giving 1 GPU back."]
    held.await_state("none")
    assert held.ask("release -y") == "This kernel holds no GPU."
    assert held.ask("cancel") == "This kernel waits for nothing."
    assert has_x(held) == "False"
    assert held.starts == 2
    assert held.state["lease"] is not None


def test_nobody_is_asked_whether_it_is_meant(held: Outside) -> None:
    assert "add -y to the line" in held.ask("release")
    assert held.state["state"] == "idle"


def test_while_a_cell_runs_it_is_done_when_that_is_over_and_once(held: Outside) -> None:
    harness = held.harness
    cell = harness.cell("import time; print('runs', flush=True); time.sleep(1); print('done')")
    harness.on_iopub(lambda message: message.content.get("text") == "runs\n")
    told = [held.ask("release -y") for _ in range(2)]
    assert told == [f"When this cell is over: 1 GPU given back. {ANEW}"] * 2
    assert harness.reply(cell)["status"] == "ok"
    held.await_state("none")
    assert has_x(held) == "False"
    harness.reply(harness.cell("x = 2"))
    assert has_x(held) == "True", "the next kernel has nothing to do with it"
    assert held.starts == 2


def test_code_that_a_client_runs_for_itself_ends_and_then_it_is_done(held: Outside) -> None:
    """No cell may ever come after it."""
    harness = held.harness
    silent = harness.cell("import time; time.sleep(1)", silent=True)
    held.await_state("running")
    assert held.ask("release -y").startswith("When this cell is over")
    assert harness.reply(silent)["status"] == "ok"
    held.await_state("none")


def test_what_has_gone_back_meanwhile_by_another_word_does_not_go_back_again(held: Outside) -> None:
    harness = held.harness
    created = harness.reply(harness.send("create_subshell_request", on="control"), on="control")
    long = harness.cell("import time; print('runs', flush=True); time.sleep(60)")
    harness.on_iopub(lambda message: message.content.get("text") == "runs\n")
    assert held.ask("release -y").startswith("When this cell is over")
    harness.reply(harness.cell("%bitfusion release -y", subshell=created["subshell_id"]))
    assert harness.reply(long)["ename"] == "GpuGivenBack"
    harness.reply(harness.cell("x = 2"))
    assert has_x(held) == "True"


@pytest.mark.parametrize("ordered", [False, True])
def test_a_kernel_that_shuts_down_says_so_and_ends_as_ever(held: Outside, ordered: bool) -> None:
    harness = held.harness
    harness.cell("import time; print('runs', flush=True); time.sleep(2)")
    harness.on_iopub(lambda message: message.content.get("text") == "runs\n")
    if ordered:
        held.ask("release -y")
    harness.send("shutdown_request", on="control", restart=False)
    held.await_state("releasing")
    for question in ({"words": "release -y"}, {"words": "acquire"}, {"words": "cancel"}, {"do": "keep"}):
        assert held.ask(**question) == "This kernel is shutting down.\nWhat to do: start it again."
    assert harness.process.wait(LIMIT) == 0
    assert "IllegalTransition" not in harness.stderr.read_text()


def test_acquire_takes_a_gpu_without_a_cell_and_two_take_one(proxy: StartProxy) -> None:
    outside = Outside(proxy(counted(GRANT)))
    first, second = outside.connect(words="acquire"), outside.connect(words="acquire")
    assert sentence(first) == "Requesting the GPU."
    assert sentence(second) in (
        "This kernel is already waiting for 1 GPU.",
        "This kernel already has 1 GPU and is starting.",
        "This kernel already has its GPU.",
    )
    outside.await_state("idle")
    assert outside.ask("acquire") == "This kernel already has its GPU."
    assert outside.starts == 1


def test_acquire_that_cannot_even_be_asked_for_says_why(proxy: StartProxy) -> None:
    outside = Outside(proxy(GRANT, BITFUSION_GPUS="many"))
    assert outside.ask("acquire").startswith("Wrong setting")
    assert outside.state["state"] == "none"


def test_a_peer_that_leaves_in_the_middle_has_given_its_order(held: Outside) -> None:
    held.connect(words="release -y").close()
    held.await_state("none")
    held.connect(words="request -p 0.5 --now -y").close()  # the client is asked first
    wait_until(lambda: held.state["state"] == "idle", "the other size")
    assert held.state["request"]["partial"] == 0.5


def test_cancel_ends_a_wait_and_acquire_asks_again_after_it(proxy: StartProxy, tmp_path: Path) -> None:
    grant = tmp_path / "grant"
    outside = Outside(proxy(counted(BUSY.format(grant=str(grant)))))
    outside.ask("acquire")
    wait_until(lambda: outside.state["queue"] is not None, "it waits in the queue")
    assert outside.ask("acquire") == "This kernel is already waiting for 1 GPU: position 1 of 2."
    assert outside.ask("release -y").startswith("This kernel waits for 1 GPU; ")
    cancel, acquire = outside.connect(words="cancel"), outside.connect(words="acquire")
    assert sentence(cancel) == "This kernel no longer waits for 1 GPU."
    assert sentence(acquire) in (
        "The previous request ends first; then the GPU is requested.",
        "Requesting the GPU.",
    )
    wait_until(lambda: outside.starts == 2, "it is asked for again")
    assert outside.ask("request -p 0.5").startswith("This kernel asks for 1 GPU × 50 %. It is a new request")
    wait_until(lambda: outside.starts == 3, "it is asked for anew")
    grant.touch()
    assert outside.await_state("idle")["request"]["partial"] == 0.5


def test_release_and_acquire_in_one_go_end_with_another_gpu(held: Outside) -> None:
    release, acquire = held.connect(words="release -y"), held.connect(words="acquire")
    assert sentence(release) == f"Giving 1 GPU back now. {ANEW}"
    assert sentence(acquire) == "The previous request ends first; then the GPU is requested."
    wait_until(lambda: held.starts == 2, "it is asked for again")
    held.await_state("idle")
    assert has_x(held) == "False"


def test_a_size_is_noted_or_with_now_exchanged_while_cells_wait_for_it(held: Outside) -> None:
    assert held.ask("request -p 0.5").startswith("The new size is 1 GPU × 50 %. This kernel keeps its GPUs ")
    assert held.ask("request -p 0.5 --now -y") == (
        "This kernel asks for 1 GPU × 50 %. It keeps 1 GPU until that has come, for 30 s at most; "
        "then the notebook begins anew, with no variables."
    )
    assert has_x(held) == "False"
    assert held.starts == 2
    assert held.state["request"]["partial"] == 0.5
    assert held.ask("request -p 0.5 --now -y") == "This kernel already has 1 GPU × 50 %."


def test_a_size_that_does_not_come_leaves_what_there_is_and_is_told_later(held: Outside) -> None:
    harness = held.harness
    harness.script(WAIT_FOR_EVER)
    assert held.ask("request -p 0.5 --now -y").startswith("This kernel asks for 1 GPU × 50 %. It keeps 1 GPU")
    cell = harness.cell("print('x' in globals())")  # it waits, as behind a cell that asks for it
    assert "asks for another size already" in held.ask("request -p 0.5 --now -y")
    assert held.ask("cancel") == "This kernel no longer waits for another size."
    assert harness.printed(cell) == "True\n"
    held.ask("request -p 0.25 --now -y")
    held.ask("cancel")
    said = "This kernel has kept 1 GPU. 1 GPU × 25 % was asked for at"
    wait_until(lambda: said in held.ask("status"), lambda: held.ask("status"))
    assert held.ask("status").count("has kept") == 1, "the newest"


def test_an_interrupt_ends_the_wait_for_another_size_as_that_of_a_cell(held: Outside) -> None:
    harness = held.harness
    harness.script(WAIT_FOR_EVER)
    held.ask("request -p 0.5 --now -y")
    cell = harness.cell("print('x' in globals())")
    time.sleep(0.1)
    harness.interrupt()
    assert harness.printed(cell) == "True\n"


def test_release_while_another_size_is_asked_for_ends_both(held: Outside) -> None:
    held.harness.script(WAIT_FOR_EVER)
    held.ask("request -p 0.5 --now -y")
    assert held.ask("release -y") == f"Giving 1 GPU back now. {ANEW}"
    held.await_state("none")
    assert "has kept" not in held.ask("status")


@pytest.mark.parametrize("restart", [False, True])
def test_whoever_is_being_answered_when_the_kernel_ends_is_told(proxy: StartProxy, restart: bool) -> None:
    outside = Outside(proxy(GRANT, others="time.sleep(60)"))
    harness = outside.harness
    peer = outside.connect(words="request -n 2")
    assert outside.ask("help")
    harness.send("shutdown_request", on="control", restart=restart)
    does = "restarting; what it holds, or its position in the queue, is kept" if restart else "shutting down"
    assert sentence(peer).startswith(f"This kernel is {does}.")
    assert harness.process.wait(LIMIT) == 0


# -- keep --------------------------------------------------------------------------------------------


def test_a_word_to_keep_puts_the_idle_release_off_and_the_state_says_until_when(proxy: StartProxy) -> None:
    outside = Outside(proxy(GRANT, BITFUSION_IDLE_RELEASE="10m"))
    assert outside.ask(do="keep") == "This kernel holds no GPU."
    harness = outside.harness
    harness.reply(harness.cell("import time"))
    before = outside.await_state("idle")["idle_release_at"]
    assert before == pytest.approx(time.time() + 600, abs=scaled(5))
    with watch.Watch(os.path.dirname(outside.path)) as watcher:
        assert watcher.wait(LIMIT)[0]["idle_release_at"] == before
        time.sleep(1.1)
        kept = outside.ask(do="keep")
        assert kept.startswith("This kernel keeps its GPU until ")
        assert watcher.wait(LIMIT)[0]["idle_release_at"] > before
    harness.cell("time.sleep(60)")
    assert outside.await_state("running")["idle_release_at"] is None
    assert outside.ask(do="keep") == "This kernel keeps its GPU: code runs on it."


def test_a_word_to_keep_is_answered_where_nothing_is_given_back(held: Outside) -> None:
    assert held.ask(do="keep").startswith("This kernel keeps its GPU: idle_release is not set")
    assert held.state["idle_release_at"] is None
    assert held.ask(do="sell") == "this kernel can't 'sell': all that it can do is keep"
    held.ask("release -y")
    assert "already" in held.ask(do="keep") or "no GPU" in held.ask(do="keep")
