"""Values that are not allowed, each with the name of its setting."""

from __future__ import annotations

WRONG: list[tuple[str, object]] = [
    ("gpus", "0"),
    ("gpus", "1.5"),
    ("gpus", "two"),
    ("gpus", True),
    ("gpus", 2.0),
    ("partial", "0"),
    ("partial", "1.5"),
    ("partial", "nan"),
    ("partial", "50%"),
    ("memory", "8 Gugel"),
    ("memory", "0"),
    ("memory", 1.5),
    ("filter", "a"),
    ("filter", [1]),
    ("server_list", "h:99999"),
    ("server_list", "a b"),
    ("timeout", "-1"),
    ("timeout", "soon"),
    ("timeout", False),
    ("acquire", "never"),
    ("client", "bin/bitfusion"),
    ("client", 1),
    ("silent_wait", "-1"),
    ("silent_wait", "inf"),
    ("locked", ["gpu"]),
    ("locked", ["locked"]),
    ("nothing", "1"),
]
