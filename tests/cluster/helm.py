"""helm, as an administrator runs it, in the test cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.binaries import Binaries
from tests.cluster.cluster import Cluster
from tests.support.machine import scaled
from tests.support.objects import objects_of

CHART = Path(__file__).parents[2] / "charts" / "kubeflow-bitfusion"


class HelmFailed(Exception):
    """It ended with an error; `str()` is what it said on stderr."""


class Helm:
    """`run` is helm with any words; its own files lie in the cluster's folder."""

    def __init__(self, binaries: Binaries, cluster: Cluster) -> None:
        self.program = str(binaries.path("helm"))
        self._cluster = cluster

    def run(self, *words: str, values: Mapping[str, Any] | None = None, limit_s: float = 60) -> str:
        """What it prints. `values` are a file of its own. Raises HelmFailed."""
        files = ["--values=-"] if values is not None else []
        done = subprocess.run(
            [self.program, *words, *files],
            input=yaml.safe_dump(dict(values)) if values is not None else "",
            capture_output=True,
            text=True,
            timeout=scaled(limit_s),
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self._cluster.folder),
                "KUBECONFIG": str(self._cluster.kubeconfig),
            },
        )
        if done.returncode != 0:
            raise HelmFailed(done.stderr)
        return done.stdout

    def template(self, *words: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The objects of the chart, as they would be installed in Kubeflow's namespace."""
        text = self.run("template", "bitfusion", str(CHART), "-n=kubeflow", *words, values=values)
        return objects_of(text)
