"""The end of a process has one spelling, whichever convention its status follows."""

from __future__ import annotations

import pytest

from bitfusion_client.command.exit_status import describe_exit, from_shell


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "ended in an unknown way"),
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (137, "ended with exit code 137"),
        (-9, "was killed by SIGKILL"),
        (-11, "was killed by SIGSEGV"),
        (-64, "was killed by SIGRTMAX"),
        (-32, "was killed by signal 32"),
        (-99, "was killed by signal 99"),
    ],
)
def test_how_a_process_ended(status: int | None, text: str) -> None:
    assert describe_exit(status) == text


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (None, None),
        (0, 0),
        (1, 1),
        (128, 128),
        (129, -1),
        (137, -9),
        (192, -64),
        (193, 193),
        (255, 255),
        (-15, -15),
    ],
)
def test_a_shell_reports_signals_as_high_numbers(status: int | None, meaning: int | None) -> None:
    assert from_shell(status) == meaning
