"""JSON text: the same as the standard encoder writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfusion_pool.client.json_text import dumps

SIMPLE = st.none() | st.booleans() | st.integers() | st.text(max_size=20)


@settings(max_examples=50)
@given(st.lists(st.dictionaries(st.text(max_size=5), SIMPLE, max_size=3), max_size=3))
def test_the_text_is_that_of_the_standard_encoder(value: object) -> None:
    assert dumps(value) == json.dumps(value)


def test_a_value_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        dumps({1})
