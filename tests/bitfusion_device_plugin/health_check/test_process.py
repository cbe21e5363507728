"""The program as it runs: its log, its Event, its figures, its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bitfusion_client.client_reports import parse_health
from bitfusion_device_plugin.health_check.pushed_metrics import MOST_SERVERS, figures
from bitfusion_device_plugin.health_check.verdict import PASSED, Verdict
from tests.support.machine import scaled

PROGRAM = "import sys; from bitfusion_device_plugin.health_check.cli import main; sys.exit(main())"
FATAL = "Health report for server: 10.0.0.1:56001\\n=====\\n[FATAL  ] Check GPU ECC errors\\n"
CRON_JOB = "/apis/batch/v1/namespaces/team-a/cronjobs/bitfusion-health"
EVENTS = "/api/v1/namespaces/team-a/events"


class Server:
    """An API server and a Pushgateway in one; keeps what it gets. `taken`: an Event of the name exists."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.taken = False
        self.missing = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((self.command, self.path, body))
                status, answer = outer.answer(self.command)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_PUT = _answer  # noqa: N815 # the base's names

            def log_message(self, format: str, *args: object) -> None:  # the base's name
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, method: str) -> tuple[int, dict[str, Any]]:
        if method == "GET" and self.missing:
            return 404, {"kind": "Status", "reason": "NotFound", "message": "cronjobs not found"}
        if method == "POST" and self.taken:
            return 409, {"kind": "Status", "reason": "AlreadyExists", "message": "taken"}
        return 200, {"metadata": {"name": "bitfusion-health", "uid": "uid-1"}}

    def of(self, method: str) -> list[tuple[str, bytes]]:
        return [(path, body) for one, path, body in self.requests if one == method]

    def end(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.end()


def check(
    server: Server, folder: Path, script: str | None, *options: str
) -> subprocess.CompletedProcess[str]:
    """`script` is what the client does; None: the stand-in, with a pool of its own."""
    words = [sys.executable, "-c", PROGRAM]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    if script is not None:
        (folder / "client").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "client").chmod(0o755)
        words += ["--client", str(folder / "client")]
    environ = {**os.environ, "HOME": str(folder), "BITFUSION_POOL_DIR": str(folder / "pool")}
    return subprocess.run(
        [
            *words,
            "--namespace=team-a",
            f"--kubeconfig={folder / 'kubeconfig'}",
            f"--limit={scaled(60):g}",
            *options,
        ],
        env={**environ, "BITFUSION_PYTHON": sys.executable, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=scaled(90),
    )


def test_the_stand_ins_report_is_in_the_log_and_its_result_an_event(server: Server, tmp_path: Path) -> None:
    done = check(server, tmp_path, None)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith("Health report for server: 127.0.0.1:56001\n=====\n")
    assert "Health report for localhost\n=====\n" in done.stdout
    assert "\nFATAL: 0\n" in done.stdout
    ((path, _),) = server.of("GET")
    assert path == CRON_JOB
    ((path, body),) = server.of("POST")
    event = json.loads(body)
    assert path == EVENTS
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "namespace": "team-a",
        "name": "bitfusion-health",
        "uid": "uid-1",
    }
    assert event["type"] == "Normal"
    assert event["reason"] in ("BitfusionHealthPassed", "BitfusionHealthMarginal")


def test_a_fatal_check_fails_the_job_and_warns(server: Server, tmp_path: Path) -> None:
    done = check(server, tmp_path, f"printf '{FATAL}'; exit 1")
    assert done.returncode == 1
    assert done.stdout == FATAL.replace("\\n", "\n")
    assert done.stderr == (
        "bitfusion-health-check: The health check has failed. Answer: 1 of 1 checks is FATAL: "
        "10.0.0.1:56001: Check GPU ECC errors What to do: the report is in the lines before this one\n"
    )
    ((_, body),) = server.of("POST")
    event = json.loads(body)
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "BitfusionHealthFatal",
        "1 of 1 checks is FATAL: 10.0.0.1:56001: Check GPU ECC errors. "
        "The log of its newest job has the report.",
    )


def test_a_second_run_with_the_same_result_renews_the_event(server: Server, tmp_path: Path) -> None:
    server.taken = True
    assert check(server, tmp_path, f"printf '{FATAL}'").returncode == 1
    ((_, created),) = server.of("POST")
    ((path, renewed),) = server.of("PATCH")
    assert path == f"{EVENTS}/{json.loads(created)['metadata']['name']}"
    assert set(json.loads(renewed)) == {"message", "lastTimestamp", "type"}


def test_a_job_that_is_no_cron_jobs_keeps_its_result(server: Server, tmp_path: Path) -> None:
    server.missing = True
    done = check(server, tmp_path, "printf 'Health report for server: a:1\\n[PASS   ] x\\n'")
    assert done.returncode == 0
    assert done.stderr.startswith("bitfusion-health-check: no Event could be written: ")
    assert "cronjobs not found" in done.stderr


def test_the_figures_are_pushed(server: Server, tmp_path: Path) -> None:
    assert check(server, tmp_path, f"printf '{FATAL}'", f"--pushgateway={server.url}").returncode == 1
    ((path, body),) = server.of("PUT")
    assert path == "/metrics/job/bitfusion_health"
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert samples["bitfusion_health_checks", "10.0.0.1:56001", "FATAL"] == 1
    assert samples["bitfusion_health_checks", "10.0.0.1:56001", "PASS"] == 0
    assert samples[("bitfusion_health_result",)] == 2
    assert samples[("bitfusion_health_last_run_timestamp_seconds",)] > 1.7e9


def test_a_pushgateway_that_is_away_is_a_line(server: Server, tmp_path: Path) -> None:
    script = "printf 'Health report for server: a:1\\n[PASS   ] x\\n'"
    done = check(server, tmp_path, script, "--pushgateway=http://127.0.0.1:1")
    assert done.returncode == 0
    assert done.stderr.startswith(
        "bitfusion-health-check: figures could not be pushed to http://127.0.0.1:1: "
    )


def test_figures_of_very_many_servers_are_bounded() -> None:
    report = parse_health("".join(f"Health report for server: s{n}:1\n[PASS   ] x\n" for n in range(5000)))
    registry = figures(report, Verdict(PASSED, ""), 1.0)
    (family,) = (one for one in registry.collect() if one.name == "bitfusion_health_checks")
    assert len(family.samples) == 5 * MOST_SERVERS
