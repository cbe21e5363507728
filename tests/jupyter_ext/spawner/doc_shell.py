"""A shell in which commands of the documents run: ours and kubectl, which talks to the tests' cluster."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.support.machine import scaled
from tests.support.run_blocks import ran

ROOT = Path(__file__).parents[3]


def put_commands(folder: Path, cluster: Cluster) -> None:
    """Write `kubeflow-bitfusion` and `kubectl` into a new folder: ``bin`` beside that in which `run` runs."""
    folder.mkdir()
    python = [sys.executable, "-c", "import sys; from kubeflow_bitfusion.cli import main; sys.exit(main())"]
    kubectl = [str(cluster.binaries.path("kubectl")), "--kubeconfig", str(cluster.kubeconfig)]
    for name, command in (("kubeflow-bitfusion", python), ("kubectl", kubectl)):
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        path.chmod(0o755)


def run(place: Path, commands: str) -> subprocess.CompletedProcess[str]:
    """Run a block of commands in a folder; each of them must succeed."""
    ran(commands)
    environ = {
        **os.environ,
        "PATH": f"{place.parent / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "HOME": str(place.parent),
    }
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", commands],
        cwd=place,
        env=environ,
        capture_output=True,
        text=True,
        timeout=scaled(50),
    )
    assert done.returncode == 0, commands + done.stdout + done.stderr
    return done
