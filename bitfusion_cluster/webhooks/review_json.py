"""AdmissionReviews as JSON: the body of a request, the body of its response.

By orjson (decision 0022), which is as strict as the apiserver's own writer: no NaN, no half of a surrogate
pair, so what was read can always be written. An integer of more than 64 bits becomes a float, as there.
"""

from __future__ import annotations

from binascii import b2a_base64

import orjson

from bitfusion_cluster.webhooks.review import (
    BadReview,
    Review,
    Verdict,
    answer,
    read_review,
    shortened,
)

# Of a review: `{`, `[` and `,` in its bytes, those within texts included. So many values take 80 MB at most;
# two objects of 3 MiB, the largest that the apiserver takes, have fewer.
MOST_ITEMS = 500_000
TOO_DEEP = "the body is nested too deeply"

_DEPTH = "depth limit exceeded"  # orjson's words, at 1024 levels


def parse_review(body: bytes) -> Review:
    """The review in a request's body. Raises BadReview."""
    # a shorter body cannot have so many, and to count them takes a third of the time of reading it
    if len(body) > MOST_ITEMS and body.count(b"{") + body.count(b"[") + body.count(b",") > MOST_ITEMS:
        raise BadReview(f"the body has more than {MOST_ITEMS} items")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadReview(_not_json(body, error)) from None
    return read_review(data)


def encode_answer(review: Review, verdict: Verdict) -> bytes:
    """The body of the response that carries the verdict."""
    patch = b2a_base64(orjson.dumps(verdict.patch), newline=False).decode() if verdict.patch else ""
    return orjson.dumps(answer(review, verdict, patch))


def _not_json(body: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        body.decode()
    except UnicodeDecodeError:
        return "the body is not UTF-8"
    return TOO_DEEP if error.msg.startswith(_DEPTH) else f"the body is not JSON: {shortened(error)}"
