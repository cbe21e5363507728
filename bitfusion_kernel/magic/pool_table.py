"""The table of `%bitfusion pool`: the servers and GPUs that `bitfusion list_gpus` lists, with bars. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bitfusion_client.client_reports import parse_list_gpus

if TYPE_CHECKING:
    from bitfusion_client.client_reports import GpuStatus, ServerStatus

_PLAIN_HEAD = f"{'server':<24} {'GPU':<4} {'free memory':<24} tasks"
_HTML_HEAD = "<tr><th>Server</th><th>GPU</th><th>Free</th><th>Free memory</th><th>Tasks</th></tr>"


def render(list_gpus_output: str) -> dict[str, str]:
    """The table as a MIME bundle; output in an unknown form is shown as it is."""
    servers = parse_list_gpus(list_gpus_output)
    if not servers:
        return {"text/plain": list_gpus_output}
    rows = [(server, gpu) for server in servers for gpu in server.gpus]
    html = "".join(_html_row(server, gpu) for server, gpu in rows)
    return {
        "text/plain": "\n".join([_PLAIN_HEAD, *(_plain_row(server, gpu) for server, gpu in rows)]),
        "text/html": f"<table>{_HTML_HEAD}{html}</table>",
    }


def _plain_row(server: ServerStatus, gpu: GpuStatus) -> str:
    return f"{server.address:<24} {gpu.id:<4} {_free(gpu):<24} {server.tasks}"


def _html_row(server: ServerStatus, gpu: GpuStatus) -> str:
    share = gpu.free_mib / gpu.total_mib if gpu.total_mib else 0.0
    return (
        f"<tr><td>{escape(server.address)}</td><td>{gpu.id} {escape(gpu.name)}</td>"
        '<td><div style="width:120px;height:10px;border:1px solid #8888;border-radius:3px">'
        f'<div style="width:{share:.0%};height:100%;background:#76b900"></div></div></td>'
        f"<td>{_free(gpu)}</td><td>{server.tasks}</td></tr>"
    )


def _free(gpu: GpuStatus) -> str:
    return f"{gpu.free_mib} of {gpu.total_mib} MiB"
