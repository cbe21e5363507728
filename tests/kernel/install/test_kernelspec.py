"""What stands in the specification."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bitfusion_client.errors import InvalidRequest, UsageError
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.install import kernelspec
from bitfusion_kernel.settings.resolve import resolve
from bitfusion_kernel.settings.table import BY_NAME, parse_value

REQUESTS = [
    GpuRequest(),
    GpuRequest(gpus=2, partial=0.37),
    GpuRequest(memory_mib=8000),
    GpuRequest(partial=1e-9, timeout=0.25),
    GpuRequest(3, None, None, (("device.name", "a b;c"), ("x", "y=z")), ("h:1", "i"), 1800),
]


def _kernel(request: GpuRequest | None = None, acquire: str | None = None) -> dict[str, Any]:
    return kernelspec.kernel_json(
        python="/p y/bin/python",
        entry="/p y/bitfusion_kernel/__main__.py",
        folder="/a b/kernels/bitfusion",
        display_name="Bitfusion",
        language="python",
        wrapped_metadata={"debugger": True, "supported_encryption": ["curve"], "else": 1},
        request=request,
        acquire=acquire,
    )


def test_plain() -> None:
    kernel = _kernel()
    code = kernel["argv"].pop(4)
    assert kernel["argv"] == [
        *("/p y/bin/python", "-I", "-S", "-c"),
        *("/p y/bitfusion_kernel/__main__.py", "-f", "{connection_file}"),
        "--bitfusion-spec=/a b/kernels/bitfusion",
    ]
    assert "\n" not in code
    assert not re.search(r"\{[A-Za-z0-9_]+\}", code), "Jupyter would take it for a name to replace"
    assert kernel["interrupt_mode"] == "message"
    assert kernel["kernel_protocol_version"] == "5.5"
    assert kernel["language"] == "python"
    metadata = kernel["metadata"]
    assert metadata["debugger"] is True
    assert metadata["supported_encryption"] == ["curve"]
    assert "else" not in metadata
    assert kernelspec.is_ours(kernel)


def test_debugger_and_encryption_are_the_wrapped_kernels() -> None:
    kernel = kernelspec.kernel_json(
        python="/p", entry="/e", folder="/f", display_name="x", language="R", wrapped_metadata={}
    )
    assert "debugger" not in kernel["metadata"]
    assert "supported_encryption" not in kernel["metadata"]


@pytest.mark.parametrize("request_", REQUESTS)
def test_the_proxy_reads_back_what_was_installed(request_: GpuRequest) -> None:
    kernel = _kernel(request_, "start")
    found = resolve(kernelspec.entry_options(kernel), {})
    assert found.request == request_
    assert found.acquire == "start"
    assert kernelspec.written_request(kernel) == request_
    assert kernelspec.written_acquire(kernel) == "start"


def test_what_is_not_written_is_left_to_settings() -> None:
    assert kernelspec.written_request(_kernel()) is None
    assert kernelspec.written_acquire(_kernel()) is None


def test_a_size_that_was_edited_wrongly_is_refused() -> None:
    kernel = _kernel(GpuRequest(gpus=2))
    kernel["metadata"]["bitfusion"]["request"]["gpus"] = 0
    with pytest.raises(InvalidRequest):
        kernelspec.written_request(kernel)


def test_parameters_are_a_json_schema_of_settings() -> None:
    schema = _kernel(GpuRequest(gpus=2, partial=0.5, timeout=60), "manual")["metadata"]["parameters"]
    assert set(schema["properties"]) <= set(BY_NAME)
    defaults = {name: item["default"] for name, item in schema["properties"].items() if "default" in item}
    assert defaults == {"gpus": 2, "partial": 0.5, "timeout": "1m0s", "acquire": "manual"}
    for name, value in defaults.items():
        parse_value(name, value)
    jsonschema = pytest.importorskip("jsonschema", reason="validates the schema where Jupyter brings it")
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema).is_valid
    assert check({"gpus": 1, "memory": "8Gi"})
    assert not check({"partial": 0.5, "memory": "8Gi"})
    assert not check({"gpus": 0})
    assert not check({"partial": 0})


@pytest.mark.parametrize(("name", "expected"), [("bitfusion", "bitfusion"), ("A.b_C-1", "a.b_c-1")])
def test_good_names(name: str, expected: str) -> None:
    assert kernelspec.checked_name(name) == expected


@pytest.mark.parametrize("name", ["", "a b", "ä", "..", "a/b", "a\n"])
def test_bad_names(name: str) -> None:
    with pytest.raises(UsageError, match="name of a kernel"):
        kernelspec.checked_name(name)


@pytest.mark.parametrize("kernel", [{}, {"metadata": None}, {"metadata": {"bitfusion": True}}])
def test_foreign_specs(kernel: dict[str, Any]) -> None:
    assert not kernelspec.is_ours(kernel)
