"""The settings of `bitfusion-device-plugin`: what is read, and what is wrong with them."""

from __future__ import annotations

import dataclasses
import re

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_device_plugin.plugin.settings import PROGRAM, TABLE, Settings, read_settings


def test_the_environment_counts_where_no_option_is_given() -> None:
    environ = {
        "BITFUSION_DEVICE_PLUGIN_OVERCOMMIT": "1.5",
        "BITFUSION_DEVICE_PLUGIN_PROBE_EVERY": "30",
        "BITFUSION_DEVICE_PLUGIN_PROBES": "30",
    }
    settings = read_settings({"overcommit": "2", "registration": "classic"}, environ)
    assert (settings.overcommit, settings.probe_every, settings.registration) == (2.0, 30.0, "classic")
    assert settings.ignored == ("BITFUSION_DEVICE_PLUGIN_PROBES",)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"units": "0"}, "must be a whole number from 1 to 100000"),
        ({"units": "many"}, "must be a whole number from 1 to 100000"),
        ({"overcommit": "0"}, "must be a factor from 0.01 to 100"),
        ({"overcommit": "nan"}, "must be a factor from 0.01 to 100"),
        ({"probe_every": "15s"}, "must be seconds from 0.1 to 3600"),
        ({"probe_limit": "0"}, "must be seconds from 0.1 to 300"),
        ({"unhealthy_after": "0"}, "must be a whole number from 1 to 100"),
        ({"plugins_registry": ""}, "must be the absolute path of a folder"),
        ({"device_plugins": "device-plugins"}, "must be the absolute path of a folder"),
        ({"registration": "both"}, "must be one of watcher, classic"),
        ({"monitoring_port": "66000"}, "must be a port"),
    ],
)
def test_a_wrong_setting_is_told(options: dict[str, str], why: str) -> None:
    with pytest.raises(WrongSetting, match=re.escape(why)):
        read_settings(dict(options), {})


def test_the_command_tells_a_wrong_setting_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAM.main(["--overcommit=half"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("bitfusion-device-plugin: ")
    assert "--overcommit" in told
    assert told.count("\n") == 1


def test_the_help_names_every_setting_with_its_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    for setting in TABLE.rows:
        assert setting.option in told
        default = defaults[setting.name]
        if default is not None:
            shown = f"{default:g}" if isinstance(default, float) else str(default)
            assert f"Default: {shown}" in " ".join(setting.help.split())
