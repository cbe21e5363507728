"""The doctor on process 1: an init, or a program that knows nothing of orphans."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import scaled
from tests.support.namespaces import as_process_1

DOCTOR = (
    "from bitfusion_kernel.install.check_environment import check_process_1\n"
    "print(*check_process_1().lines(), sep='\\n')"
)
JUPYTER = f"""
import subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "-c", {DOCTOR!r}], check=True)
from pathlib import Path
stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat")]
print(sum(") Z " in stat for stat in stats), "zombie", flush=True)
"""
INIT = f"""
import os, subprocess, sys
doctor = subprocess.Popen([sys.executable, "-c", {DOCTOR!r}])
while os.wait()[0] != doctor.pid:
    pass
"""


@pytest.mark.parametrize(
    ("process_1", "said"),
    [
        (
            JUPYTER,
            [
                *[
                    "[WARN] process 1: process 1 (python) does not reap orphans: a killed kernel leaves a "
                    "zombie",
                    "       start the container with an init: `docker run --init`, tini as the image's entry "
                    "point, or in Kubernetes `shareProcessNamespace: true`",
                ]
                * 2,
                "1 zombie",
            ],
        ),
        (INIT, ["[PASS] process 1: orphans are reaped by process 1 (python)"]),
    ],
    ids=["no init", "init"],
)
def test_whether_orphans_are_reaped(process_1: str, said: list[str]) -> None:
    done = subprocess.run(
        as_process_1([sys.executable, "-c", process_1]),
        capture_output=True,
        text=True,
        timeout=scaled(40),
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == said
