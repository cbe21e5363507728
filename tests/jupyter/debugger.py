"""A debugger as JupyterLab's: its requests on control, and a cell that stands at a breakpoint."""

from __future__ import annotations

from typing import Any

from tests.jupyter.client import Cell, Client


def debug(
    client: Client, command: str, arguments: dict[str, Any] | None = None, seq: int = 1
) -> dict[str, Any]:
    request = {"seq": seq, "type": "request", "command": command, "arguments": arguments or {}}
    return client.request("debug_request", request, "control", limit_s=30)


def stopped_cell(client: Client) -> tuple[Cell, int, str]:
    """Turn it on, and run a cell up to its second line: the cell, its thread, the path of its source.

    The cell prints 42 once the request `continue` has come for that thread.
    """
    debug(client, "initialize", {"clientID": "test", "adapterID": "", "pathFormat": "path"}, 2)
    assert debug(client, "attach", {}, 3)["success"] is True
    code = "x = 2\ny = x * 21\nprint(y)"
    source = str(debug(client, "dumpCell", {"code": code}, 4)["body"]["sourcePath"])
    breakpoints = {"breakpoints": [{"line": 2}], "source": {"path": source}, "sourceModified": False}
    assert debug(client, "setBreakpoints", breakpoints, 5)["success"] is True
    debug(client, "configurationDone", {}, 6)
    cell = client.send(code)

    def stops() -> list[int]:
        events = [m["content"] for m in client.iopub if m["msg_type"] == "debug_event"]
        return [event["body"]["threadId"] for event in events if event["event"] == "stopped"]

    client.pump(stops, 20, "the stop at the breakpoint")
    return cell, stops()[0], source
