"""Plain values as a block of YAML that a person reads. PyYAML has read the list of sizes, so it is there."""

from __future__ import annotations

LINE = 110


def yaml_text(value: object) -> str:
    """The YAML of mappings, lists and plain values, keys in their order; no object may stand in it twice."""
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=LINE)
    assert isinstance(text, str)
    return text
