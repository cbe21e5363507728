"""The JSON between the reading process and the command, which nobody else should be believed in."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bitfusion_pool.inventory.nvidia.cards import (
    Card,
    CardProcess,
    Reading,
    reading_from_json,
    reading_to_json,
)

MIB = st.integers(0, 1 << 30)
WORDS = st.text("abc-XYZ019/ ", max_size=40).map(lambda text: " ".join(text.split()))
PROCESSES = st.builds(CardProcess, MIB, st.none() | MIB)
CARDS = st.builds(
    Card, WORDS, WORDS, MIB, MIB, st.none() | st.integers(0, 100), st.lists(PROCESSES).map(tuple), WORDS
)
READINGS = st.builds(Reading, WORDS, WORDS, st.lists(CARDS).map(tuple), st.lists(WORDS).map(tuple))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["cards", "notes", "driver", "cuda"]), inner)
    ),
)


@given(READINGS)
def test_a_reading_comes_back_as_it_was(reading: Reading) -> None:
    assert reading_from_json(reading_to_json(reading)) == reading


@given(JSON)
@example({"cards": "", "notes": "", "driver": None, "cuda": None})
@example({"cards": {}, "notes": [], "driver": "", "cuda": ""})
def test_anything_else_is_refused(data: object) -> None:
    if not isinstance(data, dict) or not isinstance(data.get("cards"), list):
        with pytest.raises(ValueError, match="no reading of NVIDIA GPUs"):
            reading_from_json(data)  # type: ignore[arg-type]  # anything is the point


def test_control_characters_of_a_driver_do_not_reach_a_terminal() -> None:
    data = reading_to_json(Reading("5", "12", (Card("GPU-1", "\x1b[31mred", 1),)))
    assert "\x1b" not in reading_from_json(data).cards[0].name
