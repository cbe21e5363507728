"""Settings in options, config files and variables: what is read, and what is named in an error."""

from __future__ import annotations

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.settings.resolve import resolve
from bitfusion_kernel.settings.sources import ConfigValues, from_config
from bitfusion_kernel.settings.table import SETTINGS
from tests.kernel.settings.wrong_values import WRONG


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, value in WRONG if isinstance(value, str)]
)
def test_a_wrong_variable_or_option_names_itself(name: str, value: str) -> None:
    if name == "nothing":
        return
    with pytest.raises(WrongSetting, match=f"BITFUSION_{name.upper()}"):
        resolve([], {f"BITFUSION_{name.upper()}": value})
    with pytest.raises(WrongSetting, match=f"--bitfusion-{name}"):
        resolve([f"--bitfusion-{name}={value}"], {})


@pytest.mark.parametrize(
    "option", ["--bitfusion-gpu=1", "--bitfusion-locked=gpus", "--bitfusion-gpus", "--gpus=1", "--bitfusion-"]
)
def test_an_unknown_or_empty_option(option: str) -> None:
    with pytest.raises(WrongSetting, match="--bitfusion-gpus"):
        resolve([option], {})


def test_filters_repeat_and_dashes_are_underscores() -> None:
    found = resolve(["--bitfusion-filter=a=b", "--bitfusion-filter=c=d", "--bitfusion-server-list=h:1"], {})
    assert found.request == GpuRequest(filters=(("a", "b"), ("c", "d")), servers=("h:1",))


def test_every_example_can_be_given_as_option_and_as_variable() -> None:
    for setting in SETTINGS:
        if not setting.file_only:
            resolve([f"{setting.option}={setting.example}"], {})
            resolve([], {setting.variable: setting.example})


@pytest.mark.parametrize("value", [None, "", [], ()])
def test_an_empty_value_of_a_config_file_is_not_given(value: object) -> None:
    assert from_config({"memory": value}) == {}


def test_a_wrong_value_of_a_config_file_names_the_file() -> None:
    with pytest.raises(WrongSetting) as error:
        from_config(ConfigValues({"gpus": 0}, {"gpus": "/etc/jupyter/x.py"}))
    assert "/etc/jupyter/x.py" in error.value.user_message
    with pytest.raises(WrongSetting) as error:
        from_config({"gpus": 0})
    assert "the config file" in error.value.user_message
