"""Reviews and answers as bytes: read as strictly as the apiserver writes, and refused in one line."""

from __future__ import annotations

import json

import pytest

from bitfusion_cluster.webhooks.review import BadReview, Verdict
from bitfusion_cluster.webhooks.review_json import encode_answer, parse_review
from tests.notebook_controller_patch.admission.reviews import (
    answered,
    body,
    notebook,
    review,
    with_patch_read,
)


@pytest.mark.parametrize(
    ("posted", "message"),
    [
        (b"", "the body is not JSON: Input is a zero-length, empty document: line 1 column 1 (char 0)"),
        (b"{", "the body is not JSON: unexpected end of data: line 1 column 2 (char 1)"),
        (
            b"kind=AdmissionReview",
            "the body is not JSON: unexpected character, expected a JSON value: line 1",
        ),
        (b'{"a": 1} x', "the body is not JSON: unexpected content after document: line 1 column 10"),
        (b'{"a": NaN}', "the body is not JSON: unexpected character, expected a JSON value: line 1 column 7"),
        (b'{"a": "\\ud800"}', "the body is not JSON: no low surrogate in string: line 1 column"),
        (b'{"a": 1e400}', "the body is not JSON: number is infinity"),
        (b'{"a": ' + b"9" * 5000 + b"}", "the body is not JSON: number is infinity"),
        (b'{"a": "\xff"}', "the body is not UTF-8"),
        ('{"kind": "AdmissionReview"}'.encode("utf-16"), "the body is not UTF-8"),
        (b"[" * 100_000, "the body is nested too deeply"),
        (b'{"a":' * 100_000, "the body is nested too deeply"),
        (b"[]", "the body is not an AdmissionReview: it must be a JSON object"),
    ],
)
def test_what_is_no_review_is_told_in_one_line(posted: bytes, message: str) -> None:
    with pytest.raises(BadReview) as caught:
        parse_review(posted)
    text = str(caught.value)
    assert text.startswith(message)
    assert len(text.splitlines()) == 1
    assert len(text) < 250


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551616", 2.0**64),  # a float, as the apiserver reads it
        ("1e2", 100.0),
        ("0.1", 0.1),
        (r'"\u0000\ud83d\ude00\u2028"', "\x00😀\u2028"),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_values_come_and_go_as_they_are(written: str, value: object) -> None:
    posted = body(review({**notebook(), "x": "here"})).replace(b'"here"', written.encode())
    parsed = parse_review(posted)
    assert parsed.object is not None
    found = parsed.object["x"]
    assert found == value
    assert type(found) is type(value)
    verdict = Verdict(patch=[{"op": "add", "path": "/x", "value": found}])
    answer = json.loads(encode_answer(parsed, verdict))
    assert with_patch_read(answer) == with_patch_read(answered(parsed, verdict))


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(),
        Verdict(patch=[{"op": "add", "path": "/a/b~1c", "value": {"d": ['"', "\\", "\n", None, 1.5]}}]),
        Verdict(
            patch=[{"op": "remove", "path": "/a"}], warnings=("told", '"'), notes=("\\", "for the image")
        ),
        Verdict(False, patch=[{"op": "remove", "path": "/a"}], message='"patch":""', code=422),
    ],
)
def test_the_body_of_a_response_is_the_answer_as_compact_json(verdict: Verdict) -> None:
    parsed = parse_review(body(review(notebook())))
    expected = json.dumps(answered(parsed, verdict), separators=(",", ":"), ensure_ascii=False)
    assert encode_answer(parsed, verdict) == expected.encode()
