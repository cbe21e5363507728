from __future__ import annotations

import dataclasses

import pytest

from bitfusion_client.record import dataclass


@dataclass(frozen=True, slots=True)
class Base:
    a: int


@dataclass(frozen=True, slots=True)
class Derived(Base):
    b: str = "b"

    @property
    def both(self):
        return f"{self.a}{self.b}"


@dataclass(frozen=True, slots=True)
class Same(Base):
    """No field of its own."""


def test_it_behaves_as_the_standard_decorator():
    standard = dataclasses.make_dataclass("Derived", [("a", int), ("b", str, "b")], frozen=True)
    for made in (Derived, standard):
        assert (made(1).a, made(1).b) == (1, "b")
        assert made(1, "x") == made(b="x", a=1) != made(1)
        assert repr(made(1)) == "Derived(a=1, b='b')"
        assert {made(1): 2}[made(1)] == 2
        assert made.__match_args__ == ("a", "b")
        assert dataclasses.is_dataclass(made)
        assert dataclasses.asdict(made(1)) == {"a": 1, "b": "b"}
        assert dataclasses.replace(made(1), a=2) == made(2)
        assert [field.name for field in dataclasses.fields(made)] == ["a", "b"]


def test_bases_and_derived_differ():
    assert Derived(1).both == "1b"
    assert Base(1) != Same(1)
    assert Same(1) == Same(1)
    assert isinstance(Same(1), Base)
    assert not hasattr(Same(1), "__dict__")


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "Derived() misses 'a'"),
        ((1, 2, 3), {}, "Derived() takes 2 values, got 3"),
        ((1,), {"a": 2}, "Derived() got 'a' twice"),
        ((1,), {"c": 2}, "Derived() has no field 'c'"),
    ],
)
def test_wrong_calls(args, kwargs, message):
    with pytest.raises(TypeError) as caught:
        Derived(*args, **kwargs)
    assert str(caught.value) == message


def test_only_frozen_records_with_slots():
    with pytest.raises(TypeError, match="records are frozen and have slots"):
        dataclass(frozen=False, slots=True)
