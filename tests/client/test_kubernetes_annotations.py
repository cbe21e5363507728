"""The annotation that holds a request: options or JSON, and nothing else."""

from __future__ import annotations

import json

from hypothesis import given

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes_annotations import parse_request_annotation
from bitfusion_client.request import GpuRequest
from tests.client.strategies import refusal, requests


@given(requests())
def test_both_forms_of_the_annotation(request_: GpuRequest) -> None:
    assert parse_request_annotation(json.dumps(request_.to_json())) == request_


def test_deep_json_is_refused() -> None:
    error = refusal(parse_request_annotation, '{"gpus":' + "[" * 4_000)
    assert isinstance(error, InvalidRequest)
    assert error.allowed == "is not JSON"
