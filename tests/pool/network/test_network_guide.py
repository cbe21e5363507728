"""The pages of a pool on the network: every command is run, in order, and does what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bitfusion_pool
from tests.pool.service.running_service import RunningService
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.run_blocks import ran

HOW_TO = Path(__file__).resolve().parents[3] / "docs" / "how-to"
PAGES = ("pool-on-the-network", "limit-a-client", "renew-the-certificate", "tokens-for-a-cluster")
GUIDE = "".join((HOW_TO / f"{name}.md").read_text(encoding="utf-8") for name in PAGES)
BLOCKS = re.findall(r"(?m)^```sh\n(.*?)^```", GUIDE, re.DOTALL)
TOOLS = {
    "sudo": '[ "$1" = -u ] && shift 2; exec "$@"',
    "systemctl": 'echo "$@" >> "$ROOT/systemctl"',
    "scp": 'eval "set -- $(echo "$*" | sed "s,root@[^:]*:,,g")"; exec cp "$@"',
    "bitfusion-pool": 'cd "$CODE" && exec "$PYTHON" -m bitfusion_pool.admin.cli "$@"',
}
"""What a machine with systemd and a second machine would do, as far as a test has neither."""


class Machines:
    """The pool's machine and the client's, both below one folder."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.port = free_port()
        tools = base / "tools"
        tools.mkdir()
        for name, text in TOOLS.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        for folder in ("home", "etc/systemd/system", "pool"):
            (base / folder).mkdir(parents=True, mode=0o700)
        self.places = {
            "/opt/bitfusion-pool/bin/": f"{tools}/",
            "/var/lib/bitfusion-pool": str(base / "pool"),
            "/etc/": f"{base}/etc/",
            '":56001"': f'"127.0.0.1:{self.port}"',
            "gpu.example:56001": f"127.0.0.1:{self.port}",
            "gpu.example": "127.0.0.1",
        }
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("BITFUSION_POOL")},
            "PATH": f"{tools}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
            "HOME": str(base / "home"),
            "ROOT": str(base),
            "PYTHON": sys.executable,
            "BITFUSION_PYTHON": sys.executable,
            "CODE": str(Path(bitfusion_pool.__file__).parents[1]),
        }
        settings = base / "etc/bitfusion-pool/service.toml"
        self.service = RunningService(base, "--settings", str(settings))

    def do(self, block: str) -> str:
        """Run one block of the guide; returns what it printed."""
        ran(block)
        for place, here in self.places.items():
            block = block.replace(place, here)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=scaled(60),
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def told_systemd(self) -> list[str]:
        told = self.base / "systemctl"
        lines = told.read_text().splitlines() if told.exists() else []
        told.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machines(base: Path) -> Iterator[Machines]:
    made = Machines(base)
    yield made
    made.service.end()


@pytest.mark.timeout(120)
@pytest.mark.runs(*(f"docs/how-to/{name}.md" for name in PAGES))
def test_every_command_of_the_guide_does_what_it_says(machines: Machines) -> None:
    certificate, listen, token, copy, remove, use, limits, renew, issuer, issued = BLOCKS
    assert "certificate for 127.0.0.1" in machines.do(certificate)
    machines.do(listen)
    assert machines.told_systemd() == ["restart bitfusion-pool"]
    machines.service.start()
    assert "token for ada" in machines.do(token)
    machines.do(copy)
    files = machines.base / "home/.bitfusion"
    assert sorted(os.listdir(files)) == ["ca.crt", "client.yaml", "servers.conf"]
    machines.do(remove)
    assert not (machines.base / "pool/ada").exists()
    used = machines.do(use)
    assert f"Check pool in use: the service at 127.0.0.1:{machines.port}" in used
    assert "GPU 0: free memory 16160 MiB / 16160 MiB (Simulated" in used
    assert "8080 of 16160" in used
    assert "1 GPU" in machines.do(limits)
    machines.do(renew)
    assert machines.told_systemd() == [
        "daemon-reload",
        "enable --now bitfusion-pool-certificate.timer",
    ]
    unit = (machines.base / "etc/systemd/system/bitfusion-pool-certificate.service").read_text()
    (command,) = re.findall("(?m)^ExecStart=(.*)$", unit)
    assert machines.do(command) == "the certificate is not due yet; --force renews it all the same\n"
    assert "issues tokens for 200 names and 30 days: 4 GPUs" in machines.do(issuer)
    told = machines.do(issued)
    assert told.count("for cluster/team-a, until") == 2
    assert told.count("│ cluster/team-a │") == 2
    assert told.endswith("revoked 2 tokens of cluster/team-a\n")
    refused = subprocess.run(
        ["bitfusion-pool", "shell", "--", "bitfusion", "list_gpus"],
        env=machines.environ,
        executable=shutil.which("bitfusion-pool", path=machines.environ["PATH"]),
        capture_output=True,
        text=True,
        timeout=scaled(60),
    )
    assert "the token was revoked at" in refused.stderr


def test_the_guide_has_no_command_that_is_not_run() -> None:
    assert GUIDE.count("```") == 2 * len(BLOCKS)
