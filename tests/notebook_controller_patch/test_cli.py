"""`bitfusion-notebook-controller` as an admin types it: help, version, and every mistake in one line."""

from __future__ import annotations

import importlib.metadata
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_client.errors import BitfusionError, WrongSetting
from notebook_controller_patch import settings as cli
from notebook_controller_patch.settings import TABLE
from tests.notebook_controller_patch.controller_process import ControllerProcess
from tests.support.waiting import wait_until


def test_help_names_every_option_and_how_to_give_it_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for group in TABLE.groups:
        assert f"\n{group}:\n" in shown
    for setting in TABLE.rows:
        assert f"{setting.option} {setting.metavar}" in shown
        assert " ".join(setting.help.split())[:30] in " ".join(shown.split())
    assert "--monitoring-port is BITFUSION_CONTROLLER_MONITORING_PORT" in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    version = importlib.metadata.version("kubeflow-bitfusion")
    assert capsys.readouterr().out == f"bitfusion-notebook-controller {version}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--port", "x"], 'Wrong setting --port="x": must be a port, 1 to 65535 (0: any free one)'),
        (["--prt", "1"], 'Unknown option "--prt"; bitfusion-notebook-controller --help lists all'),
        (["--mon", "1"], 'Unknown option "--mon"; bitfusion-notebook-controller --help lists all'),
        (["start"], 'Unknown option "start"; bitfusion-notebook-controller --help lists all'),
        (
            ["--port"],
            "Argument --port: expected one argument; bitfusion-notebook-controller --help lists all options",
        ),
        (
            [],
            'Wrong setting --namespace="": must be given outside a pod: '
            "the namespace of the controller's Service",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"bitfusion-notebook-controller: {told}\n"


def test_what_ends_the_controller_is_one_line_and_its_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import notebook_controller_patch.controller as controller

    class Trouble(BitfusionError):
        headline = "No good."
        next_step = "do it better."

    for error, status, told in (
        (Trouble("this", "that"), 1, "No good. Asked for: this. Answer: that. What to do: do it better."),
        (WrongSetting("--images", "f", "is no YAML"), 2, 'Wrong setting --images="f": is no YAML'),
    ):

        def run(settings: object, error: BitfusionError = error) -> None:
            raise error

        monkeypatch.setattr(controller, "run", run)
        assert cli.main(["--namespace", "kubeflow"]) == status
        assert capsys.readouterr().err == f"bitfusion-notebook-controller: {told}\n"
    monkeypatch.setattr(controller, "run", lambda settings: None)
    assert cli.main(["--namespace", "kubeflow"]) == 0


def test_help_comes_without_the_client_of_the_cluster() -> None:
    program = (
        "import sys, notebook_controller_patch.settings as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(any(name in sys.modules for name in ('kubernetes', 'tornado', 'cryptography')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_is_not_lost(tmp_path: Path, number: int) -> None:
    # the first process of a container ignores a signal that it has no handler for
    prepare = (
        "import sys, time, types; slow = types.ModuleType('slow'); "
        "slow.run = lambda settings: (print('starting', flush=True), time.sleep(60)); "
        "sys.modules['notebook_controller_patch.controller'] = slow"
    )
    with ControllerProcess(tmp_path, ["--namespace=kubeflow"], prepare=prepare) as controller:
        wait_until(lambda: controller.logged("starting"))
        assert controller.end(number)[0] == 0
    assert [line["message"] for line in controller.lines()] == ["starting"]


def test_python_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "notebook_controller_patch", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("bitfusion-notebook-controller ")
