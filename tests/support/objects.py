"""Kubernetes objects from YAML, as kustomize and helm write it."""

from __future__ import annotations

from typing import Any

import yaml

# libyaml, where PyYAML has it, is ten times as fast as Python, and a build has three thousand lines.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def objects_of(text: str) -> list[dict[str, Any]]:
    """All objects; empty documents are none."""
    return [item for item in yaml.load_all(text, _LOADER) if item]
