"""`%bitfusion` cells: answered without a GPU and without a count, before, while and after waiting."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from bitfusion_kernel.magic.commands import RESTARTS
from tests.jupyter.cells import notice_texts, waiting_cell
from tests.jupyter.client import Cell
from tests.jupyter.conftest import FIRST_CELL, HALF, OURS, START, Launch
from tests.jupyter.embedded_pool import DEVICE, MEMORY_MIB, Pool
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled
from tests.support.waiting import wait_until


def text_of(cell: Cell) -> str:
    shown = [m["content"]["data"]["text/plain"] for m in cell.of("display_data", "execute_result")]
    return cell.stream() + "\n".join(shown)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("%bitfusion", ["no GPU", "1 GPU"]),
        ("%bitfusion status", ["no GPU"]),
        ("%bitfusion request", ["1 GPU"]),
        ("%bitfusion pool", [str(MEMORY_MIB), "127.0.0.1:56001"]),
        ("%bitfusion list_gpus", [str(MEMORY_MIB), "127.0.0.1:56001"]),
        ("%bitfusion health", ["Health report", "PASS"]),
        ("%bitfusion log", []),
        ("%bitfusion help", ["acquire", "health"]),
        ("# a comment\n%bitfusion\n\n%bitfusion help\n", ["no GPU", "acquire"]),
    ],
)
def test_commands_take_no_gpu_and_no_count(
    launch: Launch, pool: Pool, command: str, words: list[str]
) -> None:
    kernel = launch(FIRST_CELL)
    cell = kernel.run(command)
    assert cell.status == "ok", cell.error_text
    for word in words:
        assert word in text_of(cell)
    assert cell.kinds[0] == "busy"
    assert cell.kinds[-1] == "idle"
    assert cell.kinds.count("idle") == 1
    assert pool.leases() == []
    assert kernel.run("1").count == 1
    after = kernel.run(command)
    assert after.status == "ok"
    assert kernel.run("2").count == 2


def test_status_tells_the_gpu_it_got(launch: Launch, pool: Pool) -> None:
    kernel = launch(HALF)
    assert "50 %" in text_of(kernel.run("%bitfusion"))
    kernel.run("1")
    status = text_of(kernel.run("%bitfusion"))
    for word in (DEVICE, "imulated", f"{MEMORY_MIB // 2} of {MEMORY_MIB} MiB", "127.0.0.1:56001", "50 %"):
        assert word in status
    assert "Locked 1 GPUs with partial memory 0.5" in text_of(kernel.run("%bitfusion log"))


def test_size_is_changed_before_the_first_cell(launch: Launch, pool: Pool) -> None:
    kernel = launch(FIRST_CELL)
    assert "25 %" in text_of(kernel.run("%bitfusion request -n 1 -p 0.25"))
    kernel.run("1")
    assert pool.leases()[0]["devices"][0]["memory_mib"] == MEMORY_MIB // 4


@pytest.mark.parametrize("code", ["%bitfusion request -n 2", "x = 1\n%bitfusion request -n 2"])
def test_a_size_that_the_pool_can_never_give_is_refused_at_once(launch: Launch, code: str) -> None:
    kernel = launch(FIRST_CELL)
    cell = kernel.run(code)
    said = cell.error_text if cell.status == "error" else cell.stream("stderr")
    assert "No server in the pool can ever satisfy this request.\nAsked for: 2 GPUs\n" in said
    assert kernel.run("%bitfusion request").stream() == "The next start asks for 1 GPU.\n"
    assert kernel.run("1").status == "ok"


@pytest.mark.parametrize(("name", "now"), [(FIRST_CELL, True), (START, False)], ids=["killed", "asked"])
def test_a_size_that_was_asked_for_survives_the_restart(
    launch: Launch, pool: Pool, name: str, now: bool
) -> None:
    kernel = launch(name)
    kernel.run("1")
    said = text_of(kernel.run("%bitfusion request -p 0.25"))
    assert said.splitlines() == [
        "The new size is 1 GPU × 25 %. This kernel keeps its GPUs until it restarts; "
        "use --now to change at once.",
        RESTARTS,
    ]
    for _ in range(2):
        kernel.restart(now=now)
        kernel.run("1")
        wait_until(
            lambda: [lease["devices"][0]["memory_mib"] for lease in pool.leases()] == [MEMORY_MIB // 4],
            "the new size",
            5,
        )
    assert text_of(kernel.run("%bitfusion request --reset")).startswith(
        "The new size is 1 GPU, as its settings say."
    )
    kernel.restart(now=now)
    assert text_of(kernel.run("%bitfusion request")) == "The next start asks for 1 GPU.\n"


@pytest.mark.parametrize("name", OURS)
def test_acquire_takes_the_gpu_without_a_count(launch: Launch, pool: Pool, name: str) -> None:
    kernel = launch(name)
    cell = kernel.run("%bitfusion acquire")
    assert cell.status == "ok", cell.error_text
    wait_until(pool.leases, "the lease", 2)
    assert kernel.run("1").count == 1
    assert kernel.run("%bitfusion acquire").status == "ok"


@pytest.mark.parametrize("code", ["print('ran')", "%bitfusion acquire"])
def test_questions_are_answered_while_a_cell_waits(launch: Launch, pool: Pool, code: str) -> None:
    with pool.held("digits.ipynb"):
        kernel = launch(FIRST_CELL)
        waiting = waiting_cell(kernel.client, code)
        shown = text_of(kernel.run("%bitfusion"))
        assert "Held by " in shown
        assert "digits.ipynb (1 GPU, since " in shown
        shown = text_of(kernel.run("%bitfusion pool"))
        assert f"{MEMORY_MIB} MiB held by " in shown
        assert "Waiting:\n     position 1: " in shown
        assert "Waiting for GPUs" in text_of(kernel.run("%bitfusion log"))
        assert "%bitfusion acquire    take the GPU now" in text_of(kernel.run("%bitfusion help"))
        assert waiting.reply is None
    kernel.client.finish(waiting)
    assert (waiting.status, waiting.count) == ("ok", 1)
    assert kernel.run("2").count == (2 if code.startswith("print") else 1)


def test_manual_kernel_waits_for_the_command(
    launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITFUSION_ACQUIRE", "manual")
    kernel = launch(FIRST_CELL)
    refused = kernel.run("1")
    assert "%bitfusion acquire" in refused.error_text
    assert pool.leases() == []
    assert kernel.run("%bitfusion acquire").status == "ok"
    assert (kernel.run("1").count, len(pool.leases())) == (1, 1)


@pytest.mark.parametrize("name", OURS)
def test_acquire_waits_its_turn_and_can_be_interrupted(launch: Launch, pool: Pool, name: str) -> None:
    with pool.held("digits.ipynb"):
        kernel = launch(name)
        cell = waiting_cell(kernel.client, "%bitfusion acquire")
        assert "digits.ipynb" in notice_texts(cell)[-1]
        kernel.interrupt()
        kernel.client.finish(cell, 5)
        assert cell.status == "error"
        again = waiting_cell(kernel.client, "%bitfusion acquire")
    kernel.client.finish(again)
    assert again.status == "ok"
    assert not [o for o in again.saved_outputs() if "Waiting" in str(o)]
    assert kernel.run("1").count == 1


@pytest.mark.parametrize("client", ["jupyter_client", "JupyterLab"])
def test_commands_in_their_place_among_other_cells(launch: Launch, pool: Pool, client: str) -> None:
    kernel = launch(START)
    if client == "JupyterLab":
        kernel.client.like_jupyterlab()
    cells = [
        kernel.client.send(code)
        for code in (
            f"import time; time.sleep({scaled(0.3)}); print('a')",
            "%bitfusion",
            "print('b')",
            "%bitfusion log",
            "3",
        )
    ]
    kernel.client.finish_all(*cells)
    assert [cell.status for cell in cells] == ["ok"] * 5
    assert [cell.count for cell in cells] == [1, 1, 2, 2, 3], "a command repeats the number before it"
    begins = [round(cell.seen_at[0], 1) for cell in cells]  # what two processes say crosses by microseconds
    assert begins == sorted(begins)


@pytest.mark.parametrize("code", ["x = 1\n%bitfusion\nprint(x)", "if True:\n    %bitfusion status\nprint(1)"])
def test_command_inside_other_code(launch: Launch, code: str) -> None:
    kernel = launch(FIRST_CELL)
    cell = kernel.run(code)
    assert (cell.status, cell.count) == ("ok", 1)
    assert DEVICE in text_of(cell)
    assert cell.stream().endswith("1\n")


def test_the_pool_is_the_same_table_inside_other_code(launch: Launch) -> None:
    kernel = launch(FIRST_CELL)
    kernel.run("1")
    alone, inside = (kernel.run(code) for code in ("%bitfusion pool", "x = 1\n%bitfusion pool"))
    shown = [[each["content"]["data"] for each in cell.of("display_data")] for cell in (alone, inside)]
    assert shown[0] == shown[1]
    assert "<table>" in shown[1][0]["text/html"]


@pytest.mark.parametrize("started", [False, True], ids=["before", "with"])
def test_tab_completes_commands_and_options_before_and_with_a_kernel(
    launch: Launch, pool: Pool, started: bool
) -> None:
    kernel = launch(FIRST_CELL)
    if started:
        kernel.run("1")
    for code, wanted in (("%bitfusion req", "request"), ("x = 1\n%bitfusion request --par", "--partial")):
        reply = kernel.client.request("complete_request", {"code": code, "cursor_pos": len(code)})
        assert reply["matches"] == [wanted]
        assert code[reply["cursor_start"] : reply["cursor_end"]] == code.split()[-1]
    assert len(pool.leases()) == started


@pytest.mark.parametrize("code", ["%bitfusion -h", "%bitfusion?", "%%bitfusion"])
def test_help_takes_no_gpu(launch: Launch, pool: Pool, code: str) -> None:
    kernel = launch(FIRST_CELL)
    cell = kernel.run(code)
    assert (cell.status, pool.leases()) == ("ok", [])
    assert "%bitfusion acquire    take the GPU now" in cell.stream()


def test_a_cell_magic_that_is_none_takes_no_gpu(launch: Launch, pool: Pool) -> None:
    kernel = launch(FIRST_CELL)
    cell = kernel.run("%%bitfusion\nprint(1)")
    assert "%%bitfusion is not a cell magic" in cell.error_text
    assert (cell.stream(), pool.leases()) == ("", [])


def test_the_help_of_the_client_in_cells(launch: Launch, pool: Pool) -> None:
    kernel = launch(FIRST_CELL)
    said = kernel.run("!bitfusion run --help; bitfusion run -n 1 -h").stream()
    assert said.count("-n N, --num_gpus N         number of GPUs, all from one server (required)") == 2
    assert "Error" not in said


def test_wrong_command_is_a_clear_error_and_aborts_what_follows(launch: Launch) -> None:
    kernel = launch(FIRST_CELL)
    cell, behind = kernel.send_together("%bitfusion frobnicate", "print('behind')")
    kernel.client.finish_all(cell, behind)
    assert cell.status == "error"
    assert "frobnicate" in cell.error_text
    assert "%bitfusion help" in cell.error_text
    assert behind.status == "aborted"


def test_client_command_works_in_cells(launch: Launch, pool: Pool) -> None:
    kernel: LiveKernel = launch(HALF)
    cell = kernel.run("!bitfusion list_gpus")
    assert f"{MEMORY_MIB // 2} MiB / {MEMORY_MIB} MiB" in cell.stream()
    cell = kernel.run("!bitfusion run -n 1 -p 0.5 -- python3 -c 'print(\"ran beside\")'")
    assert "ran beside" in cell.stream()
    assert len(pool.leases()) == 1


SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def folders_of(path: str) -> list[str]:
    """Without the one in front that has nothing but the `nvidia-smi` of simulated GPUs."""
    return [folder for folder in path.split(":") if not folder.endswith("/simulated_bin")]


def test_cells_find_the_commands_and_the_notebooks_python_without_an_activated_environment(
    launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", SYSTEM)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    kernel = launch(HALF)
    assert f"{MEMORY_MIB // 2} MiB / {MEMORY_MIB} MiB" in kernel.run("!bitfusion list_gpus").stream()
    assert "Nobody waits" not in kernel.run("!bitfusion-pool status").stream()
    assert f"{MEMORY_MIB // 2} │" in kernel.run("!bitfusion-pool status").stream()
    shown = kernel.run("!bitfusion run -n 1 -p 0.5 -- python3 -c 'import sys; print(sys.prefix)'").stream()
    assert sys.prefix in shown.split()
    folder = os.path.dirname(sys.executable)
    found = kernel.run("import os; print(os.environ['PATH'], os.environ.get('VIRTUAL_ENV'))").stream().split()
    assert (folders_of(found[0])[0], found[1]) == (folder, "None")


def test_an_activated_environment_keeps_its_path(
    launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.path.dirname(sys.executable)
    activated = f"/opt/mine/bin:{folder}:{SYSTEM}"
    monkeypatch.setenv("PATH", activated)
    monkeypatch.setenv("VIRTUAL_ENV", "/opt/mine")
    cell = "import os; print(os.environ['PATH'], os.environ['VIRTUAL_ENV'])"
    plain = launch("python3").run(cell).stream()
    assert plain.split() == [activated, "/opt/mine"]
    path, environment = launch(HALF).run(cell).stream().split()
    wanted = folders_of(activated)
    assert (folders_of(path)[: len(wanted)], environment) == (wanted, "/opt/mine")


def test_a_command_in_a_cell_does_not_wait_for_what_its_own_notebook_holds(
    launch: Launch, pool: Pool
) -> None:
    kernel = launch(FIRST_CELL)
    kernel.run("1")
    shown = kernel.run("!bitfusion run -n 1 -- true; echo status $?").stream()
    assert "status 1" in shown
    assert "holds 1 GPU itself and keeps it while this command waits, so it would wait forever" in shown
    assert "What to do: run the program itself, without `bitfusion`" in " ".join(shown.split())
    assert len(pool.leases()) == 1


def test_the_magic_works_when_a_logout_or_a_cell_has_taken_its_surroundings_away(
    launch: Launch, tmp_path: Path
) -> None:
    """`$XDG_RUNTIME_DIR` is removed when the user's last login ends."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    kernel = launch(FIRST_CELL, env=os.environ | {"XDG_RUNTIME_DIR": str(runtime)})
    assert text_of(kernel.run("pass\n%bitfusion")).startswith("Kernel ")
    shutil.rmtree(runtime)
    kernel.run("import os; os.environ.clear()")
    for command, word in (("", "Kernel "), ("pool", "held by"), ("list_gpus", "127.0.0.1:56001")):
        assert word in text_of(kernel.run(f"pass\n%bitfusion {command}"))
