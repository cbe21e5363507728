"""The table of settings: every value that is read, and the one line in which a wrong one is told."""

from __future__ import annotations

import json

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_kernel.settings import values
from bitfusion_kernel.settings.table import BY_NAME, SETTINGS, parse_value
from tests.kernel.settings.wrong_values import WRONG

GOOD = [
    ("gpus", "2", 2),
    ("gpus", 3, 3),
    ("partial", "0.5", 0.5),
    ("partial", 1, 1.0),
    ("memory", "8Gi", 8192),
    ("memory", "8192 MiB", 8192),
    ("memory", "8192", 8192),
    ("memory", 8192, 8192),
    ("memory", "8000M", 7629),
    ("filter", "a=b", (("a", "b"),)),
    ("filter", "a=b; c=d=e", (("a", "b"), ("c", "d=e"))),
    ("filter", ["a=b c"], (("a", "b c"),)),
    ("server_list", "h:1;i:2", ("h:1", "i:2")),
    ("server_list", ["h:1"], ("h:1",)),
    ("timeout", "2m30s", 150.0),
    ("timeout", "90", 90.0),
    ("timeout", 90, 90.0),
    ("acquire", "manual", "manual"),
    ("client", "/x/bitfusion", "/x/bitfusion"),
    ("silent_wait", "0", 0.0),
    ("idle_release", "20m", 1200.0),
    ("idle_release", "1h30m", 5400.0),
    ("idle_release", "60", 60.0),
    ("idle_release", 90, 90.0),
    ("idle_release", "0", 0.0),
    ("idle_release", 0, 0.0),
    ("idle_release", "off", 0.0),
    ("idle_release", " Off ", 0.0),
    ("log_states", "on", True),
    ("log_states", " OFF", False),
    ("log_states", True, True),
    ("log_states", False, False),
    ("locked", ["gpus"], ("gpus",)),
]


IDLE = "must be a duration of at least one minute, like 20m or 1h30m (or 90: seconds), or off"


@pytest.mark.parametrize(("name", "value", "expected"), GOOD)
def test_reads_a_value(name: str, value: object, expected: object) -> None:
    assert parse_value(name, value) == expected


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_one_clear_line(name: str, value: object) -> None:
    with pytest.raises(WrongSetting) as error:
        parse_value(name, value, "the source")
    message = error.value.user_message
    assert "\n" not in message
    assert name in message
    assert str(value) in message or json.dumps(value) in message
    assert "the source" in message


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("memory", "8", "must be at least 256 MiB; did you mean 8Gi?"),
        ("memory", 8, "must be at least 256 MiB; did you mean 8Gi?"),
        ("memory", "8 Gugel", "must be an amount of memory, such as 8Gi, 8GB or 8192 (MiB)"),
        ("partial", "50%", "must be greater than 0.0 and at most 1.0; write 0.5"),
        ("partial", 50, "must be greater than 0.0 and at most 1.0; write 0.5"),
        ("idle_release", "5", IDLE),
        ("idle_release", "59s", IDLE),
        ("idle_release", "20 min", IDLE),
        ("partial", "0,5", "must be greater than 0.0 and at most 1.0; write 0.5"),
    ],
)
def test_a_size_that_was_meant_otherwise_is_told_as_it_is_meant(
    name: str, value: object, allowed: str
) -> None:
    with pytest.raises(WrongSetting) as error:
        parse_value(name, value, "BITFUSION_X")
    assert error.value.user_message == f'Wrong setting {name}="{value}" (from BITFUSION_X): {allowed}'


def test_every_example_is_valid_and_every_default_is_told() -> None:
    for setting in SETTINGS:
        if not setting.file_only:
            parse_value(setting.name, setting.example)
        assert setting.default
    assert BY_NAME["acquire"].allowed == "must be {}, {}, {} or {}".format(*values.ACQUIRE)
