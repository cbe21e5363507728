"""The event bus of older servers, and a server in which the extension could not be loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml
from jsonschema import ValidationError
from jupyter_events.logger import EventLogger

from jupyter_ext.server.events import SCHEMA_ID, register
from jupyter_ext.server.extension import BitfusionExtension


class OldLogger(EventLogger):
    """Takes the version of a schema as jupyter_events did before 0.11, with JupyterLab 4.2: as a number."""

    def register_event_schema(self, schema: Any) -> None:
        text = schema.read_text("utf-8") if isinstance(schema, Path) else schema
        if not isinstance(yaml.safe_load(text)["version"], int):
            raise ValidationError("'1' is not of type 'integer'")
        self.taken = yaml.safe_load(text)


def test_the_schema_is_registered_with_old_and_new_jupyter_events() -> None:
    new, old = EventLogger(), OldLogger()
    register(new)
    assert SCHEMA_ID in new.schemas
    register(old)
    assert (old.taken["$id"], old.taken["version"]) == (SCHEMA_ID, 1)


def test_an_extension_that_was_not_loaded_does_not_keep_its_server() -> None:
    asyncio.run(BitfusionExtension().stop_extension())
