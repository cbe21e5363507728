"""The substitutes behave as the standard `dataclass`, where they promise to."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from bitfusion_client.fast_imports import dataclass


@dataclass(frozen=True, slots=True)
class Base:
    a: int


@dataclass(frozen=True, slots=True)
class Derived(Base):
    b: str = "b"

    @property
    def both(self) -> str:
        return f"{self.a}{self.b}"


@dataclass(frozen=True, slots=True)
class Same(Base):
    """No field of its own."""


def test_it_behaves_as_the_standard_decorator() -> None:
    standard: Any = dataclasses.make_dataclass("Derived", [("a", int), ("b", str, "b")], frozen=True)
    fast: Any = Derived
    for made in (fast, standard):
        assert (made(1).a, made(1).b) == (1, "b")
        assert made(1, "x") == made(b="x", a=1) != made(1)
        assert repr(made(1)) == "Derived(a=1, b='b')"
        assert {made(1): 2}[made(1)] == 2
        assert made.__match_args__ == ("a", "b")


def test_bases_and_derived_differ() -> None:
    assert Derived(1).both == "1b"
    assert Base(1) != Same(1)
    assert Same(1) == Same(1)
    assert isinstance(Same(1), Base)
    assert not hasattr(Same(1), "__dict__")


def test_fields_cannot_be_assigned_or_deleted() -> None:
    made: Any = Derived(1)
    with pytest.raises(AttributeError, match="cannot assign to 'a': Derived is frozen"):
        made.a = 2
    with pytest.raises(AttributeError, match="cannot assign to 'other'"):
        made.other = 2
    with pytest.raises(AttributeError, match="cannot delete 'b': Derived is frozen"):
        del made.b


def test_copies_and_pickles_are_equal() -> None:
    made = Derived(1, "x")
    assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "Derived() misses 'a'"),
        ((1, 2, 3), {}, "Derived() takes 2 values, got 3"),
        ((1,), {"a": 2}, "Derived() got 'a' twice"),
        ((1,), {"c": 2}, "Derived() has no field 'c'"),
    ],
)
def test_wrong_calls(args: tuple[int, ...], kwargs: dict[str, Any], message: str) -> None:
    made: Any = Derived
    with pytest.raises(TypeError) as caught:
        made(*args, **kwargs)
    assert str(caught.value) == message


def test_only_frozen_classes_with_slots() -> None:
    with pytest.raises(TypeError, match="frozen classes with slots only"):
        dataclass(frozen=False, slots=True)
