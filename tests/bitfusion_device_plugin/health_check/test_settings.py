"""`bitfusion-health-check`: options, environment, words for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_device_plugin.health_check.settings import TABLE, Settings, main, read_settings

NOWHERE = Path("/nowhere")


def test_defaults_and_the_pods_namespace(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("team-a\n")
    assert read_settings({}, {}, tmp_path / "namespace") == Settings("team-a")


def test_an_option_wins_over_the_environment() -> None:
    environ = {"BITFUSION_HEALTH_CHECK_LIMIT": "5", "BITFUSION_HEALTH_CHECK_NAMESPACE": "a"}
    found = read_settings({"limit": "7"}, environ, NOWHERE)
    assert (found.limit, found.namespace) == (7.0, "a")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("limit", "0", "must be seconds from 1 to 3600"),
        ("limit", "nan", "must be seconds from 1 to 3600"),
        ("namespace", "A", "must be at most 63 lower case letters, digits and -"),
        ("cron_job", "a/b", "must be the name of a Kubernetes object: lower case letters, digits, - and ."),
        ("show_metrics", "-1", "must be seconds from 0 to 3600"),
        ("show_metrics", "1m", "must be seconds from 0 to 3600"),
        ("monitoring_port", "99999", "must be a port, 1 to 65535"),
        ("bind", "localhost", "must be an IP address"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        read_settings({"namespace": "a", name: value}, {}, NOWHERE)
    assert allowed in str(caught.value)


def test_outside_a_pod_the_namespace_must_be_given() -> None:
    with pytest.raises(WrongSetting, match=r"must be given outside a pod: the namespace of the CronJob$"):
        read_settings({}, {}, NOWHERE)


def test_every_setting_and_the_exit_statuses_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert all(setting.option in told for setting in TABLE.rows)
    assert "Exit status: 0 no check is FATAL; 1 one is, the pool could not be checked" in told


def test_an_unknown_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--what"]) == 2
    assert capsys.readouterr().err == (
        'bitfusion-health-check: Unknown option "--what"; bitfusion-health-check --help lists all\n'
    )
