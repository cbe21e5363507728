"""`%bitfusion pool`: the client's `list_gpus` as a table, or as it is."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.magic import pool_table


@given(st.text(max_size=200))
def test_text_of_an_unknown_form_is_shown_as_it_is(text: str) -> None:
    data = pool_table.render(text)
    if "text/html" not in data:
        assert data == {"text/plain": text}


EMBEDDED = """\
- server 0 [127.0.0.1:56001]: running 2 tasks
   |- GPU 0: free memory 0 MiB / 16160 MiB (Tesla)
   |  |- 8080 MiB held by ada: <i>.ipynb (1 GPU × 50 %, since 14:03)
   |  |- 8080 MiB held by bob: b.ipynb (1 GPU × 50 %, since 14:04)
   |- GPU 1: free memory 16160 MiB / 16160 MiB (Tesla)
- waiting, position 1: cleo: <u>.ipynb (2 GPUs, since 14:05)
- waiting, position 2: dan: d.ipynb (1 GPU, since 14:06)
"""


def test_who_holds_and_who_waits_is_shown_where_the_client_tells_it() -> None:
    data = pool_table.render(EMBEDDED)
    assert data["text/plain"].splitlines() == [
        "server                   GPU  free memory              tasks",
        "127.0.0.1:56001          0    0 of 16160 MiB           2",
        "     8080 MiB held by ada: <i>.ipynb (1 GPU × 50 %, since 14:03)",
        "     8080 MiB held by bob: b.ipynb (1 GPU × 50 %, since 14:04)",
        "127.0.0.1:56001          1    16160 of 16160 MiB       0",
        "Waiting:",
        "     position 1: cleo: <u>.ipynb (2 GPUs, since 14:05)",
        "     position 2: dan: d.ipynb (1 GPU, since 14:06)",
    ]
    html = data["text/html"]
    assert html.count("<tbody>") == 3, "one for each GPU, one for the queue"
    whole_width = '<tr><td colspan="5" style="text-align:left'
    held = "8080 MiB held by ada: &lt;i&gt;.ipynb (1 GPU × 50 %, since 14:03)<br>8080 MiB held by bob"
    assert f'{whole_width};padding-left:2em">{held}' in html
    queue = "Waiting:<br>position 1: cleo: &lt;u&gt;.ipynb (2 GPUs, since 14:05)<br>position 2: dan"
    assert f'{whole_width}">{queue}' in html


CLUSTER = """\
- server 0 [n1]: running 0 tasks
   |- GPU 0: free memory 40960 MiB / 40960 MiB (NVIDIA-A100)
- server 1 [n2]: running 1 tasks
   |- GPU 0: free memory 0 MiB / 0 MiB (GPU of the cluster)
   |  |- held by digits-0-gpu-1: -n 1, since 16:53, idle 12 min 05 s
   |- GPU 1: free memory 0 MiB / 0 MiB (GPU of the cluster)
- waits: mnist-0-gpu-2: -n 1 -p 0.5, since 16:53
- GPU pods of other namespaces are not visible: GPUs that look free may be held there
"""
"""As `bitfusion list_gpus` of a client that makes GPU pods (`tests/pods/command/test_reports.py`)."""


def test_gpus_of_a_cluster_are_held_here_or_not_and_what_is_not_seen_is_said() -> None:
    data = pool_table.render(CLUSTER)
    assert data["text/plain"].splitlines() == [
        "server                   GPU  free memory              tasks",
        "n1                       0    40960 of 40960 MiB       0",
        "n2                       0    held                     1",
        "     held by digits-0-gpu-1: -n 1, since 16:53, idle 12 min 05 s",
        "n2                       1    not held here            0",
        "Waiting:",
        "     mnist-0-gpu-2: -n 1 -p 0.5, since 16:53",
        "GPU pods of other namespaces are not visible: GPUs that look free may be held there",
    ]
    assert "GPU pods of other namespaces are not visible" in data["text/html"]


def test_many_holders_and_waiters_are_counted() -> None:
    holders = "".join(f"   |  |- 1 MiB held by h{number}\n" for number in range(30))
    waiting = "".join(f"- waiting, position {number}: w{number}\n" for number in range(1, 1001))
    gpu = "- server 0 [a:1]: running 30 tasks\n   |- GPU 0: free memory 0 MiB / 30 MiB\n"
    lines = pool_table.render(gpu + holders + waiting)["text/plain"].splitlines()
    assert lines[1].split()[-1] == "30"
    assert (lines[11], lines[12]) == ("     1 MiB held by h9", "     and 20 more")
    assert (lines[-2], lines[-1]) == ("     position 10: w10", "     and 990 more")
    assert len(lines) == 25
    ten = waiting[: waiting.index("- waiting, position 11:")]
    assert pool_table.render(gpu + ten)["text/plain"].endswith("     position 10: w10")


def test_nobody_waits_is_said_where_the_client_would_tell() -> None:
    free = "- server 0 [a:1]: running 1 tasks\n   |- GPU 0: free memory 1 MiB / 2 MiB\n"
    assert "Waiting" not in pool_table.render(free)["text/plain"]
    held = pool_table.render(free + "   |  |- 1 MiB held by ada\n")["text/plain"]
    assert held.splitlines()[-1] == "Nobody waits."


def test_servers_and_gpus_become_rows_and_names_are_text() -> None:
    data = pool_table.render(
        "- server 0 [10.0.0.1:56001]: running 1 tasks\n"
        "   |- GPU 0: free memory 8080 MiB / 16160 MiB  Tesla <b>V100\n"
        "   |- GPU 1: free memory 0 MiB / 16160 MiB\n"
    )
    header, first, second = data["text/plain"].splitlines()
    assert header.split() == ["server", "GPU", "free", "memory", "tasks"]
    assert first.split() == ["10.0.0.1:56001", "0", "8080", "of", "16160", "MiB", "1", "on", "server"]
    assert second.split()[1:4] == ["1", "0", "of"]
    assert "0 Tesla &lt;b&gt;V100" in data["text/html"]
    assert "<th>Held</th>" in data["text/html"]
    bars = re.findall(r"width:(\d+%);height:100%", data["text/html"])
    assert bars == ["50%", "100%"], "full is held, as everywhere"
    assert data["text/html"].count("<tr>") == 3
