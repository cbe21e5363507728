"""Ids of subshells that were created before the kernel, and the kernel's ids for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bitfusion_kernel.magic.subshell_ids import SUBSHELL_ID
from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.protocol.wire import DELIMITER, Message, Wire

WIRE = Wire(b"key")
REAL = "11111111-2222-4333-8444-555555555555"


def _create(subshells: EarlySubshells) -> str:
    created = subshells.create()
    assert created is not None
    return created


def _handed_over(content: dict[str, Any] | None = None) -> tuple[EarlySubshells, str]:
    """One subshell that the kernel has created, by default under an id of its own, and its early id."""
    subshells = EarlySubshells(WIRE)
    early = _create(subshells)
    (request,) = map(WIRE.read, subshells.requests())
    assert request.content == {SUBSHELL_ID: early}
    subshells.on_reply(_reply(request, content or {"status": "ok", "subshell_id": REAL}))
    return subshells, early


def _reply(request: Message, content: dict[str, Any]) -> Message:
    return WIRE.read(WIRE.build("create_subshell_reply", content, parent=request.header))


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


def test_the_kernel_is_asked_for_each_once_and_to_delete_what_clients_have_deleted_since() -> None:
    subshells, first = _handed_over()
    assert subshells.requests() == []
    second = _create(subshells)
    subshells.delete(first)
    create, delete = map(WIRE.read, subshells.requests())
    assert (create.type, create.content) == ("create_subshell_request", {SUBSHELL_ID: second})
    assert (delete.type, delete.content) == ("delete_subshell_request", {"subshell_id": REAL})
    assert subshells.requests() == []
    subshells.begin()
    (again,) = map(WIRE.read, subshells.requests())
    assert again.content == {SUBSHELL_ID: second}, "another kernel has none of them"


def test_under_the_id_that_clients_know_nothing_has_to_be_translated() -> None:
    subshells, early = _handed_over()
    assert subshells.renamed
    subshells = EarlySubshells(WIRE)
    early = _create(subshells)
    (request,) = map(WIRE.read, subshells.requests())
    subshells.on_reply(_reply(request, {"status": "ok", "subshell_id": early}))
    assert not subshells.renamed


def test_a_reply_to_another_request_names_nothing() -> None:
    subshells = EarlySubshells(WIRE)
    _create(subshells)
    subshells.requests()
    other = WIRE.read(WIRE.build("kernel_info_request", {}))
    subshells.on_reply(_reply(other, {"subshell_id": REAL}))
    assert not subshells.renamed


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
    assert WIRE.read(subshells.to_kernel(frames)).content == {"subshell_id": REAL}


def test_replies_and_output_name_the_id_that_clients_know_and_are_signed_again() -> None:
    subshells, early = _handed_over()
    request = WIRE.read(_frames(REAL, {"code": "1"}))
    output = WIRE.build("stream", {"text": f'"{REAL}"'}, parent=request.header, identities=[b"topic"])
    before = list(output)
    seen = WIRE.read(subshells.to_client(output))
    assert seen.parent_header == request.header | {"subshell_id": early}
    assert seen.content == {"text": f'"{REAL}"'}, "what a user prints is the user's"
    assert output == before


@pytest.mark.parametrize("frames", [[], [b"x"], [DELIMITER], [b"x", DELIMITER, b"", b"{}", b"{}", b"{}"]])
def test_what_is_no_message_stays_as_it_is(frames: list[bytes]) -> None:
    subshells, _ = _handed_over()
    assert subshells.to_client(frames) is frames
    assert subshells.to_kernel(frames) is frames


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
    assert not subshells.renamed
    assert subshells.to_kernel(frames) is frames
