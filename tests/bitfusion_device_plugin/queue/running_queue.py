"""`bitfusion-queue` as a process, beside the fake API server or a real one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.machine import scaled
from tests.support.waiting import wait_until

_MAIN = (
    "import sys; sys.modules['kubernetes_validate'] = None; "
    "from bitfusion_device_plugin.queue.settings import main; sys.exit(main())"
)
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: secret}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


def kubeconfig(folder: Path, server: str) -> Path:
    """A kubeconfig for a server that looks at no token."""
    path = folder / "kubeconfig"
    path.write_text(_KUBECONFIG.format(server=server))
    return path


class RunningQueue:
    """One replica, with free ports of 127.0.0.1; started at once. A context manager that kills it.

    `prepare` is Python that runs before the command.
    """

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *options: str,
        name: str = "queue",
        namespace: str = "kubeflow",
        prepare: str = "",
    ) -> None:
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", f"{prepare}\n{_MAIN}"),
                    f"--kubeconfig={kubeconfig}",
                    f"--namespace={namespace}",
                    "--bind=127.0.0.1",
                    "--monitoring-port=0",
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> RunningQueue:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def kill(self) -> None:
        """As the kernel does where memory ends; nothing is given back."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def end(self, limit_s: float = 15.0) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(scaled(limit_s))

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

    def until_logged(self, message: str, limit_s: float = 20.0) -> dict[str, Any]:
        """The first line with that message, waited for."""

        def found() -> list[dict[str, Any]]:
            lines = self.logged(message)
            assert lines or self.process.poll() is None, f"it ended: {self.log.read_text()}"
            return lines

        return wait_until(found, self.log.read_text, limit_s)[0]

    def until_leading(self) -> None:
        """It has listed everything and lifts gates."""
        self.until_logged("lifting gates", 30)

    def ask(self, path: str) -> str:
        """The text at a path of the monitoring port; raises HTTPError."""
        port = self.until_logged("serving")["monitoring_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=scaled(5)) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float | None:
        """The value of one metric with its labels as they are printed, None if it is not there."""
        for line in self.ask("/metrics").splitlines():
            key, _, value = line.rpartition(" ")
            if key == name:
                return float(value)
        return None
