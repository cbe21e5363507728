"""What is kept of namespaces and Secrets: only what is opted in, and whether a Secret is ours and intact."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_device_plugin.identity.records import (
    Identity,
    NamespaceRecord,
    namespace_record,
    secret_body,
    secret_record,
)

FILES = {"servers.conf": "servers:\n", "client.yaml": "token: bfpool_x\n", "ca.crt": "PEM"}
IDENTITY = Identity(FILES, "id1", 1_800_000_000.0, 1_800_001_000.0)
LABEL = {"bitfusion.io/identity": "true"}
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


def made(**changes: Any) -> dict[str, Any]:
    """A Secret as it comes back, after somebody's changes to its data."""
    body = secret_body(IDENTITY, "wanted")
    body["metadata"].update(uid="u", resourceVersion="7")
    body["data"].update(changes)
    return body


def test_a_secret_comes_back_as_it_was_written() -> None:
    found = secret_record(made())
    assert (found.uid, found.version, found.is_ours, found.is_intact) == ("u", "7", True, True)
    assert (found.wanted, found.token_id, found.renew_at) == ("wanted", "id1", 1_800_000_000.0)
    assert base64.b64decode(made()["data"]["ca.crt"]) == b"PEM"


@pytest.mark.parametrize(
    "changes",
    [
        {"client.yaml": base64.b64encode(b"another").decode()},
        {"client.yaml": None},
        {"ca.crt": "no base64!"},
        {"ca.crt": base64.b64encode(b"\xff").decode()},
        {"more": "eA=="},
    ],
    ids=["another", "missing", "garbage", "no text", "more"],
)
def test_a_secret_that_somebody_changed_is_not_intact(changes: dict[str, Any]) -> None:
    found = secret_record(made(**changes))
    assert (found.is_ours, found.is_intact) == (True, False)
    assert found.other_keys == (("more",) if "more" in changes else ())


@pytest.mark.parametrize("written", ["--gpus=2", "id\0", "-", "a b", "x" * 65, "id\n", "é", "../x"])
def test_what_cannot_be_the_id_of_a_token_is_none_and_a_change_by_somebody(written: str) -> None:
    body = made()
    body["metadata"]["annotations"]["bitfusion.io/identity-token"] = written
    found = secret_record(body)
    assert (found.token_id, found.is_intact) == ("", False)


def test_a_secret_without_our_label_is_somebody_elses() -> None:
    body = made()
    body["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "helm"}
    assert not secret_record(body).is_ours
    assert not secret_record({}).is_ours


def test_only_namespaces_that_are_opted_in_are_kept() -> None:
    metadata = {
        "name": "a",
        "uid": "u",
        "labels": LABEL,
        "annotations": {"bitfusion.io/limit-gpus": "2", "x": "y"},
    }
    assert namespace_record({"metadata": metadata}) == NamespaceRecord(
        "a", "u", False, (("bitfusion.io/limit-gpus", "2"),)
    )
    ending = namespace_record({"metadata": metadata, "status": {"phase": "Terminating"}})
    assert ending is not None
    assert ending.is_ending
    for labels in ({}, {"bitfusion.io/identity": "false"}, None):
        assert namespace_record({"metadata": {**metadata, "labels": labels}}) is None


@given(anything)
def test_nothing_that_an_api_server_sends_is_a_crash(data: Any) -> None:
    raw = data if isinstance(data, dict) else {"metadata": data, "data": data}
    secret_record(raw)
    namespace_record(raw)
    namespace_record({"metadata": {"name": "a", "labels": LABEL, "annotations": data}})


def test_an_identity_does_not_show_its_files() -> None:
    assert "bfpool" not in repr(IDENTITY)
