"""Supervisors for the tests of the kernel's processes."""

from __future__ import annotations

import pytest

from bitfusion_kernel.processes import meeting_point


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that answers late is no silent one."""
    monkeypatch.setattr(meeting_point, "JOIN_LIMIT", 60.0)
