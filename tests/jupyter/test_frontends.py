"""What frontends use besides cells: input, widgets, debugger, completion, subshells, encryption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zmq

from bitfusion_kernel.gpu.simulated import BANNER_LINE, pool_line
from tests.jupyter.client import Client, Message
from tests.jupyter.conftest import ALL, FIRST_CELL, OURS, PLAIN, START, Launch
from tests.jupyter.debugger import debug, stopped_cell
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import LiveKernel
from tests.support.waiting import wait_until


def test_input_is_asked_of_the_client_that_ran_the_cell(kernel: LiveKernel) -> None:
    asking, other = kernel.client, kernel.connect()
    cell = asking.send("name = input('name? '); print('hello', name)", allow_stdin=True)
    asking.pump(lambda: asking.input_requests, 20, "the input request")
    assert asking.input_requests[0]["content"] == {"prompt": "name? ", "password": False}
    other.settle(0.3)
    assert not other.input_requests
    asking.answer("Ada")
    asking.finish(cell)
    assert cell.stream() == "hello Ada\n"

    second = other.send("import getpass; print(getpass.getpass('secret? '))", allow_stdin=True)
    other.pump(lambda: other.input_requests, 20, "the input request")
    assert other.input_requests[0]["content"]["password"] is True
    other.answer("swordfish")
    other.finish(second)
    assert second.stream() == "swordfish\n"
    assert len(asking.input_requests) == 1


def test_input_without_a_client_to_ask_is_an_error(kernel: LiveKernel) -> None:
    assert kernel.run("input()", allow_stdin=False).error["ename"] == "StdinNotImplementedError"


def test_widgets_talk_over_comms(kernel: LiveKernel) -> None:
    client = kernel.client
    assert client.request("comm_info_request", {}) == {"status": "ok", "comms": {}}
    cell = client.run("import ipywidgets\nslider = ipywidgets.IntSlider(value=3)\nslider", limit_s=40)
    opened = [
        m
        for m in cell.of("comm_open")
        if m["content"]["data"]["state"].get("_model_name") == "IntSliderModel"
    ]
    comm_id = opened[0]["content"]["comm_id"]
    view = cell.of("execute_result")[0]["content"]["data"]["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == comm_id
    comms = client.request("comm_info_request", {"target_name": "jupyter.widget"})["comms"]
    assert comm_id in comms

    moved = client.ask("comm_msg", {"comm_id": comm_id, "data": {"method": "update", "state": {"value": 8}}})
    client.pump(
        lambda: any(m["content"].get("execution_state") == "idle" for m in client.messages_for(moved)),
        10,
        "the end of the comm message",
    )
    assert client.run("slider.value").result == "8"
    changed = client.run("slider.value = 9")
    assert changed.of("comm_msg")[0]["content"]["data"]["state"] == {"value": 9}


def test_binary_buffers_pass_both_ways(kernel: LiveKernel) -> None:
    client = kernel.client
    client.run(
        "def opened(comm, message):\n"
        "    @comm.on_msg\n"
        "    def echo(message):\n"
        "        data = bytes(message['buffers'][0])\n"
        "        comm.send({'size': len(data)}, buffers=[data[::-1]])\n"
        "get_ipython().kernel.comm_manager.register_target('echo', opened)"
    )
    client.ask("comm_open", {"comm_id": "c1", "target_name": "echo", "data": {}})
    message = client.session.msg("comm_msg", {"comm_id": "c1", "data": {}})
    payload = bytes(range(256)) * 4096
    client.session.send(client.channels.shell_channel.socket, message, buffers=[payload])
    client.pump(
        lambda: [m for m in client.iopub if m["msg_type"] == "comm_msg" and m["buffers"]],
        10,
        "the echoed buffer",
    )
    echoed = next(m for m in client.iopub if m["msg_type"] == "comm_msg" and m["buffers"])
    assert echoed["content"]["data"] == {"size": len(payload)}
    assert bytes(echoed["buffers"][0]) == payload[::-1]


def test_debugger_stops_at_a_breakpoint_set_before_the_first_cell(kernel: LiveKernel) -> None:
    client = kernel.client
    before = debug(client, "debugInfo")
    assert before["body"]["isStarted"] is False
    cell, thread, source = stopped_cell(client)
    assert source.startswith(before["body"]["tmpFilePrefix"]), "JupyterLab keeps the prefix it got first"
    frames = debug(client, "stackTrace", {"threadId": thread}, 7)["body"]["stackFrames"]
    assert frames[0]["line"] == 2
    scopes = debug(client, "scopes", {"frameId": frames[0]["id"]}, 8)["body"]["scopes"]
    variables = debug(client, "variables", {"variablesReference": scopes[0]["variablesReference"]}, 9)
    assert {"x": "2"}.items() <= {v["name"]: v["value"] for v in variables["body"]["variables"]}.items()
    assert cell.stream() == ""
    debug(client, "continue", {"threadId": thread}, 10)
    client.finish(cell)
    assert cell.stream() == "42\n"
    after = debug(client, "debugInfo", seq=11)
    assert after["body"]["isStarted"] is True
    assert after["body"]["tmpFilePrefix"] == before["body"]["tmpFilePrefix"]


def test_completion_inspection_and_history_after_a_cell(kernel: LiveKernel) -> None:
    client = kernel.client
    client.run("blueberry = 'fruit'")
    matches = client.request("complete_request", {"code": "blueb", "cursor_pos": 5})
    assert matches["matches"] == ["blueberry"]
    assert (matches["cursor_start"], matches["cursor_end"]) == (0, 5)
    found = client.request("inspect_request", {"code": "blueberry", "cursor_pos": 4, "detail_level": 0})
    assert found["found"] is True
    assert "fruit" in found["data"]["text/plain"]
    history = client.request(
        "history_request", {"hist_access_type": "tail", "n": 1, "raw": True, "output": False}
    )["history"]
    assert history[-1][2] == "blueberry = 'fruit'"


def test_completeness_of_code_is_told_before_the_first_cell(kernel: LiveKernel) -> None:
    answers = {
        "1 + 1": "complete",
        "for x in y:": "incomplete",
        "'''open": "incomplete",
        "import = 7q": "invalid",
    }
    for code, answer in answers.items():
        assert kernel.client.request("is_complete_request", {"code": code})["status"] == answer


def test_subshell_runs_while_the_main_shell_is_busy(kernel: LiveKernel) -> None:
    client = kernel.client
    asked = client.ask("create_subshell_request", {}, "control")
    client.run("import threading; value = 11; go_on = threading.Event()")
    subshell = client.reply_to(asked, what="create_subshell_request")["subshell_id"]
    assert client.request("list_subshell_request", {}, "control")["subshell_id"] == [subshell]
    busy = client.send("go_on.wait(); print('main done')")
    quick = client.send("print(value)", subshell_id=subshell)
    client.finish(quick, 10)
    assert quick.stream() == "11\n"
    assert not busy.done, "the subshell waited for the main shell"
    client.run("go_on.set()", subshell_id=subshell)
    client.finish(busy)
    assert client.request("delete_subshell_request", {"subshell_id": subshell}, "control")["status"] == "ok"
    assert client.request("list_subshell_request", {}, "control")["subshell_id"] == []


@pytest.mark.parametrize("name", ALL)
def test_curve_encryption(launch: Launch, name: str) -> None:
    kernel = launch(name, options={"transport_encryption": "required"})
    kernel.connect()
    assert kernel.manager.curve_publickey
    assert kernel.run("print('in secret')").stream() == "in secret\n"
    second = kernel.connect()
    assert second.run("1 + 1").result == "2"

    open_client = zmq.Context()
    try:
        socket = open_client.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(f"tcp://{kernel.manager.ip}:{kernel.manager.shell_port}")
        kernel.client.session.send(socket, "kernel_info_request", {})
        assert not socket.poll(700), "a client without the key was answered"
        socket.close()
    finally:
        open_client.destroy(linger=0)


@pytest.mark.parametrize("name", ALL)
def test_ipc_transport(launch: Launch, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # Jupyter names the sockets `kernel-ipc-1` to `-5`, in the working directory
    kernel = launch(name, options={"transport": "ipc"})
    kernel.connect()
    assert kernel.run("print('over ipc')").stream() == "over ipc\n"


def kernel_info(client: Client, channel: str = "shell") -> dict[str, Any]:
    """The reply without IPython's tip of the moment, and without our line in the banner."""
    content = client.request("kernel_info_request", channel=channel)
    banner = content["banner"].replace(f"{pool_line()}\n", "").replace(f"{BANNER_LINE}\n", "")
    return {**content, "banner": banner.partition("Tip:")[0]}


@pytest.mark.parametrize("name", OURS)
def test_kernel_info_is_the_plain_kernels_before_and_after_the_first_cell(launch: Launch, name: str) -> None:
    plain = kernel_info(launch(PLAIN).client)
    kernel = launch(name)
    assert kernel_info(kernel.client) == plain
    kernel.run("1")
    assert kernel_info(kernel.client) == plain
    assert kernel_info(kernel.client, channel="control") == plain


@pytest.mark.parametrize("name", OURS)
def test_the_banner_says_before_and_after_the_first_cell_that_simulated_gpus_compute_on_the_cpu(
    launch: Launch, name: str
) -> None:
    def lines(client: Client) -> list[str]:
        return list(client.request("kernel_info_request")["banner"].splitlines())

    assert BANNER_LINE not in lines(launch(PLAIN).client)
    kernel = launch(name)
    assert lines(kernel.client).count(pool_line()) == 1
    kernel.run("1")
    assert lines(kernel.client).count(BANNER_LINE) == 1


@pytest.mark.parametrize("name", OURS)
def test_nvidia_smi_and_the_magic_say_that_the_cpu_computes_and_no_other_cell_does(
    launch: Launch, name: str
) -> None:
    kernel = launch(name)
    assert kernel.run("print('mine')\n1 + 1").saved_outputs()[0]["text"] == "mine\n"
    shown = kernel.run("!nvidia-smi").stream().replace("\r", "")
    assert shown.startswith("SIMULATED: the CPU computes.")
    assert "16160 of 16160" in shown
    assert "its GPU is simulated, so the CPU computes" in kernel.run("%bitfusion").stream()


def welcomes(client: Client) -> list[Message]:
    return [message for message in client.iopub if message["msg_type"] == "iopub_welcome"]


@pytest.mark.parametrize("name", OURS)
def test_every_new_subscriber_is_welcomed(launch: Launch, name: str) -> None:
    kernel = launch(name)
    first = kernel.connect(ready=False)
    first.pump(lambda: welcomes(first), 10, "the first welcome")
    second = kernel.connect(ready=False)
    second.pump(lambda: welcomes(second), 10, "the second welcome")
    first.run("1")
    third = kernel.connect(ready=False)
    third.pump(lambda: welcomes(third), 10, "the third welcome")
    assert {message["content"]["subscription"] for message in welcomes(third)} == {""}


def test_both_clients_see_all_output(kernel: LiveKernel) -> None:
    first, second = kernel.client, kernel.connect()
    cell = first.send("print('for all')\n5")
    second.pump(
        lambda: [
            m for m in second.messages_for(cell.msg_id) if m["content"].get("execution_state") == "idle"
        ],
        20,
        "the end of the other client's cell",
    )
    first.finish(cell)
    kinds = [m["msg_type"] for m in second.messages_for(cell.msg_id) if m["msg_type"] not in ("status",)]
    assert kinds[-3:] == ["execute_input", "stream", "execute_result"]


def test_heart_beats_before_the_first_cell_and_in_a_long_one(kernel: LiveKernel, tmp_path: Path) -> None:
    heart = kernel.client.channels.hb_channel
    heart.unpause()
    wait_until(heart.is_beating, "the first heartbeat", 5)
    end = tmp_path / "end"
    cell = kernel.client.send(f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.05)")
    kernel.client.settle(2)
    wait_until(heart.is_beating, "a heartbeat while the cell runs", 5)
    assert not cell.done
    end.touch()
    kernel.client.finish(cell)


def test_usage_is_told_while_a_cell_runs(kernel: LiveKernel) -> None:
    kernel.run("import os")
    cell = kernel.client.send("import time; time.sleep(1)")
    usage = kernel.client.request("usage_request", {}, "control")
    assert usage["pid"] == int(str(kernel.run("os.getpid()").result))
    kernel.client.finish(cell)


def test_unknown_requests_harm_nothing(kernel: LiveKernel) -> None:
    kernel.client.ask("no_such_request", {"a": 1})
    kernel.client.ask("no_such_request", {"a": 1}, "control")
    assert kernel.run("1").count == 1


@pytest.mark.parametrize("name", [FIRST_CELL])
def test_nothing_but_a_cell_takes_a_gpu(launch: Launch, pool: Pool, name: str) -> None:
    client = launch(name).client
    assert client.request("complete_request", {"code": "pri", "cursor_pos": 3})["matches"] == []
    assert (
        client.request("inspect_request", {"code": "print", "cursor_pos": 3, "detail_level": 0})["found"]
        is False
    )
    history = client.request(
        "history_request", {"hist_access_type": "tail", "n": 5, "raw": True, "output": False}
    )
    assert history["status"] == "ok"
    client.request("comm_info_request")
    client.request("is_complete_request", {"code": "1"})
    client.request("interrupt_request", channel="control")
    client.settle(0.5)
    assert pool.leases() == []


def test_start_takes_the_gpu_before_any_cell(launch: Launch, pool: Pool) -> None:
    launch(START).connect()
    wait_until(lambda: len(pool.leases()) == 1, "the lease", 5)


def test_a_resource_panel_and_a_variable_inspector_of_an_open_notebook_are_answered_and_take_no_gpu(
    launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """jupyter-resource-usage on control; the inspector's code is not silent, but outside the history."""
    monkeypatch.setenv("BITFUSION_SILENT_WAIT", "1")
    shown = []
    for name in (PLAIN, FIRST_CELL):
        client = launch(name).connect()
        shown.append(client.request("usage_request", channel="control"))
        inspector = client.send("x = 1", store_history=False, stop_on_error=False, allow_stdin=True)
        assert client.finish(inspector).status == "ok"
    plain, ours = shown
    assert set(plain) - set(ours) <= {"host_cpu_percent"}, "ipykernel leaves it out of its first reply, too"
    assert set(plain["host_virtual_memory"]) <= set(ours["host_virtual_memory"])
    assert pool.leases() == []
    assert client.run("x").result == "1", "it is run when the kernel has come"
