"""Ids of subshells that were created before the kernel, and the kernel's ids for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.protocol.wire import Wire

WIRE = Wire(b"key")
REAL = "11111111-2222-4333-8444-555555555555"


def _create(subshells: EarlySubshells) -> str:
    created = subshells.create()
    assert created is not None
    return created


def _handed_over(content: dict[str, Any] | None = None) -> tuple[EarlySubshells, str]:
    """One subshell that the kernel has created, and its early id."""
    subshells = EarlySubshells(WIRE)
    early = _create(subshells)
    subshells.asked(early, "request")
    assert subshells.created("request", content or {"status": "ok", "subshell_id": REAL})
    return subshells, early


def _frames(
    subshell: str | None, content: dict[str, Any], message_type: str = "execute_request"
) -> list[bytes]:
    frames = WIRE.build(message_type, content, identities=[b"client"])
    frames[3] = json.dumps(json.loads(frames[3]) | {"subshell_id": subshell}).encode()
    frames[2] = WIRE.sign(frames[3:])
    return frames


def test_each_has_an_id_of_its_own_and_they_keep_their_order() -> None:
    subshells = EarlySubshells(WIRE)
    ids = [_create(subshells) for _ in range(3)]
    assert len(set(ids)) == 3
    assert subshells.ids == ids
    assert subshells.delete(ids[1])
    assert subshells.ids == [ids[0], ids[2]]
    assert not subshells.delete(ids[1])


def test_requests_wait_from_the_question_to_the_kernels_reply() -> None:
    subshells = EarlySubshells(WIRE)
    early = _create(subshells)
    assert (subshells.awaited, subshells.awaits(early)) == (False, False)
    subshells.asked(early, "request")
    assert (subshells.awaited, subshells.awaits(early), subshells.awaits(None)) == (True, True, False)
    assert not subshells.created("another request", {"subshell_id": REAL})
    assert subshells.awaits(early)
    assert subshells.created("request", {"subshell_id": REAL})
    assert (subshells.awaited, subshells.awaits(early)) == (False, False)


def test_a_request_names_the_kernels_id_and_is_signed_again() -> None:
    subshells, early = _handed_over()
    frames = _frames(early, {"code": f"'{early}'"})
    before = list(frames)
    sent = WIRE.read(subshells.to_kernel(frames))
    assert sent.header["subshell_id"] == REAL
    assert sent.content == {"code": f"'{early}'"}, "what a user writes is the user's"
    assert frames == before, "the account of requests has them as they came"


@pytest.mark.parametrize("subshell", [None, "another", REAL])
def test_requests_for_other_shells_stay_as_they_are(subshell: str | None) -> None:
    subshells, _ = _handed_over()
    frames = _frames(subshell, {"code": "1"})
    assert subshells.to_kernel(frames) == frames


def test_a_request_to_delete_one_names_the_kernels_id_in_its_content() -> None:
    subshells, early = _handed_over()
    frames = _frames(None, {"subshell_id": early}, "delete_subshell_request")
    assert WIRE.read(subshells.to_kernel(frames, deletes=True)).content == {"subshell_id": REAL}


def test_the_kernels_list_shows_the_ids_that_clients_know() -> None:
    subshells, early = _handed_over()
    frames = WIRE.build("list_subshell_reply", {"status": "ok", "subshell_id": ["later", REAL]})
    assert WIRE.read(subshells.to_client(frames)).content["subshell_id"] == ["later", early]


@pytest.mark.parametrize(
    "content", [{"status": "error", "evalue": "no"}, {"subshell_id": None}, {"subshell_id": 3}]
)
def test_one_that_the_kernel_refuses_is_left_to_the_kernel(content: dict[str, Any]) -> None:
    subshells, early = _handed_over(content)
    frames = _frames(early, {"code": "1"})
    assert not subshells.awaits(early)
    assert subshells.to_kernel(frames) is frames
