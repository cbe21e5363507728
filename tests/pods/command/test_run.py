"""`bitfusion run` with a real API server: its pod is made, waited for, told of, and gone in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bitfusion_client.command.log_output import LogOutput
from bitfusion_client.errors import PodLost
from bitfusion_pods.api.account import Account
from bitfusion_pods.api.client import Api
from bitfusion_pods.command.run import _Hears
from bitfusion_pods.command.runs import Runs
from bitfusion_pods.command.telling import Telling
from tests.cluster.cluster import Cluster
from tests.pods.command.in_terminal import CTRL_C, InTerminal
from tests.pods.command.notebook import EDIT, VIEW, Notebook, notebook_in
from tests.pods.command.relay import Relay
from tests.support.machine import scaled
from tests.support.ports import free_port
from tests.support.processes import freeze, thaw, wait_until_gone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

FOR_EVER = ("sh", "-c", "echo runs; exec sleep 600")


@pytest.fixture
def notebook(cluster: Cluster, tmp_path: Path) -> Iterator[Notebook]:
    with notebook_in(cluster, tmp_path) as made:
        yield made


def test_a_program_runs_in_a_pod_that_is_gone_in_the_end(notebook: Notebook) -> None:
    done = notebook.run("run", "-n", "1", "--", "sh", "-c", "echo $HOSTNAME; exit 7")
    assert done.returncode == 7, done.told
    name = done.said.decode().strip()
    assert name.startswith("digits-0-gpu-")
    lines = [line.partition("Z ")[2] or line for line in done.told.splitlines()]
    for words in (
        "Query server kubernetes gpu availability",
        f"Locked 1 GPUs with partial memory 1, configuration saved to 'pod/{name}'",
        f"Releasing GPUs from config file 'pod/{name}'...",
        f"Released GPUs on 1 servers and removed generated config file 'pod/{name}'",
    ):
        assert words in lines
    assert not notebook.gpu_pods()
    wait_until(lambda: notebook.node.held == 0, "the node hears of it")


def test_in_a_terminal_the_program_has_one_and_its_keys_and_size(notebook: Notebook) -> None:
    """The command that people type, not a part of it."""
    show = "test -t 0 && test -t 1 && stty size && read word && echo got $word && exec sleep 60"
    command = [notebook.command, "run", "-n", "1", "--", "sh", "-c", show]
    terminal = InTerminal(command, notebook.environment())
    terminal.wait_for("30 100\n", 30)
    terminal.type("typed\r")
    terminal.wait_for("got typed\n")
    terminal.type(CTRL_C)
    assert terminal.end() == 128 + signal.SIGINT, terminal.text
    assert terminal.modes() == terminal.before
    assert "Releasing GPUs from config file 'pod/digits-0-gpu-" in terminal.text
    assert not notebook.gpu_pods()
    terminal.close()


def test_its_secret_goes_with_the_pod(notebook: Notebook) -> None:
    running = notebook.start("run", "-n", "1", "--", *FOR_EVER)
    name = notebook.one_gpu_pod()
    (secret,) = notebook.secrets()
    assert secret["metadata"]["name"] == name
    assert secret["immutable"] is True
    running.terminate()
    running.finish()
    wait_until(lambda: not notebook.secrets(), "Kubernetes collects the Secret")


def test_who_may_make_no_secrets_is_told_so_and_leaves_no_pod(cluster: Cluster, tmp_path: Path) -> None:
    rules = [rule for rule in EDIT if rule["resources"] != ["secrets"]]
    with notebook_in(cluster, tmp_path, rules=rules) as notebook:
        done = notebook.run("run", "-n", "1", "--", "true")
        assert done.returncode == 1
        assert "this notebook may not create secrets in the namespace" in done.told
        assert "for the right to create Secrets there" in done.told
        assert not notebook.gpu_pods()


def test_a_quota_of_secrets_is_told_and_leaves_no_pod(notebook: Notebook) -> None:
    notebook.limit("few", "count/secrets", 0)
    done = notebook.run("run", "-n", "1", "--", "true")
    assert done.returncode == 1
    assert "quota few: 1 count/secrets requested, 0 allowed" in done.told
    assert not notebook.gpu_pods()


def test_who_finds_no_free_gpu_is_told_why_and_gets_the_next(notebook: Notebook) -> None:
    holders = [notebook.start("run", "-n", "1", "--", *FOR_EVER) for _ in range(2)]
    for holder in holders:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"runs\n", holder.finish()
    waiter = notebook.start("run", "-n", "1", "--", "echo", "mine")
    waiter.until_told("no free GPU")
    assert len(notebook.gpu_pods()) == 3
    holders[0].terminate()
    holders[0].finish()
    assert (waiter.finish(), waiter.said) == (0, b"mine\n"), waiter.told
    holders[1].terminate()
    assert holders[1].finish() == 128 + signal.SIGTERM
    assert not notebook.gpu_pods()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_gives_up_the_wait_leaves_no_pod(notebook: Notebook, number: int) -> None:
    waiter = notebook.start("run", "-n", "3", "--", "true")
    waiter.until_told("why: ")
    waiter.send_signal(number)
    assert waiter.finish() == 128 + number
    assert "Traceback" not in waiter.told
    assert not notebook.gpu_pods()


def test_a_wait_has_an_end(notebook: Notebook) -> None:
    done = notebook.run("run", "-n", "3", "--timeout", "2", "--", "true")
    assert done.returncode == 1
    assert "Error: timed out after 2s: " in done.told
    assert not notebook.gpu_pods()


@pytest.mark.parametrize("has_account", [True, False])
def test_a_killed_commands_pod_deletes_itself_or_is_left_to_the_next(
    notebook: Notebook, has_account: bool
) -> None:
    if not has_account:  # automountServiceAccountToken: false
        notebook.node.account = {}
    killed = notebook.start("run", "-n", "1", "--", *FOR_EVER)
    name = notebook.one_gpu_pod()
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"runs\n"
    killed.kill()
    killed.finish()
    wait_until(lambda: notebook.node.held == 0, lambda: notebook.node.log(name), 6)
    if has_account:
        wait_until(lambda: not notebook.gpu_pods(), lambda: notebook.node.log(name), 6)
        wait_until(lambda: not notebook.secrets(), "Kubernetes collects the Secret")
        assert "the pod is deleted" in notebook.node.log(name)
        return
    assert "the pod stays: cluster: this is not a pod" in notebook.node.log(name)
    assert [pod["metadata"]["name"] for pod in notebook.gpu_pods()] == [name]
    assert notebook.run("run", "-n", "1", "--", "true").returncode == 0
    assert not notebook.gpu_pods()


def test_a_killed_waiters_pod_is_deleted_by_the_next(notebook: Notebook) -> None:
    waiter = notebook.start("run", "-n", "3", "--", "true")
    waiter.until_told("why: ")
    waiter.kill()
    waiter.finish()
    assert len(notebook.gpu_pods()) == 1
    assert notebook.run("run", "-n", "1", "--", "true").returncode == 0
    assert not notebook.gpu_pods()


def test_the_pods_of_others_who_live_stay(notebook: Notebook) -> None:
    holder = notebook.start("run", "-n", "1", "--", *FOR_EVER)
    name = notebook.one_gpu_pod()
    assert notebook.run("run", "-n", "1", "--", "true").returncode == 0
    assert "deletionTimestamp" not in notebook.pod_now(name)["metadata"]
    holder.terminate()
    holder.finish()


def test_a_pod_that_somebody_deletes_is_told_as_lost(notebook: Notebook) -> None:
    running = notebook.start("run", "-n", "1", "--", *FOR_EVER)
    name = notebook.one_gpu_pod()
    assert running.stdout is not None
    assert running.stdout.readline() == b"runs\n"
    notebook.node.grace_s = 60.0  # the agent ends by SIGTERM, however slow the machine is
    notebook.cluster.client.delete(f"/api/v1/namespaces/{notebook.namespace}/pods/{name}")
    assert running.finish() == 128 + signal.SIGTERM, running.told
    assert "Error: GPU pod lost: " in running.told
    assert "What to do: " in running.told
    assert not notebook.gpu_pods()


def test_a_pod_that_is_deleted_while_the_api_does_not_answer_is_told_as_lost(notebook: Notebook) -> None:
    api = Relay(int(notebook.cluster.server.rpartition(":")[2]))
    running = notebook.start(
        "run", "-n", "1", "--", *FOR_EVER, changed={"KUBERNETES_SERVICE_PORT": str(api.port)}
    )
    name = notebook.one_gpu_pod()
    assert running.stdout is not None
    assert running.stdout.readline() == b"runs\n"
    notebook.node.grace_s = 60.0
    agent = notebook.node.agent_pid(name)
    api.refuse = "reset"
    api.cut()
    notebook.cluster.client.delete(f"/api/v1/namespaces/{notebook.namespace}/pods/{name}")
    wait_until_gone(agent, limit_s=30)
    time.sleep(1)  # the command has asked in vain
    api.refuse = ""
    assert running.finish() == 128 + signal.SIGTERM, running.told
    assert "Error: GPU pod lost: somebody deleted the pod" in running.told
    assert not notebook.gpu_pods()
    api.close()


@pytest.mark.parametrize("is_deleted", [True, False])
def test_sigkill_that_reaches_the_program_before_its_agent_is_told_as_what_became_of_the_pod(
    notebook: Notebook, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = notebook.start("run", "-n", "1", "--", *FOR_EVER)
    name = notebook.one_gpu_pod()
    assert running.stdout is not None
    assert running.stdout.readline() == b"runs\n"
    if is_deleted:
        monkeypatch.setattr(notebook.node, "_end", lambda _: True)  # the agent hears nothing of it
        notebook.cluster.client.delete(f"/api/v1/namespaces/{notebook.namespace}/pods/{name}")
    os.kill(program_of(notebook.node.agent_pid(name)), signal.SIGKILL)
    assert running.finish() == 128 + signal.SIGKILL, running.told
    assert ("Error: GPU pod lost: somebody deleted the pod" in running.told) is is_deleted, running.told
    assert not notebook.gpu_pods()


def test_a_pod_whose_agent_is_killed_is_told_as_lost(notebook: Notebook) -> None:
    running = notebook.start("run", "-n", "1", "--", *FOR_EVER)
    name = notebook.one_gpu_pod()
    assert running.stdout is not None
    assert running.stdout.readline() == b"runs\n"
    os.kill(notebook.node.agent_pid(name), signal.SIGKILL)
    assert running.finish() == 137, running.told
    assert "Error: GPU pod lost: " in running.told
    assert not notebook.gpu_pods()


@pytest.mark.parametrize(("program", "status"), [("exit 7", 7), ("exit 0", 0), ("kill -TERM $$", 143)])
def test_an_end_that_no_connection_tells_is_told_by_the_pods_status(
    notebook: Notebook, program: str, status: int, tmp_path: Path
) -> None:
    notebook.node.account = {}  # else it would delete its pod, as its client seems to have died
    waits = f"echo runs; until [ -e {tmp_path}/go ]; do sleep 0.05; done; {program}"
    running = notebook.start("run", "-n", "1", "--", "sh", "-c", waits)
    name = notebook.one_gpu_pod()
    assert running.stdout is not None
    assert running.stdout.readline() == b"runs\n"
    relay, agent = notebook.node.relays[name], notebook.node.agent_pid(name)
    freeze(agent)  # for it the connection and the program end at one moment, however long this takes
    relay.refuse = "reset"
    relay.cut(farewell=True)  # the agent takes it for the end of the command's process
    ends = program_of(agent)
    (tmp_path / "go").touch()
    wait_until_gone(ends)
    thaw(agent)
    assert running.finish() == status, running.told
    assert "out of reach" in running.told
    assert "Error: " not in running.told
    assert not notebook.gpu_pods()


def program_of(agent: int) -> int:
    """The process of the program that an agent has started."""
    (program,) = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    return int(program)


def test_a_running_program_needs_no_api_server(notebook: Notebook) -> None:
    running = notebook.start("run", "-n", "1", "--", "sh", "-c", "echo runs; read line; echo $line", stdin=-1)
    assert running.stdout is not None
    assert running.stdin is not None
    assert running.stdout.readline() == b"runs\n"
    notebook.cluster.apiserver.freeze()
    try:
        running.stdin.write(b"through\n")
        assert running.stdout.readline() == b"through\n"
        running.until_told("Releasing GPUs")
    finally:
        notebook.cluster.apiserver.thaw()
    assert running.finish() == 0
    assert not notebook.gpu_pods()


def test_a_first_cell_waits_for_an_api_server_that_is_away(notebook: Notebook) -> None:
    port = free_port()
    away = {"KUBERNETES_SERVICE_PORT": str(port)}
    waiter = notebook.start("run", "-n", "1", "--", "echo", "mine", changed=away)
    waiter.until_told("why: the cluster's API cannot be reached: ")
    relay = Relay(int(notebook.cluster.server.rpartition(":")[2]), ("127.0.0.1", port))
    assert (waiter.finish(), waiter.said) == (0, b"mine\n"), waiter.told
    relay.close()
    late = notebook.run("run", "-n", "1", "--timeout", "1", "--", "true", changed=away)
    assert late.returncode == 1
    assert "Error: timed out after 1s: the cluster's API cannot be reached: " in late.told


def test_an_api_that_does_not_answer_holds_up_no_lost_connection() -> None:
    """Whoever asks whether the pod is over serves signals, and dials."""
    asked, answer = threading.Event(), threading.Event()

    class Asked:
        def death(self, api: Api) -> PodLost:
            asked.set()
            answer.wait(20)
            return PodLost("")

    hears = _Hears(Telling(LogOutput(), {}), cast(Any, Asked()), "", Account("h", 1, ""), lambda: None)
    began = time.monotonic()
    assert not hears.is_over()
    assert not hears.is_over()
    assert time.monotonic() - began < scaled(1)
    assert asked.wait(scaled(5))
    answer.set()
    wait_until(hears.is_over, "the answer")


def test_a_kernel_whose_folder_is_in_shared_files_is_told_what_to_do(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "shared" / "bitfusion-kernel-1"  # at the same path in both pods
    folder.mkdir(parents=True)
    monkeypatch.setattr(
        notebook, "environment", with_(notebook.environment, BITFUSION_KERNEL_SOCKET=f"{folder}/supervisor")
    )
    done = notebook.run("run", "-n", "1", "--", "true")
    assert done.returncode == 126
    assert f"Error: GPU pod: the folder {folder} already exists" in done.told
    assert "What to do: set XDG_RUNTIME_DIR to" in done.told


@pytest.mark.parametrize("has_twin", [True, False])
def test_a_twin_with_another_python_than_the_notebooks_is_refused(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, has_twin: bool
) -> None:
    python = notebook.run_folder / "python3"  # of the notebook: that folder of the pod is empty
    (notebook.run_folder / "python3.9").touch(0o755)
    python.symlink_to("python3.9")
    path = f"{notebook.run_folder}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    monkeypatch.setattr(notebook, "environment", with_(notebook.environment, PATH=path))
    twins = [{"image": "docker.io/team/notebook:*", "gpu_image": "team/notebook-gpu:1"}] if has_twin else []
    done = notebook.run("run", "-n", "1", "--", "python3", "-c", "", images=twins)
    for file in list(notebook.run_folder.iterdir()):
        file.unlink()
    assert done.returncode == (126 if has_twin else 0), done.told
    assert ("Error: GPU pod: the GPU pod's image python3 has Python 3." in done.told) is has_twin


def with_(environment: Callable[..., dict[str, str]], **more: str) -> Callable[..., dict[str, str]]:
    return lambda **settings: environment(**settings) | more


def test_a_viewer_is_refused_in_plain_words(cluster: Cluster, tmp_path: Path) -> None:
    with notebook_in(cluster, tmp_path, rules=VIEW) as notebook:
        done = notebook.run("run", "-n", "1", "--", "true")
    assert done.returncode == 1
    (error,) = [line for line in done.told.splitlines() if line.startswith("Error: ")]
    assert error.startswith("Error: GPU pod: ")
    assert "may not" in error
    assert "ask your administrator" in error


def test_a_size_without_a_rule_is_refused_with_the_sizes_there_are(notebook: Notebook) -> None:
    done = notebook.run("run", "-n", "1", "-p", "0.5", "--", "true")
    assert done.returncode == 1
    assert "Error: GPU pod: this cluster does not offer GPUs in this size: " in done.told
    assert "whole" in done.told


def test_a_quota_of_gpus_is_waited_for(notebook: Notebook) -> None:
    notebook.limit("gpus", "requests.nvidia.com/gpu", 1)
    holder = notebook.start("run", "-n", "1", "--", *FOR_EVER)
    notebook.one_gpu_pod()
    waiter = notebook.start("run", "-n", "1", "--", "echo", "mine")
    waiter.until_told("quota")
    assert len(notebook.gpu_pods()) == 1
    holder.terminate()
    holder.finish()
    assert waiter.finish() == 0, waiter.told


def test_the_budget_of_the_notebook_is_kept(notebook: Notebook, tmp_path: Path) -> None:
    root = notebook.as_injected(tmp_path / "bitfusion", "-n 1")
    holder = notebook.start("run", "-n", "1", "--", *FOR_EVER, root=root)
    notebook.one_gpu_pod()
    waiter = notebook.start("run", "-n", "1", "--", "echo", "mine", root=root)
    waiter.until_told("holds its budget, 1 GPU")
    assert len(notebook.gpu_pods()) == 1
    too_much = notebook.run("run", "-n", "2", "--", "true", root=root)
    assert "Error: GPU pod: the budget of this notebook is 1 GPU" in too_much.told
    holder.terminate()
    holder.finish()
    assert (waiter.finish(), waiter.said) == (0, b"mine\n"), waiter.told


def test_who_counts_waits_for_another_that_does_in_its_container_whoever_that_is(notebook: Notebook) -> None:
    with Runs("digits").turn():
        waiter = notebook.start("run", "-n", "1", "--", "true")
        waiter.until_told("Query server")
        time.sleep(1)
        assert not notebook.gpu_pods()
    assert waiter.finish() == 0, waiter.told


def test_in_a_gpu_pod_there_is_no_second_one(notebook: Notebook) -> None:
    inner = notebook.start("run", "-n", "1", "--", "sh", "-c", "env")
    assert inner.finish() == 0
    assert f"BITFUSION_GPU_POD={notebook.name}-gpu-".encode() in inner.said
    again = subprocess.run(
        [notebook.command, "run", "-n", "1", "--", "true"],
        env=notebook.environment() | {"BITFUSION_GPU_POD": "digits-0-gpu-123456"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1
    assert "this is already a GPU pod (digits-0-gpu-123456)" in again.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "--", "true"), "the number of GPUs is missing: -n"),
        (("run", "-n", "1"), "there is no program to run"),
        (("request_gpus", "-n", "1"), "creates a pod for each program"),
        (("fly",), 'unknown command "fly"'),
    ],
)
def test_a_wrong_command_is_an_error_in_one_line(
    notebook: Notebook, words: tuple[str, ...], told: str
) -> None:
    done = notebook.run(*words)
    assert done.returncode == 1
    (line,) = done.told.splitlines()
    assert line.startswith("Error: ")
    assert told in line


def test_no_cluster_and_no_token_are_told(notebook: Notebook, tmp_path: Path) -> None:
    def told(**changed: str) -> str:
        return subprocess.run(
            [notebook.command, "run", "-n", "1", "--", "true"],
            env=notebook.environment() | changed,
            capture_output=True,
            text=True,
            check=False,
        ).stderr

    assert "Error: cluster: this is not a pod of a Kubernetes cluster" in told(KUBERNETES_SERVICE_HOST="")
    no_account = "Error: cluster: this pod may not use the cluster's API"
    assert no_account in told(BITFUSION_PODS_ACCOUNT=str(tmp_path))
    for name in ("token", "namespace"):
        (tmp_path / name).write_text("x")
    assert no_account in told(BITFUSION_PODS_ACCOUNT=str(tmp_path))  # there is no ca.crt
