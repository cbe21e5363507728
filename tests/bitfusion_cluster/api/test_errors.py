"""Errors of the Kubernetes API: a class for each status, and what the server said."""

from __future__ import annotations

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    error_of_status,
)
from tests.bitfusion_cluster.fake_api import FakeApi, Handler
from tests.bitfusion_cluster.faults import status

PATH = "/apis/kubeflow.org/v1/namespaces/ann/notebooks"
WATCH_QUERY: dict[str, str | int | bool] = {"watch": True, "timeoutSeconds": 60, "resourceVersion": "0"}
SHORT = (1.0, 0.5)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, ApiError),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Invalid),
        (429, TooManyRequests),
        (500, ServerError),
        (503, ServerError),
    ],
)
def test_errors_have_classes_and_words(
    server: FakeApi, api: KubernetesApi, code: int, kind: type[ApiError]
) -> None:
    server.misbehave(status(code, "SomeReason", "some words", Retry_After="7"))
    with pytest.raises(kind) as caught:
        api.get(PATH)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, "SomeReason", "some words")
    assert error.retry_after == 7
    assert str(error) == f"{code} SomeReason: some words"
    assert error.user_message == (
        f"The Kubernetes API refused a request.\nAnswer: {code} SomeReason: some words"
    )


def test_an_error_of_somebody_between_us_and_the_api_is_tolerated(
    server: FakeApi, api: KubernetesApi
) -> None:
    def proxy_page(handler: Handler) -> None:
        handler.send_response(502)
        handler.send_header("Content-Length", "13")
        handler.end_headers()
        handler.wfile.write(b"<html></html>")

    server.misbehave(proxy_page)
    with pytest.raises(ServerError, match="502 Bad Gateway"):
        api.get(PATH)


def test_the_seconds_to_wait_also_stand_in_the_body() -> None:
    error = error_of_status(429, {"details": {"retryAfterSeconds": 3}})
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == 3
    assert error_of_status(410, None).retry_after is None
