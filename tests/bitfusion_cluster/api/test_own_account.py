"""The owner of what a program makes: its account, by the claims of its token."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bitfusion_cluster.api.own_account import owner_references

ABOUT = {"namespace": "kubeflow", "serviceaccount": {"name": "bitfusion-queue", "uid": "7-7"}}


def token(claims: Any) -> str:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"Bearer e30.{middle}.c2ln"


def test_the_account_owns_what_is_made_in_its_namespace() -> None:
    (owner,) = owner_references(token({"kubernetes.io": ABOUT}), "kubeflow")
    assert owner == {"apiVersion": "v1", "kind": "ServiceAccount", "name": "bitfusion-queue", "uid": "7-7"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "an-admins-token",
        "a.b.c",
        "e30.w.c2ln",
        token([]),
        token({}),
        token({"kubernetes.io": None}),
        token({"kubernetes.io": {**ABOUT, "namespace": "team"}}),
        token({"kubernetes.io": {**ABOUT, "serviceaccount": {"name": "x"}}}),
        token({"kubernetes.io": {**ABOUT, "serviceaccount": {"name": 1, "uid": "7"}}}),
    ],
)
def test_nobody_owns_it_otherwise(text: str) -> None:
    assert owner_references(text, "kubeflow") == []
