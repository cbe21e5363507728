"""One line of a watch: parsed, garbled, or an error of the API server's."""

from __future__ import annotations

import json

import pytest

from bitfusion_cluster.api.errors import ApiError, Gone, ServerError, TooManyRequests
from bitfusion_cluster.watching.list_watch import GarbledEvent, parse_event


def line(kind: object, data: object) -> bytes:
    return json.dumps({"type": kind, "object": data}).encode()


def test_an_event_has_its_object_and_version() -> None:
    data = {"metadata": {"name": "nb", "resourceVersion": "7"}}
    event = parse_event(line("ADDED", data))
    assert (event.kind, event.data, event.version, event.label) == ("ADDED", data, "7", "ADDED")


@pytest.mark.parametrize("metadata", [None, [], {}, {"resourceVersion": 7}, {"resourceVersion": None}])
def test_an_object_without_a_version_has_none(metadata: object) -> None:
    assert parse_event(line("MODIFIED", {"metadata": metadata})).version == ""


def test_a_kind_that_nobody_knows_is_one_label() -> None:
    assert parse_event(line("SURPRISE", {})).label == "other"


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b"\xff",
        b"{}",
        b'{"type": "ADDED"}',
        line(5, {}),
        line("ADDED", None),
        line("ADDED", []),
        b"[" * 100_000,
    ],
)
def test_garbage_is_no_event(garbage: bytes) -> None:
    with pytest.raises(GarbledEvent):
        parse_event(garbage)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ({"code": 410, "reason": "Expired"}, Gone),
        ({"code": 410}, Gone),
        ({"code": 500, "reason": "Expired"}, Gone),
        ({"code": 429}, TooManyRequests),
        ({"code": 500}, ServerError),
        ({"code": "x"}, ServerError),
        ({}, ServerError),
    ],
)
def test_an_error_in_the_stream_is_the_api_servers(status: dict[str, object], kind: type[ApiError]) -> None:
    error = parse_event(line("ERROR", {"kind": "Status", "message": "why", **status})).error()
    assert type(error) is kind
    assert error.message == "why"
