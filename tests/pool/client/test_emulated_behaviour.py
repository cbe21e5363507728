"""Every emulation setting, seen from outside."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from bitfusion_pool.ledger.entries import HELD, WAITING
from tests.pool.pool_client import PoolClient, finish, uniform
from tests.support.waiting import wait_until

UNREACHABLE = """\
[INFO] TIME Query server 127.0.0.1:56001 to claim client id: UUID
[WARN] TIME Error contacting server 127.0.0.1:56001 to verify client id: \
Get https://127.0.0.1:56001/claim_id: {reason}
Error: none of the servers responded correctly to client id claim requests.
"""


def emulating(text: str) -> dict[str, str]:
    return {"BITFUSION_POOL_MANNERS": text}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("servers=unreachable", "dial tcp 127.0.0.1:56001: i/o timeout"),
        ("token=refused", "context deadline exceeded"),
    ],
)
@pytest.mark.parametrize("words", [["run", "-n", "1", "true"], ["list_gpus"], ["request_gpus", "1"], ["smi"]])
def test_no_server_answers(client: PoolClient, settings: str, reason: str, words: list[str]) -> None:
    done = client.do(*words, env=emulating(settings))
    assert (done.returncode, done.stdout) == (1, "")
    assert uniform(done.stderr) == UNREACHABLE.format(reason=reason)


def test_an_expired_token(client: PoolClient) -> None:
    done = client.do("run", "-n", "1", "true", env=emulating("token=expired"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Token expired at: 2021-11-20T00:00:00Z\n"


def test_failing_at_once_instead_of_waiting(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    done = client.do("run", "-n", "1", "true", env=emulating("when_full=fail"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "Error: not enough GPUs available: 1 GPUs with 16160 MiB of memory each requested, "
        "0 available on one server"
    )
    assert client.entries(WAITING) == []


def test_waiting_without_a_waiting_line(client: PoolClient, everything_taken: subprocess.Popen[str]) -> None:
    done = client.do("run", "-n", "1", "--timeout", "0.2", "true", env=emulating("waiting_text=none"))
    assert "Waiting" not in done.stderr
    assert "Error: timed out after 200ms" in done.stderr


@pytest.mark.parametrize(
    ("exit_codes", "statuses"), [("child", [0, 1, 7, 137]), ("one", [0, 1, 1, 1]), ("zero", [0, 0, 0, 0])]
)
def test_exit_codes(client: PoolClient, exit_codes: str, statuses: list[int]) -> None:
    scripts = ["exit 0", "exit 1", "exit 7", "kill -9 $$"]
    found = [
        client.do("run", "-n", "1", "--", "sh", "-c", script, env=emulating(f"exit_codes={exit_codes}"))
        for script in scripts
    ]
    assert [done.returncode for done in found] == statuses


@pytest.mark.parametrize(
    ("stream", "on_stdout", "on_stderr"), [("stderr", 0, 14), ("stdout", 14, 0), ("split", 4, 10)]
)
def test_the_stream_of_the_log(client: PoolClient, stream: str, on_stdout: int, on_stderr: int) -> None:
    done = client.do("run", "-n", "1", "true", env=emulating(f"stream={stream}"))
    assert (len(done.stdout.splitlines()), len(done.stderr.splitlines())) == (on_stdout, on_stderr)


def test_an_error_goes_to_the_same_stream_as_the_log(client: PoolClient) -> None:
    done = client.do("run", "-n", "9", "true", env=emulating("stream=stdout"))
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1].startswith("Error: no server can satisfy")


@pytest.mark.parametrize(("telemetry", "lines", "helpers"), [("line", 1, 0), ("on", 1, 1), ("off", 0, 0)])
def test_the_telemetry_process(
    client: PoolClient, tmp_path: Path, telemetry: str, lines: int, helpers: int
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = client.start(
        *("run", "-n", "1", "--", "cat", str(pipe)), env=emulating(f"telemetry={telemetry}")
    )

    def children() -> list[str]:
        return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()

    wait_until(lambda: len(children()) == 1 + helpers)
    started = children()
    pipe.write_text("end")
    out, err = finish(process)
    assert (out, len(started)) == ("end", 1 + helpers)
    assert err.count("launching telemetry process") == lines
    assert not any(os.path.exists(f"/proc/{child}") for child in started)
    assert client.entries(HELD) == []


def test_slow_servers(client: PoolClient) -> None:
    started = time.monotonic()
    assert client.do("run", "-n", "1", "true", env=emulating("slow=0.2")).returncode == 0
    assert time.monotonic() - started >= 0.4


def test_the_warning_about_a_backup(client: PoolClient) -> None:
    done = client.do("run", "-n", "1", "true", env=emulating("backup_warning=on"))
    file = f"{client.environ['HOME']}/.bitfusion/client.yaml"
    warning = done.stderr.splitlines()[1]
    assert warning.startswith("[WARN] ")
    assert f" Unable to backup old client config file: rename {file} {file}." in warning
    assert warning.endswith(": device or resource busy")


def test_the_environment_wins_over_the_configuration_key_by_key(client: PoolClient) -> None:
    client.configure('[manners]\nstream = "stdout"\nexit_codes = "one"\n')
    done = client.do("run", "-n", "1", "--", "sh", "-c", "exit 9", env=emulating("stream=stderr"))
    assert (done.returncode, done.stdout) == (1, "")


def test_a_wrong_setting_is_an_error(client: PoolClient) -> None:
    done = client.do("run", "-n", "1", "true", env=emulating("stream=nowhere"))
    assert done.returncode == 1
    assert done.stderr == (
        'Error: invalid value "nowhere" for manners.stream: must be stderr or stdout or split\n'
    )
