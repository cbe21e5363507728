"""A small stand-in for ``@dataclass(frozen=True, slots=True)``.

The standard decorator costs about 15 ms of imports (inspect, ast, tokenize), more than the rest of the
kernel's start-up path together. Modules of that path write::

    TYPE_CHECKING = False
    if TYPE_CHECKING:
        from dataclasses import dataclass
    else:
        from bitfusion_client.record import dataclass

so that type checkers see the real one. `dataclasses.replace`, `fields` and `asdict` work on the results;
they import what they need when somebody calls them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
    """Decorator: rebuild the class with slots, an ``__init__``, equality, hash, repr and no assignment.

    Fields are the annotations of the class after those of its bases. Defaults must be immutable:
    they are shared, there are no factories.
    """
    if not (frozen and slots):
        raise TypeError("records are frozen and have slots")
    return _rebuild


def _rebuild(cls: type) -> type:
    namespace = dict(cls.__dict__)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    own = tuple(cls.__annotations__) if "__annotations__" in namespace else _annotations_of(cls)
    inherited: tuple[str, ...] = getattr(cls, "_fields", ())
    defaults: dict[str, object] = dict(getattr(cls, "_defaults", {}))
    for name in own:
        if name in namespace:
            defaults[name] = namespace.pop(name)
    fields = inherited + tuple(name for name in own if name not in inherited)
    namespace.update(
        __slots__=tuple(name for name in own if name not in inherited),
        __match_args__=fields,
        _fields=fields,
        _defaults=defaults,
    )
    if not inherited:
        namespace.update(_METHODS)
    return type(cls)(cls.__name__, cls.__bases__, namespace)


def _annotations_of(cls: type) -> tuple[str, ...]:
    # Python 3.14 keeps annotations out of the namespace; a base's must not be taken for the class's own
    own = cls.__annotations__ if "__annotate_func__" in cls.__dict__ else {}
    return tuple(own)


def _init(self: Any, *args: object, **kwargs: object) -> None:
    fields, defaults = self._fields, self._defaults
    if len(args) > len(fields):
        raise TypeError(f"{type(self).__name__}() takes {len(fields)} values, got {len(args)}")
    put = object.__setattr__
    for index, value in enumerate(args):
        name = fields[index]
        if name in kwargs:
            raise TypeError(f"{type(self).__name__}() got {name!r} twice")
        put(self, name, value)
    for name in fields[len(args) :]:
        if name in kwargs:
            put(self, name, kwargs.pop(name))
        elif name in defaults:
            put(self, name, defaults[name])
        else:
            raise TypeError(f"{type(self).__name__}() misses {name!r}")
    if kwargs:
        raise TypeError(f"{type(self).__name__}() has no field {next(iter(kwargs))!r}")
    check = getattr(self, "__post_init__", None)
    if check is not None:
        check()


def _values(self: Any) -> tuple[object, ...]:
    return tuple(getattr(self, name) for name in self._fields)


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    same: bool = _values(self) == _values(other)
    return same


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
    return f"{type(self).__qualname__}({inside})"


def _refuse_set(self: Any, name: str, value: object) -> None:
    raise AttributeError(f"cannot assign to {name!r}: a {type(self).__name__} never changes")


def _refuse_delete(self: Any, name: str) -> None:
    raise AttributeError(f"cannot delete {name!r}: a {type(self).__name__} never changes")


def _reduce(self: Any) -> tuple[object, ...]:
    return type(self), _values(self)


class _StandardFields:
    """Gives `dataclasses.replace` and friends what they look for, when they look."""

    def __get__(self, instance: object, owner: Any) -> dict[str, Any]:
        import dataclasses

        defaults = owner._defaults
        fields = [
            (
                name,
                object,
                dataclasses.field(default=defaults[name]) if name in defaults else dataclasses.field(),
            )
            for name in owner._fields
        ]
        standard = dataclasses.make_dataclass(owner.__name__, fields, kw_only=True)
        return {field.name: field for field in dataclasses.fields(standard)}


_METHODS: dict[str, object] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__reduce__": _reduce,
    "__dataclass_fields__": _StandardFields(),
}
