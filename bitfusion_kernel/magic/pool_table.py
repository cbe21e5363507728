"""What `bitfusion list_gpus` tells: the table of `%bitfusion pool`, and what no server can ever give. Pure.

Who holds the GPUs and who waits is shown where the client tells it: the embedded one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bitfusion_client.command.client_reports import (
    GpuStatus,
    ServerStatus,
    parse_list_gpus,
    parse_notes,
    parse_waiting,
)
from bitfusion_client.errors import NeverSatisfiable
from bitfusion_client.request.gpu_request import GpuRequest

_PLAIN_HEAD = f"{'server':<24} {'GPU':<4} {'free memory':<24} tasks"
_HTML_HEAD = (
    "<thead><tr><th>Server</th><th>GPU</th><th>Held</th><th>Free memory</th><th>Tasks</th></tr></thead>"
)
_MOST_TOLD = 3  # sizes of servers
_MOST_NAMED = 10  # holders of one GPU, and waiters; the others are counted


def render(list_gpus_output: str) -> dict[str, str]:
    """The table as a MIME bundle; output in an unknown form is shown as it is."""
    servers = parse_list_gpus(list_gpus_output)
    if not servers:
        return {"text/plain": list_gpus_output}
    rows = [(server, gpu) for server in servers for gpu in server.gpus]
    plain = [_PLAIN_HEAD]
    for server, gpu in rows:
        plain += [_plain_row(server, gpu), *map(_indented, _lines_of(gpu))]
    parts = [_html_row(server, gpu) + _html_lines(_lines_of(gpu), indent=True) for server, gpu in rows]
    queue = _queue(servers, parse_waiting(list_gpus_output))
    if queue:
        plain += [queue[0], *map(_indented, queue[1:])]
        parts.append(_html_lines(queue))
    notes = parse_notes(list_gpus_output)
    plain += notes
    parts += [_html_lines(notes)] if notes else []
    # JupyterLab colours every second row of a <tbody>: with one for each GPU, that of its holders
    html = "".join(f"<tbody>{part}</tbody>" for part in parts)
    return {"text/plain": "\n".join(plain), "text/html": f"<table>{_HTML_HEAD}{html}</table>"}


def _queue(servers: list[ServerStatus], waiting: tuple[str, ...]) -> list[str]:
    """A title and who waits; empty if nobody has told."""
    if waiting:
        return ["Waiting:", *first_of(waiting)]
    told = any(gpu.holders or gpu.notes for server in servers for gpu in server.gpus)
    return ["Nobody waits."] if told else []


def _lines_of(gpu: GpuStatus) -> list[str]:
    return [*first_of(gpu.notes), *first_of(gpu.holders)]


def first_of(names: tuple[str, ...]) -> list[str]:
    """Those that are named; the others are counted."""
    more = len(names) - _MOST_NAMED
    return [*names[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else ())]


def _indented(line: str) -> str:
    return f"     {line}"


def _html_lines(lines: list[str], *, indent: bool = False) -> str:
    """A row of the table's whole width; empty if there are no lines."""
    if not lines:
        return ""
    style = "text-align:left" + (";padding-left:2em" if indent else "")
    return f'<tr><td colspan="5" style="{style}">{"<br>".join(map(escape, lines))}</td></tr>'


def _tasks(server: ServerStatus, gpu: GpuStatus) -> str:
    return str(len(gpu.holders)) if server.tells_holders else f"{server.tasks} on server"


def _plain_row(server: ServerStatus, gpu: GpuStatus) -> str:
    return f"{server.address:<24} {gpu.id:<4} {_free(gpu):<24} {_tasks(server, gpu)}"


def _html_row(server: ServerStatus, gpu: GpuStatus) -> str:
    # full is held, as in `bitfusion-pool status`
    share = 1 - gpu.free_mib / gpu.total_mib if gpu.total_mib else float(bool(gpu.holders))
    return (
        f"<tr><td>{escape(server.address)}</td><td>{gpu.id} {escape(gpu.name)}</td>"
        '<td><div style="width:120px;height:10px;border:1px solid #8888;border-radius:3px">'
        f'<div style="width:{share:.0%};height:100%;background:#76b900"></div></div></td>'
        f"<td>{_free(gpu)}</td><td>{_tasks(server, gpu)}</td></tr>"
    )


def _free(gpu: GpuStatus) -> str:
    if not gpu.total_mib:  # GPUs of a cluster, whose memory nobody tells
        return "held" if gpu.holders else "not held here"  # pods of other namespaces are not seen
    return f"{gpu.free_mib} of {gpu.total_mib} MiB"


def check_satisfiable(request: GpuRequest, list_gpus_output: str) -> None:
    """Refuse what no server has enough GPUs or memory for. What is free now does not count.

    Filters are left to the pool, and so is everything in output of an unknown form.

    Raises:
        NeverSatisfiable: Names what the servers have.
    """
    servers = servers_asked(request, list_gpus_output)
    if servers and not any(could_give(server, request) for server in servers):
        raise NeverSatisfiable(request, f"the servers have: {_told(servers)}")


def servers_asked(request: GpuRequest, list_gpus_output: str) -> list[ServerStatus]:
    """The servers that a request may be served by; none where the output does not tell."""
    servers = [server for server in parse_list_gpus(list_gpus_output) if server.gpus]
    if any(not gpu.total_mib for server in servers for gpu in server.gpus):
        return []  # GPUs of a cluster, of which not all may be seen
    named = [server for server in servers if server.address in request.servers]
    if len(named) < len(set(request.servers)):
        return []  # the list may know them under other names
    return named or servers


def could_give(server: ServerStatus, request: GpuRequest, *, of_free: bool = False) -> bool:
    """Whether a server has the GPUs with their memory: at all, or `of_free` without what is held now."""
    there = [(gpu.free_mib if of_free else gpu.total_mib, gpu.total_mib) for gpu in server.gpus]
    enough = [mib for mib, total in there if mib >= request.memory_per_gpu(total)]
    return len(enough) >= request.gpus


def _told(servers: Sequence[ServerStatus]) -> str:
    sizes = {(len(server.gpus), max(gpu.total_mib for gpu in server.gpus)) for server in servers}
    largest = sorted(sizes, reverse=True)
    words = [f"{GpuRequest(min(gpus, 1024)).describe()} of {mib} MiB" for gpus, mib in largest[:_MOST_TOLD]]
    if len(largest) > _MOST_TOLD:
        words.append(f"and {len(largest) - _MOST_TOLD} smaller sizes")
    return ", ".join(words)
