"""The messages between clients and a pool's service: to a line and back, and lines that are none."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import dataclass
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.typed_lines import InvalidMessage
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import HELD, PROCESS, Entry, Holder
from bitfusion_pool.messages import from_client, from_service
from bitfusion_pool.messages.from_client import Acquire, Alive, Hello, Look, parse_from_client
from bitfusion_pool.messages.from_service import (
    Granted,
    PoolSnapshot,
    Welcome,
    format_snapshot,
    parse_from_service,
)
from bitfusion_pool.messages.message import LONGEST_FROM_CLIENT, Message, lines_of
from tests.pool.messages.any_message import messages_of_clients, messages_of_services, snapshots

GRANTED = Granted(
    Entry(
        1,
        "abc",
        HELD,
        PROCESS,
        GpuRequest(),
        Holder("a.ipynb", "ann"),
        ("a:1",),
        1.0,
        2.0,
        None,
        (Share("a:1", 0, 16160),),
    ),
    Server("a", "a", 1, (Device(0, "V100", 16160),)),
    "secret",
)

json_values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(messages_of_clients)
def test_every_message_of_a_client_comes_back_from_its_line(message: Message) -> None:
    line = message.format()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_from_client(line) == message


@given(messages_of_services)
def test_every_message_of_a_service_comes_back_from_its_line(message: Message) -> None:
    line = message.format()
    assert line.count(b"\n") == 1
    assert parse_from_service(line[:-1]) == message


@pytest.mark.parametrize("messages", [from_client.MESSAGES, from_service.MESSAGES])
def test_every_type_has_its_own_name_on_the_wire(messages: tuple[type[Message], ...]) -> None:
    names = [message.TYPE for message in messages]
    assert all(names)
    assert len(set(names)) == len(names)


def test_the_lines_are_these() -> None:
    assert Look().format() == b'{"type":"look"}\n'
    assert Hello(1, "bitfusion 0.1").format() == (
        b'{"type":"hello","protocol":1,"program":"bitfusion 0.1","token":"","segment":0}\n'
    )
    assert Acquire(GpuRequest(2, 0.5), label="a.ipynb").format() == (
        b'{"type":"acquire","request":{"gpus":2,"partial":0.5},"kind":"process","label":"a.ipynb","pid":0,'
        b'"host":"","inside":"","wait":true}\n'
    )


def test_a_field_with_a_default_may_be_missing_and_unknown_ones_are_passed_over() -> None:
    assert parse_from_client(b'{"type": "hello", "protocol": 1, "colour": ["red"]}') == Hello(1)


@dataclass(frozen=True, slots=True)
class WelcomeBefore(Message):
    """As the version before has it, which does not say what software the service runs."""

    TYPE = "welcome"
    protocol: int
    pool: str
    client_id: str
    simulated: bool
    servers: tuple[Server, ...]
    emulation: str = ""
    closed_s: float = 15.0
    silent_s: float = 120.0
    heartbeat_s: float = 5.0
    token_expires_at: float = 0.0


def test_versions_before_and_after_the_one_of_software_welcome_each_other() -> None:
    fields = 1, "the pool", "id", True, (GRANTED.server,), "", 1.0, 2.0, 3.0, 4.0
    before, now = WelcomeBefore(*fields), Welcome(*fields, "0.1.0", 5.0)
    assert b"software" not in before.format()
    assert parse_from_service(before.format()) == Welcome(*fields, "")
    assert lines_of((WelcomeBefore,)).parse(now.format()) == before


@dataclass(frozen=True, slots=True)
class HelloBefore(Message):
    """As the version before has it, which does not say what its machine announces."""

    TYPE = "hello"
    protocol: int
    program: str = ""
    token: str = ""


def test_versions_before_and_after_the_one_of_routes_understand_each_other() -> None:
    before, now = HelloBefore(1, "x", "token"), Hello(1, "x", "token", 744)
    assert parse_from_client(before.format()) == Hello(1, "x", "token", 0)
    assert lines_of((HelloBefore,)).parse(now.format()) == before
    fields = 1, "the pool", "id", True, (GRANTED.server,), "", 1.0, 2.0, 3.0, 4.0
    welcome = parse_from_service(WelcomeBefore(*fields).format())
    assert isinstance(welcome, Welcome)
    assert welcome.route == ""


def test_a_type_that_this_version_does_not_know_is_passed_over() -> None:
    assert parse_from_client(b'{"type": "dance"}') is None
    assert parse_from_service(b'{"type": "dance"}') is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "it is not JSON"),
        (b"hello", "it is not JSON"),
        (b"\xff\xfe{\x00}\x00", "it is not UTF-8"),
        ('{"type": "look"}'.encode("utf-16-le"), "it is not JSON"),
        (b"[1]", "it is not a JSON object"),
        (b"[" * LONGEST_FROM_CLIENT, "it is not JSON"),
        (b'{"a":' * 3000, "it is not JSON"),
        (b'{"type": "hello", "protocol": ' + b"9" * 9000 + b"}", "it is not JSON"),
        (b"{}", 'it has no "type"'),
        (b'{"type": 1}', 'it has no "type"'),
        (b'{"type": "hello"}', "hello: protocol is missing"),
        (
            b'{"type": "hello", "protocol": "1"}',
            'hello: protocol is "1" and must be a whole number of at most 53 bits',
        ),
        (
            b'{"type": "hello", "protocol": true}',
            'hello: protocol is "true" and must be a whole number of at most 53 bits',
        ),
        (
            b'{"type": "hello", "protocol": 9007199254740993}',
            'hello: protocol is "9007199254740993" and must be a whole number of at most 53 bits',
        ),
        (b'{"type": "hello", "protocol": NaN}', "it is not JSON"),
        (b'{"type": "end", "entry": null}', 'end: entry is "null" and must be text'),
        (
            b'{"type": "end", "entry": "\\ud800"}',
            'end: entry is "\\ud800" and must be text without half characters',
        ),
        (b'{"type": "acquire", "request": []}', 'acquire: request is "[]" and must be an object'),
        (
            b'{"type": "acquire", "request": {"gpus": 1}, "wait": 1}',
            'acquire: wait is "1" and must be true or false',
        ),
    ],
)
def test_a_line_that_is_no_message_is_refused_in_words(line: bytes, words: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse_from_client(line)
    assert str(refused.value) == words


def test_a_wrong_request_is_refused_in_the_words_of_requests() -> None:
    with pytest.raises(InvalidRequest, match='invalid value "0" for gpus'):
        parse_from_client(b'{"type": "acquire", "request": {"gpus": 0}}')


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(line: bytes) -> None:
    for parse in (parse_from_client, parse_from_service):
        try:
            parse(line)
        except (InvalidMessage, InvalidRequest):
            pass


@given(
    st.sampled_from([*from_client.MESSAGES, *from_service.MESSAGES]),
    st.data(),
)
def test_no_values_raise_anything_else(message: type[Message], data: st.DataObject) -> None:
    fields = {name: data.draw(json_values) for name in message.__annotations__}
    line = json.dumps({"type": message.TYPE, **fields}).encode()
    for parse in (parse_from_client, parse_from_service):
        try:
            parse(line)
        except (InvalidMessage, InvalidRequest):
            pass


@given(st.data())
def test_no_change_in_the_middle_raises_anything_else(data: st.DataObject) -> None:
    line = bytearray(data.draw(messages_of_services).format())
    for _ in range(3):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_from_service(bytes(line))
    except InvalidMessage:
        pass


@given(snapshots, st.integers(1000, 5000))
def test_a_snapshot_leaves_out_the_last_entries_until_it_fits(snapshot: PoolSnapshot, longest: int) -> None:
    line = format_snapshot(snapshot, longest)
    read = parse_from_service(line)
    assert isinstance(read, PoolSnapshot)
    assert read.entries == snapshot.entries[: len(read.entries)]
    assert read.left_out == snapshot.left_out + len(snapshot.entries) - len(read.entries)
    assert len(line) <= longest or not read.entries
    assert len(read.entries) == len(snapshot.entries) or len(snapshot.format()) > longest


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("server", "devices", 0), {"number": 0}, "misses a field"),
        (("server",), {"name": "a", "devices": []}, "misses a field"),
        (("server", "devices"), None, "must be a list"),
        (("entry", "holder"), {}, "misses a field"),
        (("entry", "state"), "lost", "has the state lost or the kind process, which nobody knows"),
        (("entry", "request", "gpus"), 0, 'invalid value "0" for gpus: '),
        (("entry", "shares", 0), ["a:1", 0], "must be a list of [server, device, MiB]"),
        (("entry", "requested_at"), "now", "must be a number"),
        (("entry", "granted_at"), 1e999, "must be a number"),
    ],
)
def test_a_wrong_value_within_a_message_is_refused_in_words(
    path: tuple[str | int, ...], value: object, words: str
) -> None:
    fields = json.loads(GRANTED.format())
    inner = fields
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(InvalidMessage, match=f"^granted: {path[0]} is .* and {re.escape(words)}"):
        parse_from_service(json.dumps(fields).replace("Infinity", "1e999").encode())


def test_alive_is_the_same_message_both_ways() -> None:
    assert parse_from_client(Alive().format()) == parse_from_service(Alive().format()) == Alive()
