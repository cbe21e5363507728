"""Where Jupyter is process 1, as in a container without an init, it reaps its own children only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jupyter import process_1
from tests.support.machine import scaled
from tests.support.namespaces import as_process_1

# In one group: the scenarios take a minute, once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.xdist_group("process-1")]

Report = dict[str, list[str]]


@pytest.fixture(scope="module")
def zombies(tmp_path_factory: pytest.TempPathFactory, kernelspecs: Path) -> Report:
    """What is left of kernels that ended in each way."""
    folder = tmp_path_factory.mktemp("process-1")
    done = subprocess.run(
        as_process_1([sys.executable, process_1.__file__, str(folder), *process_1.SCENARIOS]),
        capture_output=True,
        text=True,
        timeout=scaled(170),
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert done.returncode == 0, done.stderr
    report: Report = json.loads(done.stdout)
    return report


@pytest.mark.parametrize(
    "end",
    [
        "shut down before its first cell",
        "shut down",
        "interrupted",
        "interrupted while it waits",
        "launcher killed",
        "wrapper killed",
        "supervisor killed",
    ],
)
def test_no_process_is_left_unreaped(zombies: Report, end: str) -> None:
    assert zombies[end] == []


@pytest.mark.parametrize("end", ["restarted", "kernel killed", "proxy killed"])
def test_a_supervisor_that_has_outlived_its_proxy_is_left_and_no_more(zombies: Report, end: str) -> None:
    assert zombies[end] in ([], ["python"])
