"""The settings of `bitfusion-queue`, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_device_plugin.queue.settings import PROGRAM, TABLE, read_settings


def test_all_but_the_namespace_has_a_default(tmp_path: Path) -> None:
    settings = read_settings({"namespace": "kubeflow"}, {})
    assert (settings.name, settings.stuck_after, settings.monitoring_port) == ("bitfusion-queue", 300.0, 8080)
    assert settings.units == 0


def test_the_environment_counts_where_no_option_is_given(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("of-the-pod")
    environ = {"BITFUSION_QUEUE_STUCK_AFTER": "60", "BITFUSION_QUEUE_STUCK": "1"}
    settings = read_settings({}, environ, file)
    assert (settings.stuck_after, settings.namespace) == (60.0, "of-the-pod")
    assert settings.ignored == ("BITFUSION_QUEUE_STUCK",)


@pytest.mark.parametrize("text", ["0", "0.9", "86401", "nan", "inf", "5m", ""])
def test_a_wrong_time_is_told(text: str) -> None:
    with pytest.raises(WrongSetting, match="must be seconds from 1 to 86400"):
        read_settings({"namespace": "a", "stuck_after": text}, {})


@pytest.mark.parametrize("text", ["-1", "100001", "half", "1.5", ""])
def test_a_wrong_size_is_told(text: str) -> None:
    with pytest.raises(WrongSetting, match="must be a whole number from 0 to 100000"):
        read_settings({"namespace": "a", "units": text}, {})


def test_outside_a_pod_the_namespace_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(WrongSetting, match="must be given outside a pod: the namespace of the queue's"):
        read_settings({}, {}, tmp_path / "none")


def test_the_command_tells_a_wrong_setting_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAM.main(["--stuck-after=soon"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("bitfusion-queue: ")
    assert told.count("\n") == 1


def test_every_setting_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.main(["--help"])
    told = capsys.readouterr().out
    assert all(setting.option in told for setting in TABLE.rows)
