"""Joining a kernel, relaying to it and from it, a full inbox, and closing in every phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from bitfusion_kernel.magic.subshell_ids import SUBSHELL_ID
from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.protocol.wire import Message, read_unchecked
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.publisher import Publisher
from bitfusion_kernel.proxy.kernel import kernel_link
from bitfusion_kernel.proxy.kernel.kernel_link import KernelLink
from bitfusion_kernel.proxy.kernel.output_relay import OutputRelay
from tests.kernel.proxy.fake_kernel import FakeKernel
from tests.kernel.proxy.parts import WIRE, message
from tests.support.machine import scaled
from tests.support.waiting import Deadline

FIRST_WORDS = {"execution_state": "starting"}
BUSY, IDLE = {"execution_state": "busy"}, {"execution_state": "idle"}


class Linked:
    """A link to a fake kernel, and the clients' iopub with one subscriber."""

    def __init__(self, folder: Path) -> None:
        self.kernel = FakeKernel(folder, inbox=5)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.iopub = self.context.socket(zmq.XPUB)
        self.iopub.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.iopub.bind("inproc://clients")
        self.client = self.context.socket(zmq.SUB)
        self.client.subscribe(b"")
        self.client.connect("inproc://clients")
        assert self.iopub.recv() == b"\x01"
        self.loop = EventLoop()
        self.publisher = Publisher(WIRE, self.iopub)
        self.subshells = EarlySubshells(WIRE)
        self.link = KernelLink(self.loop, WIRE, self.iopub, self.publisher, self.subshells)
        self.requests: list[Message] = []
        """What the kernel has served on control."""
        self.kernel_creates: Callable[[Message], str | None] = lambda request: request.content[SUBSHELL_ID]
        """The id that the kernel gives to a subshell; None if it refuses."""
        self.joined = 0
        self.announced: str | None = None
        self.received: dict[str, list[str]] = {"shell": [], "control": [], "stdin": []}
        self.calls = 0
        self.reconnected = 0
        self.link.deliver_to(
            shell=self._keep("shell"),
            control=self._keep("control"),
            stdin=self._keep("stdin"),
            reconnected=self._on_reconnected,
        )

    def _on_reconnected(self) -> None:
        self.reconnected += 1

    def _keep(self, channel: str) -> Callable[[Iterator[list[bytes]]], None]:
        def keep(messages: Iterator[list[bytes]]) -> None:
            self.calls += 1
            self.received[channel] += [read_unchecked(frames).type for frames in messages]

        return keep

    def _on_joined(self) -> None:
        self.joined += 1
        self.link.start_relaying(self.announced)

    def open(self) -> None:
        """Begin to join."""
        self.link.open(self.kernel.info, self._on_joined)

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        """Serve the loop until a condition holds."""
        deadline = Deadline(5)
        self.loop.set_timer("deadline", time.monotonic() + deadline.left, lambda: None)
        self.loop.run(until=lambda: condition() or deadline.passed)
        assert condition(), what

    def run_for(self, seconds: float) -> None:
        """Serve the loop for a while."""
        over: list[bool] = []
        self.loop.set_timer("over", time.monotonic() + seconds, lambda: over.append(True))
        self.loop.run(until=lambda: bool(over))

    def join(self) -> None:
        """Open the link and join."""
        self.open()
        self.run_until(lambda: self.joined == 1 or self._serve_kernel(), "joined")

    def _serve_kernel(self) -> bool:
        if self.kernel.control.poll(0):
            self.requests.append(request := self.kernel.request())
            created = self.kernel_creates(request) if request.type == "create_subshell_request" else ""
            status = "error" if created is None else "ok"
            self.kernel.answer(request, status=status, **({"subshell_id": created} if created else {}))
            if request.type == "kernel_info_request":
                self.kernel.publish("status", FIRST_WORDS)
        return self.joined == 1

    def client_messages(self, count: int) -> list[Message]:
        """What has reached the client's iopub: so many messages, and any that come at once after.

        Of the kernel's first words, one for each probe, the last may come late: they don't count.
        """
        seen: list[Message] = []
        deadline = Deadline(5)
        while self.client.poll(100 if len(seen) >= count else deadline.left_ms):
            message = read_unchecked(self.client.recv_multipart())
            if message.content != FIRST_WORDS:
                seen.append(message)
        return seen

    def client_sees(self, count: int) -> list[str]:
        """Their types."""
        return [message.type for message in self.client_messages(count)]

    def close(self) -> None:
        """Close everything."""
        self.link.close()
        self.publisher.close()
        self.client.close()
        self.context.term()  # `destroy` would close the sockets that the relay uses in its thread: a crash
        self.kernel.close()


@pytest.fixture
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    made = Linked(tmp_path_factory.mktemp("k"))
    yield made
    made.close()


def test_a_kernel_whose_sockets_are_opened_anew_is_told_once(linked: Linked) -> None:
    linked.join()
    linked.run_for(0.1)
    assert linked.reconnected == 0, "joining is no reconnecting"
    linked.kernel.reopen_shell()
    linked.run_until(lambda: linked.reconnected == 1, "the new connection")
    linked.run_for(0.1)
    assert linked.reconnected == 1


def test_a_kernel_is_joined_when_it_answers_and_its_output_is_received(linked: Linked) -> None:
    linked.open()
    linked.run_until(lambda: bool(linked.kernel.control.poll(0)), "a probe")
    probe = linked.kernel.request()
    linked.kernel.reply(probe, status="ok")
    linked.run_for(0.1)
    assert linked.joined == 0, "its output may still be lost"
    linked.run_until(lambda: linked.joined == 1 or linked._serve_kernel(), "joined")
    assert linked.link.relays_output


def test_what_a_kernel_says_of_a_probe_stays_here_though_it_answers_the_one_before_it_late(
    linked: Linked,
) -> None:
    linked.open()
    linked.run_until(lambda: bool(linked.kernel.iopub.poll(0)), "the subscription")
    assert linked.kernel.iopub.recv() == b"\x01"
    linked.kernel.publish("status", FIRST_WORDS)
    probes = []
    for _ in range(2):
        linked.run_until(lambda: bool(linked.kernel.control.poll(0)), "a probe")
        probes.append(linked.kernel.request())
        if len(probes) == 1:
            for state in (BUSY, IDLE):
                linked.kernel.publish("status", state, probes[0])
    for probe in probes:
        linked.kernel.reply(probe, status="ok")
    linked.run_for(0.2)
    for state in (BUSY, IDLE):
        linked.kernel.publish("status", state, probes[1])
    linked.run_until(lambda: linked.joined == 1 or linked._serve_kernel(), "joined")
    linked.kernel.publish("stream", {"name": "stdout", "text": "x"})
    assert linked.client_sees(1) == ["stream"]


def test_output_before_the_kernel_is_joined_reaches_the_clients_and_greetings_do_not(linked: Linked) -> None:
    linked.open()
    linked.run_until(lambda: bool(linked.kernel.iopub.poll(0)), "the subscription")
    assert linked.kernel.iopub.recv() == b"\x01"
    linked.kernel.publish("status", {"execution_state": "starting"})
    linked.kernel.publish("iopub_welcome", {"subscription": ""})
    linked.kernel.publish("stream", {"name": "stdout", "text": "early"})
    linked.run_until(lambda: bool(linked.client.poll(0)), "early output")
    assert linked.client_sees(1) == ["stream"]


def test_messages_are_relayed_in_both_directions(linked: Linked) -> None:
    linked.join()
    for channel, send in (
        ("shell", linked.link.send_shell),
        ("control", linked.link.send_control),
        ("stdin", linked.link.send_stdin),
    ):
        request = message(f"{channel}_request")
        send(request.frames[1:])
        while (received := linked.kernel.request(channel)).type != request.type:
            pass  # a probe that was asked twice
        linked.kernel.reply(received, channel)
    linked.run_until(lambda: all(linked.received.values()), "all replies")
    assert {channel: types[-1] for channel, types in linked.received.items()} == {
        "shell": "shell_reply",
        "control": "control_reply",
        "stdin": "stdin_reply",
    }


def test_the_kernels_output_and_the_proxys_own_leave_by_the_same_socket(linked: Linked) -> None:
    linked.join()
    linked.kernel.publish("stream", {"name": "stdout", "text": "x"})
    linked.publisher.stream("y", {})
    assert linked.client_sees(2) == ["stream", "stream"]


@pytest.mark.parametrize("behind_another", [False, True])
def test_a_cell_that_is_known_to_be_busy_is_said_to_be_so_again_behind_another_only(
    linked: Linked, behind_another: bool
) -> None:
    silent, waited = message("execute_request"), message("execute_request")
    linked.announced = waited.id
    linked.join()
    assert not linked.link.relays_output
    for state in (BUSY, IDLE) if behind_another else ():
        linked.kernel.publish("status", state, silent)
    linked.kernel.publish("status", BUSY, waited)
    linked.kernel.publish("execute_input", {"code": "1"}, waited)
    linked.publisher.stream("the proxy's", {})
    linked.run_until(lambda: linked.link.relays_output, "output moves in C")
    linked.kernel.publish("status", IDLE, waited)
    seen = [
        (str(each.content.get("execution_state", each.type)), each.parent_header.get("msg_id"))
        for each in linked.client_messages(6 if behind_another else 3)
    ]
    seen.remove(("stream", None))  # it goes its own way
    before = [("busy", silent.id), ("idle", silent.id), ("busy", waited.id)] if behind_another else []
    assert seen == [*before, ("execute_input", waited.id), ("idle", waited.id)]


def test_a_kernel_that_does_not_say_busy_first_loses_no_output(linked: Linked) -> None:
    waited = message("execute_request")
    linked.announced = waited.id
    linked.join()
    linked.kernel.iopub.send_multipart([b"no", b"message"])
    linked.kernel.publish("stream", {"name": "stdout", "text": "x"}, waited)
    linked.run_until(lambda: linked.link.relays_output, "output moves in C")
    linked.kernel.publish("status", BUSY, waited)
    assert linked.client_sees(2) == ["stream", "status"]


def test_a_link_can_be_closed_before_the_kernel_has_said_busy(linked: Linked) -> None:
    linked.announced = "never seen"
    linked.join()
    linked.link.close()
    linked.run_for(0.02)
    linked.publisher.stream("still heard", {})
    assert linked.client_sees(1) == ["stream"]


def test_the_relay_waits_for_its_own_subscription_and_takes_no_other() -> None:
    others: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    clients, kernel = others.socket(zmq.XPUB), context.socket(zmq.XSUB)
    for subscription in (b"\x01", b"\x01a client's"):
        kernel.send(subscription)
    relay = OutputRelay(context, clients, kernel)
    arrived = [relay.inlet.recv() for _ in range(relay.inlet.poll(100))]
    relay.stop()
    clients.close()
    others.term()
    assert arrived == [b"\x01a client's"]


def test_one_kernel_after_another_is_relayed_to_the_same_clients(linked: Linked) -> None:
    for _ in range(3):
        linked.joined = 0
        linked.join()
        assert linked.link.relays_output
        linked.publisher.stream("from the proxy", {})
        assert linked.client_sees(1)[-1:] == ["stream"]
        linked.link.close()
        linked.publisher.stream("between two", {})
        assert linked.client_sees(1) == ["stream"]


def test_what_is_published_last_reaches_the_clients_and_is_not_waited_for_long(linked: Linked) -> None:
    seconds: dict[int, list[float]] = {1: [], 500: []}
    for count in (1, 500) * 5:
        linked.joined = 0
        linked.join()
        for _ in range(count):
            linked.publisher.stream("last words", {})
        began = time.monotonic()
        linked.link.close()
        seconds[count].append(time.monotonic() - began)
        assert linked.client_sees(count) == ["stream"] * count
    # the machine may stand still in any of them
    assert all(min(each) < scaled(0.5) for each in seconds.values()), seconds


def test_a_new_subscriber_is_welcomed_while_output_is_relayed(linked: Linked) -> None:
    linked.join()
    late = linked.context.socket(zmq.SUB)
    late.subscribe(b"")
    late.connect("inproc://clients")
    seen: list[str] = []

    def is_welcomed() -> bool:
        while late.poll(0):  # the answers to the last probes may come first
            seen.append(read_unchecked(late.recv_multipart()).type)
        return "iopub_welcome" in seen

    linked.run_until(is_welcomed, "a welcome")
    late.close()


def test_a_full_inbox_is_told_and_its_end_too(linked: Linked) -> None:
    linked.join()
    frames = WIRE.build("execute_request", {"code": "x" * 100_000})
    sent = 0
    while linked.link.send_shell(frames):
        sent += 1
        assert sent < 50_000, "the kernel's inbox has no end"
    assert linked.link.inbox_full
    assert not linked.link.send_shell(frames)
    linked.calls = 0
    linked.run_for(0.02)
    for _ in range(sent):
        linked.kernel.request("shell")
    linked.run_until(lambda: not linked.link.inbox_full, "room")
    assert linked.calls
    assert linked.link.send_shell(frames)
    quiet = linked.calls
    linked.run_for(0.05)
    assert linked.calls == quiet, "nobody is called while there is nothing to do"


def test_an_interrupt_of_the_proxys_own_reaches_the_kernel(linked: Linked) -> None:
    linked.join()
    linked.link.ask("interrupt_request")
    while linked.kernel.request().type != "interrupt_request":
        pass


def test_a_link_closed_while_joining_never_joins_and_can_be_opened_again(linked: Linked) -> None:
    linked.open()
    linked.run_until(lambda: bool(linked.kernel.control.poll(0)), "a probe")
    linked.link.close()
    linked.link.close()
    linked.kernel.answer_probe()
    linked.run_for(0.1)
    assert linked.joined == 0
    linked.join()
    assert linked.joined == 1


def test_a_kernel_that_loses_the_first_probe_is_asked_again(linked: Linked) -> None:
    linked.open()
    linked.run_until(lambda: bool(linked.kernel.control.poll(0)), "a probe")
    linked.kernel.request()
    linked.run_until(lambda: bool(linked.kernel.control.poll(0)), "a second probe")


# -- subshells that clients created before there was a kernel --------------------------------------------


def _early(linked: Linked) -> str:
    created = linked.subshells.create()
    assert created is not None
    return created


def _asked(linked: Linked) -> list[tuple[str, object]]:
    """What the kernel was asked about subshells."""
    found = [each for each in linked.requests if "subshell" in each.type]
    return [(each.type.partition("_")[0], next(iter(each.content.values()))) for each in found]


def _in_subshell(subshell: str) -> list[bytes]:
    return message("execute_request", header={"subshell_id": subshell}).frames[1:]


def test_a_kernel_has_the_clients_subshells_before_it_is_sent_anything(linked: Linked) -> None:
    early = [_early(linked) for _ in range(3)]
    linked.join()
    assert _asked(linked) == [("create", subshell) for subshell in early]
    linked.kernel.publish("stream", {"name": "stdout", "text": "x"})
    assert linked.client_sees(1) == ["stream"], "no client sees the status of a request that is not its own"
    assert linked.link.relays_output
    assert linked.received["control"] == []


def test_what_clients_create_and_delete_while_the_kernel_is_joined_is_done_there_too(linked: Linked) -> None:
    first, second = _early(linked), _early(linked)
    third: list[str] = []

    def creates(request: Message) -> str:
        if not third:
            third.append(_early(linked))
            linked.subshells.delete(first)
        return str(request.content[SUBSHELL_ID])

    linked.kernel_creates = creates
    linked.join()
    assert _asked(linked) == [
        *(("create", first), ("create", second)),
        *(("create", third[0]), ("delete", first)),
    ]


def test_each_kernel_is_asked_anew(linked: Linked) -> None:
    early = _early(linked)
    linked.kernel_creates = lambda request: linked.link.close()
    linked.open()
    linked.run_until(lambda: linked._serve_kernel() or bool(_asked(linked)), "a first kernel is asked")
    linked.kernel_creates = lambda request: early
    linked.requests.clear()
    linked.join()
    assert _asked(linked) == [("create", early)]


REAL = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize("announced", [False, True])
def test_of_a_kernel_that_names_them_itself_clients_see_their_own_ids(
    linked: Linked, announced: bool
) -> None:
    early = _early(linked)
    cell = linked.announced = message("execute_request").id if announced else None
    linked.kernel_creates = lambda request: REAL
    linked.join()
    replies: list[Message] = []

    def keep(frames: Iterator[list[bytes]]) -> None:
        replies.extend(map(read_unchecked, frames))

    linked.link.deliver_to(shell=keep, control=keep, stdin=keep, reconnected=lambda: None)
    for channel, send in (("shell", linked.link.send_shell), ("control", linked.link.send_control)):
        send(_in_subshell(early))
        while (request := linked.kernel.request(channel)).type != "execute_request":
            pass
        assert request.header["subshell_id"] == REAL
        linked.kernel.reply(request, channel)
        linked.kernel.publish("stream", {"text": REAL}, request)
    if cell is not None:
        linked.kernel.publish("status", BUSY, message("execute_request", header={"msg_id": cell}))
    linked.run_until(lambda: len(replies) == 2 and bool(linked.client.poll(0)), "replies and output")
    for reply in replies:
        assert reply.parent_header["subshell_id"] == early
    linked.run_for(0.05)
    for output in linked.client_messages(2):
        assert output.parent_header["subshell_id"] == early
        assert output.content == {"text": REAL}, "what a user prints is the user's"
    linked.publisher.stream("the proxy's", {})
    assert linked.client_sees(1) == ["stream"]


def test_much_output_that_is_translated_leaves_the_loop_its_turns(linked: Linked) -> None:
    _early(linked)
    linked.kernel_creates = lambda request: REAL
    linked.join()
    for _ in range(350):
        linked.kernel.publish("stream", {"name": "stdout", "text": "x"})
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        linked.loop.set_timer("turn", time.monotonic(), turn)

    turn()
    linked.run_for(0.3)
    assert len(turns) > 3
    assert len(linked.client_sees(350)) == 350


def test_a_subshell_that_the_kernel_refuses_keeps_nobody_waiting(linked: Linked) -> None:
    early = _early(linked)
    linked.kernel_creates = lambda request: None
    linked.join()
    linked.link.send_shell(_in_subshell(early))
    assert linked.kernel.request("shell").header["subshell_id"] == early


def test_a_kernel_that_does_not_answer_about_subshells_is_joined_after_a_time(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_link, "SUBSHELLS_LIMIT", 0.2)
    _early(linked)
    linked.open()
    answer = linked.kernel.answer

    def answers_probes(request: Message, **content: object) -> None:
        if request.type == "kernel_info_request":
            answer(request, **content)

    monkeypatch.setattr(linked.kernel, "answer", answers_probes)
    linked.run_until(linked._serve_kernel, "joined")
    assert "create_subshell_request" in [request.type for request in linked.requests]
