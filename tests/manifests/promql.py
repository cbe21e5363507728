"""Which metrics and labels a query names."""

from __future__ import annotations

import re

_TEXT = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|group_left|group_right) \(([\w, ]*)\)")
_MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)""')


def metrics_in(query: str) -> set[str]:
    """The names of ours and of kube-state-metrics."""
    return set(re.findall(r"\b(?:bitfusion|kube)_\w+", _TEXT.sub('""', query)))


def labels_in(query: str) -> set[str]:
    """Those by which it selects, groups and joins."""
    plain = _TEXT.sub('""', query)
    grouped = {label for group in _GROUPING.findall(plain) for label in group.split(", ")}
    return (grouped | set(_MATCHER.findall(plain))) - {""}
