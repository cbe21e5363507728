"""`dataclass` and `TYPE_CHECKING` for processes that must start fast: no import of `dataclasses` or `typing`.

`bitfusion run`, the launcher, and the proxy with its supervisor before the first reply start with every
kernel. `dataclasses` would cost them about 12 ms of imports, and `typing` costs `bitfusion run` 3 ms;
``docs/decisions/0005-fast-imports.md`` has the measurements. The modules of those processes write one line::

    from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

Type checkers see the standard decorator, and treat every name `TYPE_CHECKING` as true. All other modules use
the standard library.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
    from typing import Any
else:

    def dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """Decorate a class as ``@dataclasses.dataclass(frozen=True, slots=True)`` does.

        The result has slots, ``__init__``, ``__post_init__``, equality, hash, repr, ``__match_args__``, and
        refuses assignment. Fields are the annotations of the class after those of its bases. Defaults are
        shared and must be immutable; there are no factories. `dataclasses.fields`, `replace` and `asdict` do
        not know these classes.
        """
        if not (frozen and slots):
            raise TypeError("fast_imports.dataclass makes frozen classes with slots only")
        return _rebuild


def _rebuild(cls: type) -> type:
    namespace = dict(cls.__dict__)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    own = tuple(cls.__annotations__) if "__annotations__" in namespace else _annotations_of(cls)
    inherited: tuple[str, ...] = getattr(cls, "__match_args__", ())
    defaults: dict[str, object] = dict(getattr(cls, "_defaults", {}))
    for name in own:
        if name in namespace:
            defaults[name] = namespace.pop(name)
    added = tuple(name for name in own if name not in inherited)
    namespace.update(__slots__=added, __match_args__=inherited + added, _defaults=defaults)
    if not inherited:
        namespace.update(_METHODS)
    return type(cls)(cls.__name__, cls.__bases__, namespace)


def _annotations_of(cls: type) -> tuple[str, ...]:
    # Python 3.14 keeps annotations out of the namespace; a base's must not be taken for the class's own.
    own = cls.__annotations__ if "__annotate_func__" in cls.__dict__ else {}
    return tuple(own)


def _init(self: Any, *args: object, **kwargs: object) -> None:
    fields, defaults = self.__match_args__, self._defaults
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
    return tuple(getattr(self, name) for name in self.__match_args__)


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    same: bool = _values(self) == _values(other)
    return same


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({inside})"


def _refuse_set(self: Any, name: str, value: object) -> None:
    raise AttributeError(f"cannot assign to {name!r}: {type(self).__name__} is frozen")


def _refuse_delete(self: Any, name: str) -> None:
    raise AttributeError(f"cannot delete {name!r}: {type(self).__name__} is frozen")


def _reduce(self: Any) -> tuple[object, ...]:
    return type(self), _values(self)


_METHODS: dict[str, object] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__reduce__": _reduce,  # copies and pickles are made by the constructor, slots cannot be assigned
}
