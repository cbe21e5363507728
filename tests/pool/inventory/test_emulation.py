"""Emulation settings: parsed, checked, later sources winning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_pool.inventory.emulation import (
    CHOICES,
    Emulation,
    emulation_from,
    join_settings,
    split_settings,
)


def test_without_any_source_every_setting_has_the_first_of_its_choices() -> None:
    emulation = emulation_from()
    assert {name: getattr(emulation, name) for name in CHOICES} == {
        name: values[0] for name, values in CHOICES.items()
    }
    assert (emulation.slow, emulation.auto_release) == (0, 600)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in CHOICES for value in CHOICES[name]])
def test_every_choice_can_be_set(name: str, value: str) -> None:
    assert getattr(emulation_from(split_settings(f"{name}={value}")), name) == value


def test_the_later_source_wins_key_by_key() -> None:
    assert emulation_from({"stream": "stdout", "sigint": "die"}, {"stream": "split"}) == Emulation(
        stream="split", sigint="die"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("stream", 'invalid value "stream" for manners: must be name=value, several joined by ,'),
        ("stream=up", 'invalid value "up" for manners.stream: must be stderr or stdout or split'),
        ("when_full=", 'invalid value "" for manners.when_full: must be wait or fail'),
        (
            "slow=soon",
            'invalid value "soon" for manners.slow: must be a duration like 0.5, 90, 10m or 2m30s',
        ),
        (
            "colour=red",
            'invalid value "colour" for manners: must be one of waiting_text, when_full, exit_codes, '
            "stream, sigint, sigterm, servers, token, telemetry, backup_warning, slow, auto_release",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        emulation_from(split_settings(text))
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("0.25", 0.25), ("90", 90), ("10m", 600), ("2m30s", 150), ("50ms", 0.05)]
)
def test_durations_are_seconds_or_have_units(text: str, seconds: float) -> None:
    assert emulation_from({"auto_release": text}).auto_release == seconds


@given(st.dictionaries(st.sampled_from(sorted(CHOICES)), st.sampled_from(["a", "b c", "1.5"])))
def test_joined_settings_split_into_the_same(values: dict[str, str]) -> None:
    assert split_settings(join_settings(values)) == values
    assert split_settings(" , ".join(f" {key} = {value} " for key, value in values.items())) == values


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        emulation = emulation_from(split_settings(text))
    except InvalidRequest:
        return
    assert isinstance(emulation, Emulation)
