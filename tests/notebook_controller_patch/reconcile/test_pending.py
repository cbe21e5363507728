"""Pending changes: the sentence for a person, and the same as data."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.kubernetes.notebook_request import notebook_request
from bitfusion_client.kubernetes.raw_objects import annotations_of
from notebook_controller_patch.propagation import template_annotations
from notebook_controller_patch.reconcile.pending import PendingChange, noted_change, pending_change
from notebook_controller_patch.reconcile.records import statefulset_record
from tests.notebook_controller_patch.admission.reviews import (
    AMOUNT,
    DEFAULTS,
    MANAGEMENT,
    OS,
    PENDING,
    REQUEST,
    VERSION,
    notebook,
    statefulset,
)


def pending(of: dict[str, Any], sts: dict[str, Any]) -> PendingChange | None:
    record = statefulset_record(sts)
    assert record is not None
    wanted = template_annotations(record.annotations, annotations_of(of))
    return pending_change(notebook_request(of), wanted, record.annotations, record.containers)


def text_of(of: dict[str, Any], sts: dict[str, Any]) -> str | None:
    change = pending(of, sts)
    return change.text if change is not None else None


OTHER_CLIENT = {MANAGEMENT: "injection", OS: "ubuntu20", VERSION: "450"}
LONG = "-n 2 --filter " + "k" * 500 + "=v"


@pytest.mark.parametrize(
    ("sizes", "owner", "template", "text"),
    [
        ({AMOUNT: "2"}, DEFAULTS, DEFAULTS, None),
        # foreign keys and those that are not carried are no change of ours
        ({AMOUNT: "2"}, {**DEFAULTS, "a": "b"}, {**DEFAULTS, "c": "d", PENDING: "x"}, None),
        (
            {AMOUNT: "2"},
            {**DEFAULTS, REQUEST: "-n 1 -p 0.5"},
            DEFAULTS,
            "1 GPU × 50 % instead of 2 GPUs, from the next start",
        ),
        (
            {AMOUNT: "2"},
            DEFAULTS,
            {**DEFAULTS, REQUEST: "-n 1 -p 0.5"},
            "2 GPUs instead of 1 GPU × 50 %, from the next start",
        ),
        (
            {},
            {**DEFAULTS, REQUEST: "-n 1"},
            None,
            "1 GPU instead of no GPU, from the next start",
        ),
        (
            {},
            {},
            {**DEFAULTS, REQUEST: "-n 1"},
            "no GPU instead of 1 GPU, from the next start",
        ),
        # the same size, another spelling
        (
            {AMOUNT: "2"},
            {**DEFAULTS, REQUEST: "-n 2"},
            DEFAULTS,
            "bitfusion.io/request -n 2, from the next start",
        ),
        (
            {AMOUNT: "2"},
            DEFAULTS,
            OTHER_CLIENT,
            "bitfusion-client/os ubuntu22 instead of ubuntu20, bitfusion-client/version 454 instead of "
            "450, from the next start",
        ),
        (
            {AMOUNT: "2"},
            DEFAULTS,
            None,
            "auto-management/bitfusion injection, bitfusion-client/os ubuntu22, "
            "bitfusion-client/version 454, from the next start",
        ),
        ({}, {}, {OS: "ubuntu22"}, "without bitfusion-client/os, from the next start"),
        # a size that cannot be, in the template
        (
            {AMOUNT: "2"},
            DEFAULTS,
            {**DEFAULTS, REQUEST: "nonsense"},
            "2 GPUs instead of a wrong size, from the next start",
        ),
    ],
)
def test_what_waits_for_the_next_start_is_told(
    sizes: dict[str, Any], owner: dict[str, Any], template: dict[str, Any] | None, text: str | None
) -> None:
    assert text_of(notebook(sizes, owner), statefulset(sizes, template)) == text


def test_a_pending_text_stays_readable() -> None:
    text = text_of(notebook({AMOUNT: "1"}, {REQUEST: LONG}), statefulset({AMOUNT: "1"}, {}))
    assert text is not None
    assert text.endswith("…, from the next start")
    assert len(text) < 450
    assert "\n" not in text


@pytest.mark.parametrize(
    ("sizes", "owner", "template", "running"),
    [
        ({AMOUNT: "2"}, {**DEFAULTS, REQUEST: "-n 1 -p 0.5"}, DEFAULTS, "-n 2"),
        ({AMOUNT: "2"}, DEFAULTS, {**DEFAULTS, REQUEST: "-n 1 -p 0.5"}, "-n 1 -p 0.5"),
        ({}, {**DEFAULTS, REQUEST: "-n 1"}, None, "none"),
        # only the size is noted
        ({AMOUNT: "2"}, DEFAULTS, OTHER_CLIENT, None),
        ({AMOUNT: "2"}, {**DEFAULTS, REQUEST: "-n 2"}, DEFAULTS, None),
        ({AMOUNT: "2"}, DEFAULTS, {**DEFAULTS, REQUEST: "nonsense"}, None),
        ({AMOUNT: "2"}, DEFAULTS, {**DEFAULTS, REQUEST: LONG}, None),
    ],
)
def test_the_running_size_is_noted_as_the_annotations_spell_it(
    sizes: dict[str, Any], owner: dict[str, Any], template: dict[str, Any] | None, running: str | None
) -> None:
    change = pending(notebook(sizes, owner), statefulset(sizes, template))
    assert change is not None
    assert change.running_size == running
    assert noted_change(change.annotations()) == change


def test_nothing_is_noted_without_the_annotation() -> None:
    assert noted_change({}) is None
    assert noted_change({"bitfusion.io/running-request": "-n 2"}) is None
