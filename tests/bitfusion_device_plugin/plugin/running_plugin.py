"""`bitfusion-device-plugin` as a process over a client that a test makes answer as it likes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.machine import scaled
from tests.support.waiting import wait_until

_ROOT = Path(__file__).parents[3]
_MAIN = "import sys; from bitfusion_device_plugin.plugin.settings import main; sys.exit(main())"


class FakePool:
    """A ``bitfusion`` whose ``list_gpus`` prints what a file says."""

    def __init__(self, place: Path) -> None:
        self._answer = place / "answer"
        self.client = place / "bitfusion"
        self.client.write_text(f"#!/bin/sh\n[ \"$1\" = list_gpus ] || exit 9\n. '{self._answer}'\n")
        self.client.chmod(0o755)

    def has(self, gpus: int) -> None:
        """So many GPUs, at one server."""
        rows = ["- server 0 [10.0.0.1:56001]: running 0 tasks"]
        rows += [f"   |- GPU {number}: free memory 16160 MiB / 16160 MiB" for number in range(gpus)]
        self.says("\n".join(f"echo '{row}'" for row in rows))

    def is_away(self) -> None:
        self.says("echo 'Error: no server in the pool answers' >&2; exit 1")

    def says(self, script: str) -> None:
        """Shell commands of the test's own; exchanged in one step."""
        new = self._answer.with_suffix(".new")
        new.write_text(script + "\n")
        new.rename(self._answer)


class RunningPlugin:
    """One process, ended by `end` in any case."""

    def __init__(
        self,
        folder: Path,
        pool: FakePool,
        log: Path,
        options: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`environ` is added to this process's."""
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _MAIN),
                    f"--client={pool.client}",
                    f"--plugins-registry={folder}",
                    f"--device-plugins={folder}",
                    "--probe-every=0.1",
                    "--bind=127.0.0.1",
                    "--monitoring-port=0",
                    *options,
                ],
                cwd=_ROOT,
                env={**os.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def said(self, message: str) -> list[dict[str, object]]:
        """The log lines with that message."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["message"] == message]

    def wait_for(self, message: str) -> dict[str, object]:
        wait_until(lambda: self.said(message), self.log.read_text, 20)
        return self.said(message)[-1]

    def get(self, path: str) -> tuple[int, str]:
        """The answer of the monitoring port."""
        port = self.wait_for("serving")["monitoring_port"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=scaled(5)) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """One sample, such as ``units{health="healthy"}``."""
        rows = [line for line in self.get("/metrics")[1].splitlines() if not line.startswith("#")]
        found = dict(row.rsplit(" ", 1) for row in rows)
        return float(found[f"bitfusion_device_plugin_{name}"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(scaled(10))

    def end(self) -> int:
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(scaled(10))
        finally:
            if self.process.poll() is None:
                self.kill()
