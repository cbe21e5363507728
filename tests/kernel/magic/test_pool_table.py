"""`%bitfusion pool`: the client's `list_gpus` as a table, or as it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.magic import pool_table


@given(st.text(max_size=200))
def test_text_of_an_unknown_form_is_shown_as_it_is(text: str) -> None:
    data = pool_table.render(text)
    if "text/html" not in data:
        assert data == {"text/plain": text}


def test_servers_and_gpus_become_rows_and_names_are_text() -> None:
    data = pool_table.render(
        "- server 0 [10.0.0.1:56001]: running 1 tasks\n"
        "   |- GPU 0: free memory 8080 MiB / 16160 MiB  Tesla <b>V100\n"
        "   |- GPU 1: free memory 0 MiB / 16160 MiB\n"
    )
    header, first, second = data["text/plain"].splitlines()
    assert header.split() == ["server", "GPU", "free", "memory", "tasks"]
    assert first.split() == ["10.0.0.1:56001", "0", "8080", "of", "16160", "MiB", "1"]
    assert second.split()[1:4] == ["1", "0", "of"]
    assert "0 Tesla &lt;b&gt;V100" in data["text/html"]
    assert "width:50%" in data["text/html"]
    assert data["text/html"].count("<tr>") == 3
