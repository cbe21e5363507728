"""The annotation that holds a request: options or JSON, and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.annotations import parse_request_annotation
from bitfusion_client.request.gpu_request import GpuRequest
from tests.client.strategies import refusal, requests


@given(requests())
def test_both_forms_of_the_annotation(request_: GpuRequest) -> None:
    assert parse_request_annotation(json.dumps(request_.to_json())) == request_


def test_deep_json_is_refused() -> None:
    error = refusal(parse_request_annotation, '{"gpus":' + "[" * 4_000)
    assert isinstance(error, InvalidRequest)
    assert error.allowed.startswith("is not JSON such as")


ONE = "must be a whole number from 1 to 1024"
OPTIONS = (
    "the options are -n GPUS, -p SHARE or -m MIB, --filter KEY=VALUE, --server_list HOST:PORT, --timeout 30m."
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("-n 0", f'-n "0" {ONE}'),
        ("-n two", f'-n "two" {ONE}'),
        ("-n 1 -p 50%", '-p "50%" must be greater than 0.0 and at most 1.0; write -p 0.5'),
        ("-n 1 --partial=50", '--partial "50" must be greater than 0.0 and at most 1.0; write --partial 0.5'),
        ("-n 1 -p 0", '-p "0" must be greater than 0.0 and at most 1.0'),
        ("-n 1 -m 8Gi", '-m "8Gi" must be a whole number of MiB, at least 1; write -m 8192'),
        ("-n 1 -m 8GB", '-m "8GB" must be a whole number of MiB, at least 1; write -m 7629'),
        ("-n 1 -m 0", '-m "0" must be a whole number of MiB, at least 1'),
        ("-n 1 -m much", '-m "much" must be a whole number of MiB, at least 1'),
        (f"-n 1 -m {'9' * 52}", f'-m "{"9" * 52}" must be a whole number of MiB, at least 1'),
        ("-n 1 -p 0.5 -m 8192", "give either a share (-p) or an amount of memory (-m), not both"),
        ("-n 1 --filter a", '--filter "a" must be key=value, the key without spaces'),
        ("-n 1 --gpu 2", f"--gpu is not an option; {OPTIONS}"),
        ("-n 1 --help", f"--help cannot be used here; {OPTIONS}"),
        ("-n", f"-n needs a value after it; {OPTIONS}"),
        ("-p 0.5", f"the number of GPUs is missing, as in -n 1; {OPTIONS}"),
        ("-n 1 python", f"unexpected word after the options: python; {OPTIONS}"),
        ("half", f"the number of GPUs is missing, as in -n 1; {OPTIONS}"),
        ('{"gpus": 0}', f'gpus "0" {ONE}'),
        ('{"gpus": true}', f'gpus "true" {ONE}'),
        ('{"partial": 50}', 'partial "50" must be greater than 0.0 and at most 1.0; write 0.5'),
        ('{"memory_mib": "8Gi"}', 'memory_mib "8Gi" must be a whole number of MiB, at least 1; write 8192'),
        (
            '{"gpu": 1}',
            'gpu "1" is not a field; the fields are gpus, partial, memory_mib, filters, servers, timeout',
        ),
        ('{"gpus": 1', 'is not JSON such as {"gpus": 1, "partial": 0.5}; options are simpler: -n 1 -p 0.5'),
    ],
)  # fmt: skip
def test_one_sentence_says_what_is_wrong(text: str, told: str) -> None:
    """No message within a message, and none in the words of a command that nobody has called."""
    error = refusal(parse_request_annotation, text)
    assert error is not None
    assert error.user_message == f'Invalid value "{text}" for bitfusion.io/request: {told}'


def test_a_long_value_is_cut() -> None:
    error = refusal(parse_request_annotation, "-n 1 -p 0.5 --filter " + "x" * 4000)
    assert error is not None
    assert error.user_message == (
        f'Invalid value "-n 1 -p 0.5 --filter {"x" * 38}…" for bitfusion.io/request: '
        f'--filter "{"x" * 59}…" must be key=value, the key without spaces'
    )
