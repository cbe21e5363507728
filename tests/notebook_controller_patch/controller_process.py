"""One `bitfusion-notebook-controller`, or a program like it, as a process: its log, its probes, its end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.machine import scaled
from tests.support.waiting import wait_until

START_S = 20.0
CONTROLLER = "notebook_controller_patch.settings"
INJECTOR = "bitfusion_device_plugin.injector.settings"
# The apiserver of a busy machine may take longer than half a second. It waits 5 s for the whole review.
LOOKUP_S = 3.0


def command(module: str) -> tuple[str, str, str]:
    """The program whose command is in this module.

    As in its image: there the cluster's client finds no kubernetes-validate, whose import takes a second.
    """
    code = "import sys; sys.modules['kubernetes_validate'] = None; "
    return sys.executable, "-c", f"{code}from {module} import main; sys.exit(main())"


def look_up_within(seconds: float) -> str:
    """Python that runs before the command: how long it waits for a Notebook that it looks up."""
    return f"from bitfusion_cluster.notebooks import owners; owners.LONGEST_LOOKUP = {seconds}"


COMMAND = command(CONTROLLER)


class ControllerProcess:
    """Started at once, with JSON log lines in a file and any free ports of 127.0.0.1. A context manager.

    `prepare` is Python that runs before the command, which is in `module`.
    """

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        environment: Mapping[str, str] | None = None,
        name: str = "controller",
        prepare: str = "",
        module: str = CONTROLLER,
    ) -> None:
        self.log = folder / f"{name}.log"
        python, option, program = command(module)
        words = [
            python,
            option,
            f"{prepare}\n{program}",
            "--bind=127.0.0.1",
            "--port=0",
            "--monitoring-port=0",
            "--drain=0.3",
            *options,
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> ControllerProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """What it logged; a line that is no JSON is ``{"message": line}``."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"message": line})
        return found

    def logged(self, message: str) -> list[dict[str, Any]]:
        """The lines with that message."""
        return [line for line in self.lines() if line.get("message") == message]

    @property
    def serving(self) -> dict[str, Any]:
        """Its line that names the ports, waited for."""

        def serving() -> list[dict[str, Any]]:
            found = self.logged("serving")
            assert found or self.process.poll() is None, f"it ended: {self.log.read_text()}"
            return found

        return wait_until(serving, self.log.read_text, START_S)[0]

    @property
    def port(self) -> int:
        """Of admission."""
        return int(self.serving["port"])

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of a path of the monitoring listener."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.serving["monitoring_port"], timeout=scaled(5)
        )
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait_ready(self, limit_s: float = 20.0) -> float:
        """Until /readyz says 200; the seconds since this call."""
        began = time.monotonic()
        wait_until(lambda: self.ask("/readyz")[0] == 200, self.log.read_text, limit_s)
        return time.monotonic() - began

    def metric(self, name: str, **labels: str) -> float:
        """The value of one metric, 0 if it is not there."""
        wanted = name + (
            "{" + ",".join(f'{k}="{v}"' for k, v in sorted(labels.items())) + "}" if labels else ""
        )
        for line in self.ask("/metrics")[1].splitlines():
            key, _, value = line.rpartition(" ")
            if key == wanted:
                return float(value)
        return 0.0

    def end(self, number: int = signal.SIGTERM, limit_s: float = 25.0) -> tuple[int, float]:
        """Send a signal; the exit status and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(scaled(limit_s))
        return status, time.monotonic() - began
