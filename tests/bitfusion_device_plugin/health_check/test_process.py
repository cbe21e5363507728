"""The program as it runs: its log, its Event, its figures, its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bitfusion_client.command.client_reports import parse_health
from bitfusion_device_plugin.health_check.shown_metrics import MOST_SERVERS, figures
from bitfusion_device_plugin.health_check.verdict import PASSED, Verdict
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PROGRAM = "import sys; from bitfusion_device_plugin.health_check.settings import main; sys.exit(main())"
FATAL = "Health report for server: 10.0.0.1:56001\\n=====\\n[FATAL  ] Check GPU ECC errors\\n"
GOOD = FATAL.replace("FATAL  ", "PASS   ")
CRON_JOB = "/apis/batch/v1/namespaces/team-a/cronjobs/bitfusion-health"
EVENTS = "/api/v1/namespaces/team-a/events"


class Server:
    """An API server that keeps what it gets. `taken`: an Event of the name exists."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.taken = False
        self.missing = False
        self.forbids = False
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

            do_GET = do_POST = do_PATCH = _answer  # noqa: N815 # the base's names

            def log_message(self, format: str, *args: object) -> None:  # the base's name
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, method: str) -> tuple[int, dict[str, Any]]:
        if method == "GET" and self.missing:
            return 404, {"kind": "Status", "reason": "NotFound", "message": "cronjobs not found"}
        if method == "POST" and self.forbids:
            return 403, {"kind": "Status", "reason": "Forbidden", "message": "events is forbidden"}
        if method == "POST" and self.taken:
            return 409, {"kind": "Status", "reason": "AlreadyExists", "message": "taken"}
        return 200, {"metadata": {"name": "bitfusion-health", "uid": "uid-1"}}

    def of(self, method: str) -> list[tuple[str, bytes]]:
        return [(path, body) for one, path, body in self.requests if one == method]

    def end(self) -> None:
        if not self._thread.is_alive():
            return
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
    """One run, waited for."""
    command, environ = prepared(server, folder, script, *options)
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=scaled(90))


def prepared(
    server: Server, folder: Path, script: str | None, *options: str
) -> tuple[list[str], dict[str, str]]:
    """Command and environment. `script`: what the client does; None: the stand-in, with a pool of its own."""
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
    words += [
        "--namespace=team-a",
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--limit={scaled(60):g}",
        *options,
    ]
    return words, {**environ, "BITFUSION_PYTHON": sys.executable, "PYTHONPATH": os.getcwd()}


def test_the_stand_ins_report_is_in_the_log_and_its_result_an_event(server: Server, tmp_path: Path) -> None:
    done = check(server, tmp_path, None)
    assert done.returncode == 0
    assert re.search(r"^bitfusion-health-check: \S.+\n\Z", done.stderr, re.MULTILINE)
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


@pytest.mark.long
def test_a_fatal_check_fails_the_job_and_warns(server: Server, tmp_path: Path) -> None:
    done = check(server, tmp_path, f"printf '{FATAL}'; exit 1")
    assert done.returncode == 1
    assert done.stdout == FATAL.replace("\\n", "\n")
    assert done.stderr == (
        "bitfusion-health-check: 1 of 1 checks is FATAL: 10.0.0.1:56001: Check GPU ECC errors\n"
    )
    ((_, body),) = server.of("POST")
    event = json.loads(body)
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "BitfusionHealthFatal",
        "1 of 1 checks is FATAL: 10.0.0.1:56001: Check GPU ECC errors. "
        f"The report: kubectl logs {socket.gethostname()} --namespace team-a",
    )


@pytest.mark.long
def test_a_second_run_with_the_same_result_renews_the_event(server: Server, tmp_path: Path) -> None:
    server.taken = True
    assert check(server, tmp_path, f"printf '{FATAL}'").returncode == 1
    ((_, created),) = server.of("POST")
    (path, renewed), counted = server.of("PATCH")
    assert path == f"{EVENTS}/{json.loads(created)['metadata']['name']}"
    assert set(json.loads(renewed)) == {"message", "lastTimestamp", "reportingInstance"}
    assert counted == (path, b'{"count": 2}')


@pytest.mark.long
@pytest.mark.parametrize(("report", "status"), [(GOOD, 0), (FATAL, 1)])
def test_an_api_server_that_refuses_changes_no_result(
    server: Server, tmp_path: Path, report: str, status: int
) -> None:
    server.forbids = True
    done = check(server, tmp_path, f"printf '{report}'")
    assert done.returncode == status
    told = done.stderr.splitlines()[-1]
    assert told.startswith("bitfusion-health-check: No Event could be written: The Kubernetes API refused ")
    assert "403 Forbidden: events is forbidden" in told


@pytest.mark.long
def test_without_a_cluster_a_line_says_so(server: Server, tmp_path: Path) -> None:
    server.end()
    done = check(server, tmp_path, f"printf '{GOOD}'")
    assert done.returncode == 0
    assert (
        "bitfusion-health-check: No Event could be written: The Kubernetes API did not answer." in done.stderr
    )


@pytest.mark.long
def test_a_job_that_is_no_cron_jobs_tells_its_result_all_the_same(server: Server, tmp_path: Path) -> None:
    server.missing = True
    done = check(server, tmp_path, f"printf '{GOOD}'")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    ((_, body),) = server.of("POST")
    assert json.loads(body)["involvedObject"]["uid"] == ""


def test_without_a_client_the_pool_could_not_be_checked(server: Server, tmp_path: Path) -> None:
    done = check(server, tmp_path, None, f"--client={tmp_path}/none")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "bitfusion-health-check: The pool could not be checked: The configured `bitfusion` command "
        "cannot be run."
    )
    ((_, body),) = server.of("POST")
    assert json.loads(body)["reason"] == "BitfusionHealthUnknown"


@pytest.mark.long
def test_what_the_client_says_on_stderr_is_in_the_log(server: Server, tmp_path: Path) -> None:
    done = check(
        server, tmp_path, "echo '[INFO] asking'; echo 'Error: cannot contact servers [a:1]' >&2; exit 1"
    )
    assert (done.returncode, done.stdout) == (1, "[INFO] asking\n")
    assert done.stderr == (
        "Error: cannot contact servers [a:1]\n"
        "bitfusion-health-check: The pool could not be checked: `bitfusion health` ended with status 1: "
        "Error: cannot contact servers [a:1]\n"
    )


@pytest.mark.long
def test_a_log_that_nobody_reads_is_no_error(server: Server, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as broken:
        command, environ = prepared(server, tmp_path, f"printf '{FATAL}'; printf 'x%.0s' 1 2 3 >&2")
        done = subprocess.run(command, env=environ, stdout=broken, stderr=broken, timeout=scaled(90))
    assert done.returncode == 1
    assert len(server.of("POST")) == 1


@pytest.mark.long
def test_a_variable_that_is_no_setting_is_told(server: Server, tmp_path: Path) -> None:
    command, environ = prepared(server, tmp_path, f"printf '{GOOD}'")
    environ["BITFUSION_HEALTH_CHECK_LIMITS"] = "9"
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=scaled(90))
    told = "bitfusion-health-check: BITFUSION_HEALTH_CHECK_LIMITS is not a setting and is ignored\n"
    assert done.stderr.startswith(told)


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """By name and labels; empty while nobody serves any."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=scaled(5)) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.long
@pytest.mark.parametrize(("report", "status", "result"), [(FATAL, 1, 2), (GOOD, 0, 0)])
def test_its_figures_are_shown_until_a_signal(
    server: Server, tmp_path: Path, report: str, status: int, result: int
) -> None:
    port = free_port()
    shown = ("--show-metrics=3600", "--bind=127.0.0.1", f"--monitoring-port={port}")
    command, environ = prepared(server, tmp_path, f"printf '{report}'", *shown)
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(lambda: scraped(port) or process.poll() is not None, "the figures", 60)
            samples = scraped(port)
            process.send_signal(signal.SIGTERM)
            assert process.wait(scaled(30)) == status
        finally:
            process.kill()
    assert samples["bitfusion_health_checks", "10.0.0.1:56001", "FATAL"] == status
    assert samples["bitfusion_health_checks", "10.0.0.1:56001", "PASS"] == 1 - status
    assert samples[("bitfusion_health_result",)] == result
    assert samples[("bitfusion_health_last_run_timestamp_seconds",)] > 1.7e9
    assert len(server.of("POST")) == 1  # before the wait


@pytest.mark.long
def test_it_ends_by_itself_when_its_figures_were_shown_long_enough(server: Server, tmp_path: Path) -> None:
    shown = ("--show-metrics=0.2", "--bind=127.0.0.1", "--monitoring-port=0")
    assert check(server, tmp_path, f"printf '{GOOD}'", *shown).returncode == 0


def test_a_port_that_is_taken_is_a_line(server: Server, tmp_path: Path) -> None:
    taken = server.url.rpartition(":")[2]
    shown = ("--show-metrics=3600", "--bind=127.0.0.1", f"--monitoring-port={taken}")
    done = check(server, tmp_path, f"printf '{GOOD}'", *shown)
    assert done.returncode == 0
    told = done.stderr.splitlines()[-1].lower()  # Pythons word it differently
    assert told.startswith(
        f"bitfusion-health-check: no metrics are served: port {taken} of 127.0.0.1 cannot be "
    )
    assert "address already in use" in told
    assert told.endswith("see --monitoring-port.")


def test_a_check_that_a_signal_ends_has_not_passed(server: Server, tmp_path: Path) -> None:
    command, environ = prepared(
        server,
        tmp_path,
        f"printf '{GOOD}'; echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600",
    )
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        try:
            pid = tmp_path / "pid"
            wait_until(lambda: pid.exists() or process.poll() is not None, "it runs", 60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(scaled(30)) == 1
        finally:
            process.kill()
    assert server.requests == []
    there = Path(f"/proc/{int(pid.read_text())}")
    wait_until(lambda: not there.exists(), "the client is gone", 5)


def test_figures_of_very_many_servers_are_bounded() -> None:
    report = parse_health("".join(f"Health report for server: s{n}:1\n[PASS   ] x\n" for n in range(5000)))
    registry = figures(report, Verdict(PASSED, ""), 1.0)
    (family,) = (one for one in registry.collect() if one.name == "bitfusion_health_checks")
    assert len(family.samples) == 5 * MOST_SERVERS
