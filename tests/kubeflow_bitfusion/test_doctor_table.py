"""The table of the doctor in terminals of every width, with colors and without, and as JSON."""

from __future__ import annotations

import json
import re

import pytest

from bitfusion_client.text_table import display_width
from bitfusion_cluster.doctor.finding import Finding, fail, ok, warn
from kubeflow_bitfusion.doctor_table import as_json, conclusion, table

FINDINGS = [
    ok("Kubernetes", "Kubernetes v1.34.4"),
    warn(
        "quotas",
        "ada/gpus does not limit GPUs by nvidia.com/gpu: use requests.nvidia.com/gpu",
        "write it",
    ),
    fail(
        "injector",
        "0 of 2 ready: ImagePullBackOff registry.example.com/a/very/long/name/of/an/image:0.1.0",
        "push " * 30,
    ),
    ok("form", "offers GPU × 3, 半分"),
]
LONG = [Finding("x" * 30, "ok", "y " * 60, "")]


@pytest.mark.parametrize("width", [1, 24, 40, 63, 64, 80, 100, 200])
@pytest.mark.parametrize("findings", [FINDINGS, LONG, []])
def test_no_line_is_wider_than_the_terminal(width: int, findings: list[Finding]) -> None:
    text = table(findings, width, colored=False)
    widest = max(map(display_width, text.splitlines()), default=0)
    assert widest <= max(width, 36)  # a check's name is never cut
    words = " ".join(text.split())
    for finding in findings:
        assert finding.check in words
        assert "".join(finding.seen.split()) in "".join(text.split())


def test_a_wide_terminal_has_columns_and_what_to_do_below_what_was_seen() -> None:
    assert table(FINDINGS[:2], 80, colored=False) == (
        "state check       what was seen, and what to do\n" + "─" * 80 + "\n"
        "ok    Kubernetes  Kubernetes v1.34.4\n"
        "warn  quotas      ada/gpus does not limit GPUs by nvidia.com/gpu: use\n"
        "                  requests.nvidia.com/gpu\n"
        "                  → write it\n"
    )


def test_a_narrow_one_has_no_columns() -> None:
    assert table(FINDINGS[1:2], 40, colored=False) == (
        "warn  quotas\n  ada/gpus does not limit GPUs by\n  nvidia.com/gpu: use\n"
        "  requests.nvidia.com/gpu\n  → write it\n"
    )


def test_what_a_tenant_wrote_moves_no_cursor() -> None:
    text = table([fail("x", "image a\x1b[2J\x9b1m\ud800", "do \x1b]0;title\x07")], 80, colored=False)
    assert text.replace("\n", "").isprintable()
    assert "\\x1b[2J" in text


def test_colors_change_nothing_else() -> None:
    colored = table(FINDINGS, 80, colored=True)
    assert colored.count("\x1b[0m") == len(FINDINGS)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == table(FINDINGS, 80, colored=False)


def test_the_last_line_counts() -> None:
    assert conclusion(FINDINGS, "kubeflow") == "1 failed, 1 to look at; 2 of 4 are well (namespace kubeflow)."
    assert conclusion(FINDINGS[:1], "other") == "Nothing to do; 1 of 1 are well (namespace other)."


def test_machines_read_the_same() -> None:
    data = json.loads(as_json(FINDINGS, "kubeflow"))
    assert (data["ok"], data["namespace"]) == (False, "kubeflow")
    assert data["findings"][1] == {
        "check": "quotas",
        "state": "warn",
        "seen": FINDINGS[1].seen,
        "todo": "write it",
    }
    assert json.loads(as_json(FINDINGS[:2], "kubeflow"))["ok"] is True
