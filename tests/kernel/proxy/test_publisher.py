"""What the proxy publishes, in the form in which ipykernel does."""

from __future__ import annotations

import pytest

from bitfusion_kernel.protocol.wire import Message
from bitfusion_kernel.proxy.jupyter.publisher import Publisher
from tests.kernel.proxy.parts import WIRE, RecordingSocket

PARENT = {"msg_id": "p"}


def _published(publish: object) -> Message:
    socket = RecordingSocket()
    publish(Publisher(WIRE, socket))  # type: ignore[operator]  # a lambda of the table
    (message,) = socket.messages()
    return message


@pytest.mark.parametrize(
    ("publish", "message_type", "content"),
    [
        (lambda p: p.status("busy", PARENT), "status", {"execution_state": "busy"}),
        (lambda p: p.stream("x", PARENT), "stream", {"name": "stdout", "text": "x"}),
        (lambda p: p.clear(PARENT), "clear_output", {"wait": False}),
        (
            lambda p: p.show({"text/plain": "x"}, PARENT),
            "display_data",
            {"data": {"text/plain": "x"}, "metadata": {}, "transient": {}},
        ),
        (
            lambda p: p.display({"text/plain": "x"}, "d", PARENT, update=False),
            "display_data",
            {"data": {"text/plain": "x"}, "metadata": {}, "transient": {"display_id": "d"}},
        ),
        (
            lambda p: p.display({"text/plain": "x"}, "d", PARENT, update=True),
            "update_display_data",
            {"data": {"text/plain": "x"}, "metadata": {}, "transient": {"display_id": "d"}},
        ),
        (
            lambda p: p.error("Oops", "why", ["Oops: why"], PARENT),
            "error",
            {"ename": "Oops", "evalue": "why", "traceback": ["Oops: why"]},
        ),
    ],
)
def test_messages(publish: object, message_type: str, content: dict[str, object]) -> None:
    message = _published(publish)
    assert (message.type, message.content, message.parent_header) == (message_type, content, PARENT)
    assert message.identities == [f"kernel.bitfusion.{message_type}".encode()]


@pytest.mark.parametrize(("topic", "identities"), [(b"", []), (b"kernel.x", [b"kernel.x"])])
def test_a_new_subscriber_is_welcomed_on_its_topic(topic: bytes, identities: list[bytes]) -> None:
    socket = RecordingSocket()
    socket.incoming.append([b"\x01" + topic])
    Publisher(WIRE, socket).welcome_subscriber()
    (welcome,) = socket.messages()
    assert (welcome.type, welcome.content) == ("iopub_welcome", {"subscription": topic.decode()})
    assert welcome.identities == identities


def test_a_new_subscriber_hears_which_cell_waits() -> None:
    socket = RecordingSocket()
    publisher = Publisher(WIRE, socket)
    publisher.stay_busy_with(PARENT)
    socket.incoming += [[b"\x01"], [b"\x00"]]
    publisher.welcome_subscriber()
    publisher.welcome_subscriber()
    welcome, state = socket.messages()
    assert welcome.type == "iopub_welcome"
    assert (state.content, state.parent_header) == ({"execution_state": "busy"}, PARENT)


def test_the_kernel_is_busy_again_after_each_request_that_is_answered_while_a_cell_waits() -> None:
    socket = RecordingSocket()
    publisher = Publisher(WIRE, socket)
    other = {"msg_id": "other"}
    publisher.stay_busy_with(PARENT)
    publisher.status("busy", other)
    publisher.status("idle", other)
    publisher.stay_busy_with(None)
    publisher.status("idle", PARENT)
    publisher.status("idle", other)
    assert [(m.content["execution_state"], m.parent_header) for m in socket.messages()] == [
        ("busy", other),
        ("idle", other),
        ("busy", PARENT),
        ("idle", PARENT),
        ("idle", other),
    ]


def test_a_subscriber_that_leaves_is_not_welcomed() -> None:
    socket = RecordingSocket()
    socket.incoming.append([b"\x00"])
    Publisher(WIRE, socket).welcome_subscriber()
    assert not socket.sent


def test_after_a_move_everything_leaves_by_the_new_socket() -> None:
    before, after = RecordingSocket(), RecordingSocket()
    publisher = Publisher(WIRE, before)
    publisher.move_to(after)
    publisher.status("idle")
    publisher.relay([b"frames"])
    assert (len(before.sent), len(after.sent)) == (0, 2)
