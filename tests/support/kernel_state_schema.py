"""Checks what a kernel tells of its state against the schema that the reference has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/kernel-state.schema.json").read_text("utf-8"))
FILE_SCHEMA = {**SCHEMA["$defs"]["file"], "$defs": SCHEMA["$defs"], "$schema": SCHEMA["$schema"]}


def check(told: Mapping[str, Any], schema: Mapping[str, Any] = SCHEMA) -> None:
    """Raise ValidationError unless it is as the schema says, and has no field that is not described."""
    jsonschema = pytest.importorskip(
        "jsonschema", reason="validates where Jupyter or Kubernetes' schemas bring it"
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(told)
    described = schema["properties"].keys() | schema["$defs"]["file"]["properties"].keys()
    assert told.keys() <= described
