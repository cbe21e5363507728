"""Manners: read from text, checked, the later source winning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_pool.inventory.emulation import CHOICES, Manners, join_manners, manners_from, split_manners


def test_without_any_source_every_switch_has_the_first_of_its_choices() -> None:
    manners = manners_from()
    assert {name: getattr(manners, name) for name in CHOICES} == {
        name: values[0] for name, values in CHOICES.items()
    }
    assert (manners.slow, manners.auto_release) == (0, 600)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in CHOICES for value in CHOICES[name]])
def test_every_choice_can_be_set(name: str, value: str) -> None:
    assert getattr(manners_from(split_manners(f"{name}={value}")), name) == value


def test_the_later_source_wins_key_by_key() -> None:
    assert manners_from({"stream": "stdout", "sigint": "die"}, {"stream": "split"}) == Manners(
        stream="split", sigint="die"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("stream", 'invalid value "stream" for manners: must be name=value, several joined by ,'),
        ("stream=up", 'invalid value "up" for manner stream: must be stderr or stdout or split'),
        ("when_full=", 'invalid value "" for manner when_full: must be wait or fail'),
        (
            "slow=soon",
            'invalid value "soon" for manner slow: must be a duration like 0.5, 90, 10m or 2m30s',
        ),
        (
            "colour=red",
            'invalid value "colour" for manner: must be one of waiting_text, when_full, exit_codes, '
            "stream, sigint, sigterm, servers, token, telemetry, backup_warning, slow, auto_release",
        ),
    ],
)
def test_a_wrong_manner_is_told_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        manners_from(split_manners(text))
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("0.25", 0.25), ("90", 90), ("10m", 600), ("2m30s", 150), ("50ms", 0.05)]
)
def test_durations_are_seconds_or_have_units(text: str, seconds: float) -> None:
    assert manners_from({"auto_release": text}).auto_release == seconds


@given(st.dictionaries(st.sampled_from(sorted(CHOICES)), st.sampled_from(["a", "b c", "1.5"])))
def test_joined_manners_split_into_the_same(values: dict[str, str]) -> None:
    assert split_manners(join_manners(values)) == values
    assert split_manners(" , ".join(f" {key} = {value} " for key, value in values.items())) == values


@given(st.text())
def test_any_text_is_understood_or_refused_in_words(text: str) -> None:
    try:
        manners = manners_from(split_manners(text))
    except InvalidRequest:
        return
    assert isinstance(manners, Manners)
