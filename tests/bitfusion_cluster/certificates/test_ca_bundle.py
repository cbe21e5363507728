"""The caBundle of a webhook configuration: patched where it differs, trusted where every webhook has it."""

from __future__ import annotations

import base64
from typing import Any

import jsonpatch
import pytest

from bitfusion_cluster.certificates.built_in_authority import bundle_patch, trusts

CA, OTHER = b"-----one-----\n", b"-----other-----\n"


def configuration(*bundles: bytes | None) -> dict[str, Any]:
    hooks = [
        {
            "name": f"{number}.bitfusion.io",
            "clientConfig": {} if bundle is None else {"caBundle": base64.b64encode(bundle).decode()},
        }
        for number, bundle in enumerate(bundles)
    ]
    return {"webhooks": hooks}


@pytest.mark.parametrize("before", [(None, None), (b"", OTHER), (CA, OTHER), (OTHER, CA)])
def test_every_webhook_gets_the_bundle(before: tuple[bytes | None, ...]) -> None:
    found = configuration(*before)
    patched = jsonpatch.apply_patch(found, bundle_patch(found, CA))
    assert patched == configuration(CA, CA)
    assert bundle_patch(patched, CA) == []
    assert trusts(patched, CA)


def test_a_configuration_that_was_replaced_meanwhile_is_not_patched() -> None:
    patch = bundle_patch(configuration(None, None), CA)
    replaced = configuration(None, None)
    replaced["webhooks"].reverse()
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(replaced, patch)


@pytest.mark.parametrize(
    ("found", "trusted"),
    [
        (configuration(CA), True),
        (configuration(OTHER + CA), True),
        (configuration(CA, OTHER), False),
        (configuration(None), False),
        ({}, False),
        ({"webhooks": None}, False),
        ({"webhooks": [{"clientConfig": None}]}, False),
        ({"webhooks": [{"clientConfig": {"caBundle": "no base64"}}]}, False),
        ({"webhooks": [{"clientConfig": {"caBundle": 5}}]}, False),
    ],
)
def test_a_ca_is_trusted_where_every_webhook_has_it(found: dict[str, Any], trusted: bool) -> None:
    assert trusts(found, CA) is trusted


def test_a_webhook_without_a_client_is_left_alone() -> None:
    assert bundle_patch({"webhooks": [{"name": "x"}, {"name": "y", "clientConfig": []}]}, CA) == []
