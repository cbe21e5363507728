"""The wrapper's stdout and stderr, read from two pipes and cut into lines."""

from __future__ import annotations

import os

from bitfusion_kernel.processes.messages import OutputEvent

Pipe = tuple[int, int]  # read end, write end

_LONGEST_LINE = 8192


class WrapperOutput:
    """The two pipes; `streams` has the name of the stream for each read end.

    The pipes are made before the fork and both proxy and supervisor hold the read ends, so the wrapper
    does not meet a broken pipe when either of them is killed. Only the supervisor reads.
    """

    def __init__(self, stdout: Pipe, stderr: Pipe) -> None:
        self.write_ends = stdout[1], stderr[1]
        self.streams = {stdout[0]: "stdout", stderr[0]: "stderr"}
        self._partial = dict.fromkeys(self.streams, b"")
        for fd in self.streams:
            os.set_blocking(fd, False)

    def read(self, fd: int) -> list[OutputEvent]:
        """The lines that have become complete on one pipe. A line of more than 8 KiB comes in pieces."""
        try:
            chunk = os.read(fd, 65536)
        except (BlockingIOError, InterruptedError):
            return []
        *lines, rest = (self._partial[fd] + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        self._partial[fd] = rest
        return [self._event(fd, line) for line in lines]

    def drain(self) -> list[OutputEvent]:
        """Everything left, unfinished lines included; called once the wrapper has ended."""
        events = []
        for fd in self.streams:
            while lines := self.read(fd):
                events += lines
            if self._partial[fd]:
                events.append(self._event(fd, self._partial[fd]))
                self._partial[fd] = b""
        return events

    def _event(self, fd: int, line: bytes) -> OutputEvent:
        return OutputEvent(self.streams[fd], line.decode("utf-8", "replace"))
