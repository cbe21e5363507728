"""Minutes of the soak (`make soak` is an hour), beside whatever else the machine does."""

from __future__ import annotations

import subprocess
import sys

import pytest

MINUTES = 2


@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 300)
def test_minutes_of_everything_at_random_leave_nothing_behind_and_nothing_unanswered() -> None:
    soak = [sys.executable, "-m", "tests.jupyter.soak", "--minutes", str(MINUTES)]
    done = subprocess.run(soak, capture_output=True, text=True, timeout=MINUTES * 60 + 240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "anomalies                      0" in done.stdout
