"""The wrapper's output as lines: complete, unfinished, overlong, of two streams, not UTF-8."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bitfusion_kernel.processes.messages import OutputEvent
from bitfusion_kernel.processes.wrapper_output import WrapperOutput


class Pipes:
    """Two pipes; the test writes, as the wrapper would."""

    def __init__(self) -> None:
        self.stdout, self.write_stdout = stdout = os.pipe()
        self.stderr, self.write_stderr = stderr = os.pipe()
        self.output = WrapperOutput(stdout, stderr)

    def out(self, data: bytes) -> list[OutputEvent]:
        """What comes of this on stdout."""
        os.write(self.write_stdout, data)
        return self.output.read(self.stdout)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    for fd in (made.stdout, made.write_stdout, made.stderr, made.write_stderr):
        os.close(fd)


def test_a_line_comes_when_it_is_complete(pipes: Pipes) -> None:
    assert pipes.out(b"one\ntw") == [OutputEvent("stdout", "one")]
    assert pipes.out(b"o\n\n") == [OutputEvent("stdout", "two"), OutputEvent("stdout", "")]
    assert pipes.output.read(pipes.stdout) == []


def test_the_streams_do_not_mix(pipes: Pipes) -> None:
    pipes.out(b"out")
    os.write(pipes.write_stderr, b"err\n")
    assert pipes.output.read(pipes.stderr) == [OutputEvent("stderr", "err")]
    assert pipes.out(b"put\n") == [OutputEvent("stdout", "output")]


def test_what_is_left_at_the_end_is_drained_with_unfinished_lines(pipes: Pipes) -> None:
    assert pipes.out(b"unfin") == []
    os.write(pipes.write_stdout, b"ished\nlast")
    os.write(pipes.write_stderr, b"Error: no")
    assert pipes.output.drain() == [
        OutputEvent("stdout", "unfinished"),
        OutputEvent("stdout", "last"),
        OutputEvent("stderr", "Error: no"),
    ]
    assert pipes.output.drain() == []


def test_a_line_without_an_end_comes_in_pieces_and_does_not_grow(pipes: Pipes) -> None:
    pieces = pipes.out(b"x" * 10_000)
    assert pieces == [OutputEvent("stdout", "x" * 10_000)]
    assert pipes.out(b"y\n") == [OutputEvent("stdout", "y")]


def test_bytes_that_are_no_text_are_replaced(pipes: Pipes) -> None:
    assert pipes.out(b"\xff\n") == [OutputEvent("stdout", "\N{REPLACEMENT CHARACTER}")]
