"""The settings of `bitfusion-identity`: where tokens come from, limits, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_device_plugin.identity.limits import LimitRules
from bitfusion_device_plugin.identity.settings import PROGRAM, TABLE, read_settings

NEEDED = {"issuer_files": "/etc/issuer", "namespace": "kubeflow"}


def test_limits_are_read_and_the_rest_has_defaults() -> None:
    settings = read_settings({**NEEDED, "default_gpus": "1", "most_gpus": "4", "most_share": "0.5"}, {})
    assert settings.limits == LimitRules((("gpus", 1.0),), (("gpus", 4.0), ("share", 0.5)))
    assert (settings.name, settings.command, settings.namespace) == (
        "bitfusion-identity",
        "bitfusion-pool",
        "kubeflow",
    )


def test_profiles_are_one_label_and_none_by_default() -> None:
    label = "app.kubernetes.io/part-of=kubeflow-profile"
    given = read_settings(dict(NEEDED), {"BITFUSION_IDENTITY_PROFILES": label})
    assert given.profiles == ("app.kubernetes.io/part-of", "kubeflow-profile")
    assert read_settings(dict(NEEDED), {}).profiles is None


def test_the_environment_counts_where_no_option_is_given(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("of-the-pod")
    environ = {"BITFUSION_IDENTITY_SOURCE_FILES": "/etc/files", "BITFUSION_IDENTITY_GPUS": "1"}
    settings = read_settings({}, environ, file)
    assert (settings.source_files, settings.namespace) == ("/etc/files", "of-the-pod")
    assert settings.ignored == ("BITFUSION_IDENTITY_GPUS",)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"namespace": "a"}, "must be given, or --source-files in its place"),
        ({**NEEDED, "source_files": "/x"}, "must be given, or --source-files in its place"),
        ({"issuer_files": "/x"}, "must be given outside a pod"),
        ({**NEEDED, "most_gpus": "0"}, "must be a whole number from 1 to 100000"),
        ({**NEEDED, "default_share": "2"}, "must be above 0 and at most 1"),
        ({**NEEDED, "profiles": "kubeflow-profile"}, "must be one label, KEY=VALUE"),
        ({**NEEDED, "default_gpus": "4", "most_gpus": "2"}, "must be at most --most-gpus"),
    ],
)
def test_a_wrong_setting_is_told(options: dict[str, str], why: str, tmp_path: Path) -> None:
    with pytest.raises(WrongSetting, match=why):
        read_settings(dict(options), {}, tmp_path / "none")


def test_the_command_tells_a_wrong_setting_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAM.main(["--most-gpus=many"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("bitfusion-identity: ")
    assert told.count("\n") == 1


def test_every_setting_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.main(["--help"])
    told = capsys.readouterr().out
    assert all(setting.option in told for setting in TABLE.rows)
