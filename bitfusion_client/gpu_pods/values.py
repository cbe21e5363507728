"""Readers of the values in an admin's settings for GPU pods: each bounded, each wrong one named. Pure.

A value comes from YAML or JSON and may be anything; what is returned is never shared with what was given.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, WrongSetting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.image_references import ALLOWED_IMAGE, is_image
from bitfusion_client.request.quantities import parse_gpu_memory, parse_quantity
from bitfusion_client.request.request_rules import MOST_MEMORY_MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_NAME = 63  # of a label's value, and so of what is named by one
LONGEST_KEY = 317  # of a label's or resource's name: 253 of its domain, a slash, 63
LONGEST_VALUE = 1024  # of any other text

ALLOWED_BOOLEAN = "must be true or false, without quotes"
ALLOWED_OBJECT = "must have fields, each with a value"
ALLOWED_NAME = (
    f"must be at most {LONGEST_NAME} lowercase letters, digits and -, with a letter or digit at both ends"
)
ALLOWED_QUANTITY = "must be an amount above 0 in Kubernetes notation, such as {}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands, for the message of an error: ``rules[2].serves`` of ``pods.yaml``."""

    name: str
    source: str = ""

    def field(self, name: object) -> Place:
        """Of one of its fields."""
        shown = str(name)[:LONGEST_KEY]
        return Place(f"{self.name}.{shown}" if self.name else shown, self.source)

    def item(self, index: int) -> Place:
        """Of one of its items."""
        return Place(f"{self.name}[{index}]", self.source)

    def wrong(self, value: object, allowed: str) -> WrongSetting:
        """The error that tells it."""
        return WrongSetting(self.name or "settings", value, allowed, self.source)


def fields(value: object, place: Place, known: Iterable[str]) -> dict[str, object]:
    """A JSON object with no field but these. A field that is null counts as absent; so does all of it."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise place.wrong(value, ALLOWED_OBJECT)
    names = tuple(known)
    for name in value:
        if name not in names:
            raise place.field(name).wrong(
                value[name], f"is not a field here; the fields are {', '.join(names)}"
            )
    return {name: each for name, each in value.items() if each is not None}


def items(value: object, place: Place, most: int, what: str) -> list[object]:
    """A list of at most so many; absent: empty."""
    if value is None:
        return []
    if not isinstance(value, (list, tuple)) or len(value) > most:
        raise place.wrong(value, f"must be a list of at most {most} {what}")
    return list(value)


def boolean(value: object, place: Place) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise place.wrong(value, ALLOWED_BOOLEAN)
    return value


def whole(value: object, place: Place, least: int, most: int) -> int:
    """A whole number within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise place.wrong(value, f"must be a whole number from {least} to {most}")
    return value


def line(value: object, place: Place, longest: int = LONGEST_VALUE) -> str:
    """One line of text."""
    if not isinstance(value, str) or not 1 <= len(value) <= longest or not value.isprintable():
        raise place.wrong(value, f"must be one line of text, at most {longest} characters")
    return value


def is_name(text: object, longest: int = LONGEST_NAME) -> bool:
    """Whether Kubernetes takes it as the name of an object: a label of RFC 1123."""
    if not isinstance(text, str) or not 1 <= len(text) <= longest or not text.isascii():
        return False
    plain = text.replace("-", "")
    return plain.isalnum() and plain == plain.lower() and text[0] != "-" and text[-1] != "-"


def name(value: object, place: Place) -> str:
    """The name of an object."""
    if not isinstance(value, str) or not is_name(value):
        raise place.wrong(value, ALLOWED_NAME)
    return value


def image(value: object, place: Place) -> str:
    """The reference of an image."""
    if not isinstance(value, str) or not is_image(value):
        raise place.wrong(value, ALLOWED_IMAGE)
    return value


def quantity(value: object, place: Place, example: str) -> str:
    """An amount of a resource, above 0, as text."""
    try:
        positive = parse_quantity(value)[0] > 0
    except ValueError:
        positive = False
    if not positive or len(str(value)) > LONGEST_NAME:
        raise place.wrong(value, ALLOWED_QUANTITY.format(example))
    return str(value)


def gpu_memory(value: object, place: Place) -> int:
    """MiB of a GPU: ``8Gi``, or a number of MiB."""
    try:
        mib = parse_gpu_memory(value)
    except InvalidRequest as error:
        raise place.wrong(value, error.allowed) from None
    if mib > MOST_MEMORY_MIB:
        raise place.wrong(value, "is more memory than the GPU has")
    return mib


def share(value: object, place: Place) -> float:
    """A part of a GPU, above 0 and at most 1."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise place.wrong(value, "must be a share of a GPU, above 0 and at most 1")
    return float(value)
