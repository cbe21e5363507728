"""`%bitfusion pool`: the client's `list_gpus` as a table of servers and GPUs. Pure."""

from __future__ import annotations

from html import escape

from bitfusion_client.client_reports import parse_list_gpus


def render(list_gpus_output: str) -> dict[str, str]:
    """A MIME bundle. Output in a form we don't know is shown as it is."""
    servers = parse_list_gpus(list_gpus_output)
    if not servers:
        return {"text/plain": list_gpus_output}
    rows = []
    for server in servers:
        for gpu in server.gpus:
            free = f"{gpu.free_mib} of {gpu.total_mib} MiB"
            share = gpu.free_mib / gpu.total_mib if gpu.total_mib else 0.0
            rows.append(
                (server.address, str(gpu.id), getattr(gpu, "name", "") or "", free, share, server.tasks)
            )
    plain = [f"{'server':<24} {'GPU':<4} {'free memory':<24} tasks"]
    plain += [f"{address:<24} {gpu:<4} {free:<24} {tasks}" for address, gpu, _, free, _, tasks in rows]
    cells = "".join(
        f"<tr><td>{escape(address)}</td><td>{escape(gpu)} {escape(name)}</td>"
        '<td><div style="width:120px;height:10px;border:1px solid #8888;border-radius:3px">'
        f'<div style="width:{share:.0%};height:100%;background:#76b900"></div></div></td>'
        f"<td>{escape(free)}</td><td>{tasks}</td></tr>"
        for address, gpu, name, free, share, tasks in rows
    )
    head = "<tr><th>Server</th><th>GPU</th><th>Free</th><th>Free memory</th><th>Tasks</th></tr>"
    return {"text/plain": "\n".join(plain), "text/html": f"<table>{head}{cells}</table>"}
