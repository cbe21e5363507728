"""What was sent and not acknowledged: each byte arrives once and in order, whatever is lost on the way."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bitfusion_pods.stream.kept_bytes import MOST_EVER, MOST_KEPT, MOST_UNSENT, AnotherHistory, KeptBytes


class OneDirection(RuleBasedStateMachine):
    """A sender, a receiver, and between them a connection that holds bytes for a while and may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = KeptBytes()
        self.all = b""
        self.arrived = b""
        self.under_way = b""

    @rule(data=st.binary(max_size=200))
    def put(self, data: bytes) -> None:
        self.kept.put(data)
        self.all += data

    @rule(most=st.integers(1, 150), taken=st.integers(0, 150))
    def send(self, most: int, taken: int) -> None:
        def take(piece: memoryview) -> int:
            self.under_way += bytes(piece[:taken])
            return len(piece[:taken])

        self.kept.give(take, most)

    @rule(most=st.integers(1, 100), taken=st.integers(1, 100))
    def send_and_hear_of_it_before_it_is_reported(self, most: int, taken: int) -> None:
        """TLS has sent a record, and says so only with the next one."""

        def take_and_say_nothing(piece: memoryview) -> int:
            self.under_way += bytes(piece[:taken])
            raise ssl.SSLWantWriteError

        with pytest.raises(ssl.SSLWantWriteError):
            self.kept.give(take_and_say_nothing, most)
        self.arrive(1000)
        self.acknowledge()
        self.kept.give(lambda piece: len(piece[:taken]), most)

    @rule(number=st.integers(0, 300))
    def arrive(self, number: int) -> None:
        self.arrived += self.under_way[:number]
        self.under_way = self.under_way[number:]

    @rule()
    def acknowledge(self) -> None:
        self.kept.acknowledge(len(self.arrived))

    @rule()
    def lose_the_connection_and_resume(self) -> None:
        self.under_way = b""
        self.kept.resume_at(len(self.arrived))

    @invariant()
    def each_byte_came_once_and_in_order(self) -> None:
        assert self.all.startswith(self.arrived)
        assert self.kept.end == len(self.all)
        assert self.kept.base <= len(self.arrived)

    def teardown(self) -> None:
        self.lose_the_connection_and_resume()
        while self.kept.unsent:
            self.send(150, 150)
        self.arrive(len(self.under_way))
        assert self.arrived == self.all


TestOneDirection = OneDirection.TestCase


def sent(number: int) -> KeptBytes:
    kept = KeptBytes()
    kept.put(bytes(number))
    kept.was_sent(number)
    return kept


@pytest.mark.parametrize("offset", [11, 2**63])
def test_what_was_never_sent_cannot_have_arrived(offset: int) -> None:
    kept = sent(10)
    with pytest.raises(AnotherHistory, match=f"{offset} bytes of 10"):
        kept.acknowledge(offset)
    with pytest.raises(AnotherHistory, match=f"{offset} bytes, and 0 to 10 are kept"):
        kept.resume_at(offset)


def test_what_was_forgotten_cannot_be_sent_again() -> None:
    kept = sent(10)
    kept.acknowledge(6)
    kept.acknowledge(3)  # an older word that comes late
    with pytest.raises(AnotherHistory, match="3 bytes, and 6 to 10 are kept"):
        kept.resume_at(3)
    kept.resume_at(7)
    assert (kept.base, kept.unsent) == (7, 3)


def test_no_more_can_have_been_sent_than_there_was() -> None:
    kept = sent(3)
    with pytest.raises(ValueError, match="1 of 0"):
        kept.was_sent(1)
    with pytest.raises(ValueError, match="-1 of 0"):
        kept.was_sent(-1)


def test_a_peer_that_lets_answers_heap_up_is_none() -> None:
    kept = KeptBytes()
    kept.put(bytes(MOST_EVER))
    with pytest.raises(AnotherHistory, match="does not read what it asks for"):
        kept.put(b"x")


def test_local_sources_wait_while_much_is_unsent_or_unacknowledged() -> None:
    kept = KeptBytes()
    kept.put(bytes(MOST_UNSENT - 1))
    assert kept.has_room
    kept.put(b"x")
    assert not kept.has_room
    kept = sent(MOST_KEPT - 1)
    assert kept.has_room
    kept.put(b"x")
    kept.was_sent(1)
    assert not kept.has_room
    kept.acknowledge(1)
    assert kept.has_room
