"""Messages between processes as lines: a dataclass becomes one JSON object with its `type`, and back. Pure.

The kernel's processes speak so (`bitfusion_kernel.processes.messages`); the pool's client and service use the
same form. Standard library only, and nothing is imported for JSON here: each family of messages brings what
reads and writes it, as some of its processes must start without `json`.

Versions of both ends may differ: fields and types may be added, none removed or renamed. Whoever reads passes
over what he doesn't know, and takes the default of a field that is missing.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class InvalidMessage(ValueError):
    """A line that is no message, or a message with a field that is missing or wrong; `str()` says which."""


class WrongValue(ValueError):
    """A value that a field cannot have; `str()` goes on where the value ends: ``must be text``."""


@dataclass(frozen=True, slots=True)
class TypedLines:
    """How the messages of one family are written and read.

    Attributes:
        messages: The classes that this end understands, by `TYPE`, their name on the wire.
        write: By the annotation of a field: makes JSON of its value; what is not here is written as it is.
        read: By the annotation of a field: its value from JSON. Raises WrongValue.
        dumps: JSON text of a value.
        loads: The value in a JSON text. Raises ValueError or RecursionError.
    """

    messages: Mapping[str, type[Any]]
    write: Mapping[str, Callable[[Any], object]]
    read: Mapping[str, Callable[[object], object]]
    dumps: Callable[[object], str]
    loads: Callable[[str], object]

    def format(self, message: Any) -> bytes:
        """The message as one line, with its line end."""
        fields: dict[str, object] = {"type": message.TYPE}
        for name, annotation in type(message).__annotations__.items():
            value, write = getattr(message, name), self.write.get(annotation)
            fields[name] = value if write is None else write(value)
        return self.dumps(fields).encode("ascii") + b"\n"

    def parse(self, line: bytes) -> Any:
        """The message in one line, with or without its end; None if its type is not known.

        Raises:
            InvalidMessage: See there.
        """
        try:
            fields = self.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise InvalidMessage("it is not UTF-8") from None
        except (ValueError, RecursionError):
            raise InvalidMessage("it is not JSON") from None
        if not isinstance(fields, dict):
            raise InvalidMessage("it is not a JSON object")
        kind = fields.get("type")
        if not isinstance(kind, str):
            raise InvalidMessage('it has no "type"')
        message = self.messages.get(kind)
        return None if message is None else message(**self._values(message, fields))

    def _values(self, message: type[Any], fields: Mapping[str, object]) -> dict[str, object]:
        values = {}
        for name, annotation in message.__annotations__.items():
            if name in fields:
                try:
                    values[name] = self.read[annotation](fields[name])
                except WrongValue as error:
                    from bitfusion_client.one_line import shown_value

                    shown = shown_value(fields[name])
                    raise InvalidMessage(f'{message.TYPE}: {name} is "{shown}" and {error}') from None
            elif name not in getattr(message, "_defaults", ()):
                raise InvalidMessage(f"{message.TYPE}: {name} is missing")
        return values
