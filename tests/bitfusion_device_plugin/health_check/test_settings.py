"""`bitfusion-health-check`: options, environment, words for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_device_plugin.health_check.cli import main
from bitfusion_device_plugin.health_check.settings import Settings, read_settings

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
        ("pushgateway", "pushgateway:9091", "must be an address such as http://pushgateway.monitoring:9091"),
        ("pushgateway", "http://[", "must be an address such as http://pushgateway.monitoring:9091"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        read_settings({"namespace": "a", name: value}, {}, NOWHERE)
    assert allowed in str(caught.value)


def test_outside_a_pod_the_namespace_must_be_given() -> None:
    with pytest.raises(WrongSetting, match="must be given outside a pod"):
        read_settings({}, {}, NOWHERE)


def test_an_unknown_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--what"]) == 2
    assert capsys.readouterr().err == (
        'bitfusion-health-check: Unknown option "--what"; bitfusion-health-check --help lists all\n'
    )
