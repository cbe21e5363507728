"""The routes of the extension, and what `openapi.yaml` says of them, agree."""

from __future__ import annotations

import re
from typing import Any

from jsonschema import Draft202012Validator

from bitfusion_client.kernel_state import states
from jupyter_ext.server import errors
from jupyter_ext.server.handlers import UnknownHandler, routes
from jupyter_ext.server.kernel_words import LARGEST_BODY, REQUEST_FIELDS
from jupyter_ext.server.pool_history import MOST_POINTS
from tests.jupyter_ext.server.extension_server import OPENAPI

METHODS = ("get", "post", "put", "patch", "delete")
ANY: Any = None


def described() -> set[tuple[str, str]]:
    return {(path, method) for path, item in OPENAPI["paths"].items() for method in item if method in METHODS}


def test_routes_and_document_agree() -> None:
    served = set()
    for pattern, handler, _ in routes(ANY, ANY):
        if handler is UnknownHandler:
            continue
        plain = re.sub(r"\\(.)", r"\1", pattern).removeprefix("/bitfusion/api")
        head, _, actions = plain.partition("([^/]+)/(")
        paths = (
            [f"{head}{{kernel_id}}/{action}" for action in actions.rstrip(")").split("|")]
            if actions
            else [plain]
        )
        served |= {(path, method) for path in paths for method in METHODS if method in vars(handler)}
    assert served == described()


def test_schemas_are_schemas_and_say_what_the_code_does() -> None:
    schemas = OPENAPI["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    ladder: list[type[errors.ApiError]] = [errors.ApiError, *errors.ApiError.__subclasses__()]
    assert set(schemas["Error"]["properties"]["code"]["enum"]) == {kind.code for kind in ladder}
    assert schemas["Kernel"]["properties"]["state"]["enum"] == list(states.STATES)
    assert schemas["Request"]["properties"].keys() == set(REQUEST_FIELDS)
    assert schemas["Pool"]["properties"]["history"]["maxItems"] == MOST_POINTS
    assert LARGEST_BODY >= 1024


def test_every_reference_leads_somewhere() -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if "$ref" in node else []
            return own + [each for value in node.values() for each in references(value)]
        return [each for value in node for each in references(value)] if isinstance(node, list) else []

    for reference in references(OPENAPI):
        found: Any = OPENAPI
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
