"""The stream of a watch: whole lines, silence, resets, an end from another thread."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import (
    Gone,
    NoAnswer,
)
from tests.bitfusion_cluster.api.in_cluster import in_cluster
from tests.bitfusion_cluster.fake_api import FakeApi, fake_api
from tests.bitfusion_cluster.faults import raw, reset, stall, status
from tests.notebook_controller_patch.reconcile.objects import NOTEBOOKS, notebook
from tests.support.machine import scaled
from tests.support.waiting import wait_until

PATH = "/apis/kubeflow.org/v1/namespaces/ann/notebooks"
WATCH_QUERY: dict[str, str | int | bool] = {"watch": True, "timeoutSeconds": 60, "resourceVersion": "0"}
SHORT = (1.0, 0.5)


def test_a_stream_gives_whole_lines(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(raw(b'{"a":', b"1}\n\n", b'{"b":2}\n{"c"', b":3}\n", b'{"half'))
    with api.stream(NOTEBOOKS, WATCH_QUERY, 5) as stream:
        assert list(stream.lines()) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_an_error_instead_of_a_stream_is_raised(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(status(410, "Expired"))
    with pytest.raises(Gone):
        api.stream(NOTEBOOKS, WATCH_QUERY, 5)


def test_silence_in_a_stream_ends_it(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(raw(b"{}\n", then=stall))
    with api.stream(NOTEBOOKS, WATCH_QUERY, 3600) as stream:
        lines = stream.lines()
        assert next(lines) == b"{}"
        stream.set_read_timeout(0.2)
        with pytest.raises(NoAnswer, match="timed out"):
            next(lines)


def test_a_reset_in_a_stream_is_no_answer(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(raw(then=reset))
    with api.stream(NOTEBOOKS, WATCH_QUERY, 5) as stream, pytest.raises(NoAnswer):
        list(stream.lines())


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_stream_is_closed_from_another_thread(
    over_tls: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with fake_api(certificate if over_tls else None) as server:
        if over_tls:
            in_cluster(monkeypatch, server, tmp_path, certificate[0])
            api = KubernetesApi.load()
        else:
            api = server.client()
        server.put(NOTEBOOKS, notebook("nb"))
        lines: list[Any] = []
        opened = threading.Event()

        def read() -> None:
            with api.stream(NOTEBOOKS, WATCH_QUERY, 300) as stream:
                streams.append(stream)
                opened.set()
                lines.extend(stream.lines())
            lines.append("ended")

        streams: list[Any] = []
        reader = threading.Thread(target=read)
        reader.start()
        assert opened.wait(scaled(5))
        wait_until(lambda: server.watching(NOTEBOOKS))
        time.sleep(0.1)
        streams[0].close()
        streams[0].close()
        reader.join(scaled(5))
        assert not reader.is_alive(), "the read goes on"
        assert lines[-1] == "ended"
        api.close()
