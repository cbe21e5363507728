"""What goes wrong is told in the cell: what was asked, the answer, what to do. The next cell tries again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import zmq
from jupyter_client.session import Session

from tests.jupyter.cells import notice_texts, waiting_cell
from tests.jupyter.client import Cell
from tests.jupyter.conftest import ALL, FIRST_CELL, OURS, START, Launch
from tests.jupyter.embedded_pool import CLIENT, MEMORY_MIB, Pool
from tests.jupyter.live_kernel import LiveKernel

NAMES = pytest.mark.parametrize("name", OURS)


def failed(kernel: LiveKernel, *words: str, code: str = "print('ran')") -> Cell:
    """Run a cell that can't get its GPU; checks everything such an error has in common."""
    cell, behind = kernel.send_together(code, "print('behind')")
    kernel.client.finish_all(cell, behind, limit_s=20)
    assert cell.status == "error"
    assert (behind.status, behind.kinds) == ("aborted", ["busy", "idle"])
    assert "execute_input" not in cell.kinds
    assert [output["output_type"] for output in cell.saved_outputs()] == ["error"]
    assert cell.reply is not None
    assert {key: cell.reply["content"][key] for key in ("ename", "evalue", "traceback")} == cell.error
    text = re.sub(r"\x1b\[[\d;]*m", "", cell.error_text)
    for word in words:
        assert word in text, f"{word!r} is missing in:\n{text}"
    assert "Traceback" not in text
    assert ".py" not in text, "a person gets words, not our source lines"
    assert kernel.manager.is_alive()
    return cell


def works_now(kernel: LiveKernel) -> None:
    cell = kernel.run("print('ran')")
    assert (cell.status, cell.count, cell.stream()) == ("ok", 1, "ran\n")


@NAMES
def test_more_gpus_than_any_server_has(launch: Launch, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("BITFUSION_GPUS", "4")
    kernel = launch(name)
    failed(kernel, "4 GPUs", f"1 GPUs with {MEMORY_MIB} MiB", "%bitfusion request")
    failed(kernel, "4 GPUs")
    assert kernel.run("%bitfusion request -n 1").status == "ok"
    works_now(kernel)


@pytest.mark.parametrize(
    ("name", "variable", "value", "words"),
    [
        (START, "BITFUSION_PARTIAL", "1.5", ("1.5", "BITFUSION_PARTIAL", "at most 1")),
        (FIRST_CELL, "BITFUSION_PARTIAL", "1.5", ("1.5", "BITFUSION_PARTIAL", "at most 1")),
        (FIRST_CELL, "BITFUSION_PARTIAL", "0", ("BITFUSION_PARTIAL", "greater than 0")),
        (FIRST_CELL, "BITFUSION_PARTIAL", "half", ("half", "BITFUSION_PARTIAL")),
        (FIRST_CELL, "BITFUSION_MEMORY", "-5", ("-5", "BITFUSION_MEMORY")),
        (FIRST_CELL, "BITFUSION_GPUS", "none", ("none", "BITFUSION_GPUS")),
        (FIRST_CELL, "BITFUSION_TIMEOUT", "soon", ("soon", "BITFUSION_TIMEOUT")),
        (FIRST_CELL, "BITFUSION_ACQUIRE", "never", ("never", "BITFUSION_ACQUIRE", "first_cell")),
    ],
)
def test_wrong_setting(
    launch: Launch,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    variable: str,
    value: str,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv(variable, value)
    kernel = launch(name)
    cell = failed(kernel, *words)
    assert len(cell.error["evalue"].splitlines()) <= 4
    failed(kernel, *words)


@NAMES
def test_memory_beyond_any_gpu(launch: Launch, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("BITFUSION_MEMORY", "99999")
    kernel = launch(name)
    failed(kernel, "99999 MiB", f"{MEMORY_MIB} MiB", "%bitfusion request")
    assert kernel.run("%bitfusion request -n 1 -m 8000").status == "ok"
    works_now(kernel)


@pytest.mark.parametrize(
    "words",
    [
        *("-p 1.5", "-n x", "-p 0.5 -m 10"),
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("-p 0", "-n 0", "-m 0", "--timeout x", "--odd")
        ),
    ],
)
def test_wrong_request_command(launch: Launch, words: str) -> None:
    kernel = launch(FIRST_CELL)
    cell = kernel.run(f"%bitfusion request {words}")
    assert cell.status == "error"
    assert words.split()[-1] in cell.error_text or words.split()[0] in cell.error_text
    works_now(kernel)


@NAMES
def test_no_client(
    launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    client = tmp_path / "nowhere" / "bitfusion"
    monkeypatch.setenv("BITFUSION_CLIENT", str(client))
    kernel = launch(name)
    failed(kernel, str(client), "BITFUSION_CLIENT")
    client.parent.mkdir()
    client.symlink_to(CLIENT)
    works_now(kernel)


@NAMES
@pytest.mark.parametrize(
    ("manners", "words"),
    [
        ("servers=unreachable,stream=stderr", ("1 GPU", "servers", "%bitfusion health")),
        ("servers=unreachable,stream=stdout", ("1 GPU", "servers", "%bitfusion health")),
        ("token=expired,stream=split", ("1 GPU", "expired", "administrator")),
        ("token=refused,stream=stdout", ("1 GPU", "servers", "administrator")),
    ],
)
def test_servers_that_do_not_answer(
    launch: Launch, pool: Pool, name: str, manners: str, words: tuple[str, ...]
) -> None:
    pool.write(gpus=1, manners=manners)
    kernel = launch(name)
    failed(kernel, *words)
    pool.write(gpus=1)
    works_now(kernel)


@NAMES
@pytest.mark.parametrize("exit_codes", ["child", "one", "zero"])
def test_full_pool_of_a_client_that_does_not_wait(
    launch: Launch, pool: Pool, name: str, exit_codes: str
) -> None:
    pool.write(gpus=1, manners=f"when_full=fail,exit_codes={exit_codes}")
    with pool.held():
        kernel = launch(name)
        failed(kernel, "1 GPU", "%bitfusion pool")
    works_now(kernel)


@NAMES
def test_wait_longer_than_the_timeout(
    launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("BITFUSION_TIMEOUT", "1s")
    with pool.held():
        kernel = launch(name)
        failed(kernel, "1 GPU", "timed out", "1s", "--timeout")
    works_now(kernel)


@NAMES
def test_client_without_waiting_text(launch: Launch, pool: Pool, name: str) -> None:
    """A client that says nothing while it waits: the time still runs, and the wait can still be ended."""
    pool.write(gpus=1, manners="waiting_text=none")
    with pool.held():
        kernel = launch(name)
        cell = kernel.client.send("print('ran')")
        kernel.client.pump(lambda: cell.of("update_display_data"), 10, "an update of the notice")
        assert "Asked for 1 GPU" in notice_texts(cell)[0]
        kernel.interrupt()
        kernel.client.finish(cell, 5)
        assert cell.status == "error"
    works_now(kernel)


@NAMES
@pytest.mark.parametrize(("sigint", "sigterm"), [("die", "die"), ("die", "ignore"), ("ignore", "ignore")])
def test_interrupt_and_end_whatever_the_client_does_with_signals(
    launch: Launch, pool: Pool, name: str, sigint: str, sigterm: str
) -> None:
    pool.write(gpus=1, manners=f"sigint={sigint},sigterm={sigterm}")
    with pool.held():
        kernel = launch(name)
        cell = waiting_cell(kernel.client)
        kernel.interrupt()
        kernel.client.finish(cell, 5)
        assert cell.status == "error"
    kernel.run("1")
    running = kernel.client.send("print('in', flush=True)\nimport time; time.sleep(300)")
    kernel.client.pump(running.stream, 10, "the running cell")
    kernel.interrupt()
    kernel.client.finish(running, 5)
    assert running.error["ename"] == "KeyboardInterrupt"
    kernel.stop()
    pool.wait_until_free(2)


@NAMES
def test_unreadable_ledger(launch: Launch, pool: Pool, name: str) -> None:
    assert pool.status()["leases"] == []  # makes the ledger; one from before a reboot is replaced unread
    (pool.folder / "ledger.db").write_bytes(
        b"this is no database, but it is long enough to be read as one " * 40
    )
    kernel = launch(name)
    failed(kernel, "1 GPU", str(pool.folder), "bitfusion-pool")
    for file in pool.folder.iterdir():
        if file.is_file():
            file.unlink()
    works_now(kernel)


@NAMES
def test_wrong_pool_configuration(launch: Launch, pool: Pool, name: str) -> None:
    pool.config.write_text("[[servers]]\nadress = '127.0.0.1'\n")
    kernel = launch(name)
    failed(kernel, "adress", str(pool.config))
    pool.write(gpus=1)
    works_now(kernel)


@pytest.mark.parametrize("name", ALL)
def test_messages_with_a_wrong_signature_are_ignored(launch: Launch, tmp_path: Path, name: str) -> None:
    kernel = launch(name)
    client = kernel.connect()
    forger = Session(key=b"not the key", signature_scheme=client.session.signature_scheme)
    proof = tmp_path / "proof"
    context = zmq.Context()
    try:
        sockets = {}
        answers = zmq.Poller()
        for channel in ("shell", "control"):
            sockets[channel] = context.socket(zmq.DEALER)
            sockets[channel].linger = 0
            sockets[channel].connect(
                f"tcp://{kernel.manager.ip}:{getattr(kernel.manager, f'{channel}_port')}"
            )
            answers.register(sockets[channel], zmq.POLLIN)

        def forge() -> None:
            code = f"open({str(proof)!r}, 'w')"
            content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
            forger.send(sockets["shell"], "execute_request", content)
            forger.send(sockets["shell"], "kernel_info_request", {})
            forger.send(sockets["control"], "shutdown_request", {"restart": False})
            sockets["shell"].send_multipart([b"<IDS|MSG>", b"short"])
            sockets["shell"].send_multipart([b"no delimiter"])
            assert not answers.poll(500), "a forged message was answered"

        forge()
        assert client.run("1 + 1").result == "2"
        forge()
        assert client.run("1 + 2").result == "3"
    finally:
        context.destroy(linger=0)
    assert not proof.exists()
    assert kernel.manager.is_alive()
