"""What stands in the Bitfusion kernel's specification: its kernel.json and the two files beside it. Pure.

`spec_store` writes it for `bitfusion-kernel install`; the doctor reads it back.
"""

from __future__ import annotations

import os
import re
from typing import Any

from bitfusion_client.errors import UsageError
from bitfusion_client.request.durations import format_duration
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.protocol.arguments import OPTION_PREFIX, last_value
from bitfusion_kernel.settings.values import ACQUIRE

KERNEL_JSON = "kernel.json"
DEFAULT_NAME = "bitfusion"
DEFAULT_DISPLAY_NAME = "Bitfusion"
MARK = "bitfusion"
"""The key in `metadata` by which our own specs are recognised."""

_START = """\
import os, sys; entry = sys.argv[1]; folder = os.path.dirname(os.path.dirname(entry)); \
os.path.exists(entry) or sys.exit('The Bitfusion kernel "NAME" cannot start: kubeflow-bitfusion \
is no longer in ' + folder + '. Install it there again, or remove the kernel with \
`jupyter kernelspec remove NAME`.'); \
del sys.argv[0]; sys.path.append(folder); from bitfusion_kernel.__main__ import start; start()"""
"""Starts the proxy, or says in one line that the package has been removed: kernelspecs outlive it.

It stands in argv and not in a file beside kernel.json, so that a copy of the folder starts, too. It imports
the proxy's file instead of running it, because then its bytecode is used: a millisecond.
"""

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def checked_name(name: str) -> str:
    """A kernelspec's name as Jupyter allows it, in lower case as Jupyter stores it. Raises UsageError."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise UsageError(
            f'"{name}" cannot be the name of a kernel',
            "use ASCII letters, digits and . _ - only: --name bitfusion",
        )
    return name.lower()


def setting_options(request: GpuRequest | None, acquire: str | None) -> list[str]:
    """The proxy's `--bitfusion-*` options. None leaves the choice to config file and environment."""
    options = []
    if request is not None:
        options.append(f"gpus={request.gpus}")
        if request.partial is not None:
            options.append(f"partial={request.partial!r}")
        if request.memory_mib is not None:
            options.append(f"memory={request.memory_mib}Mi")
        options += [f"filter={key}={value}" for key, value in request.filters]
        if request.servers:
            options.append("server_list=" + ";".join(request.servers))
        if request.timeout is not None:
            options.append(f"timeout={format_duration(request.timeout)}")
    if acquire is not None:
        options.append(f"acquire={acquire}")
    return [OPTION_PREFIX + option for option in options]


def kernel_json(
    *,
    python: str,
    entry: str,
    folder: str,
    display_name: str,
    language: str,
    wrapped_metadata: dict[str, Any],
    request: GpuRequest | None = None,
    acquire: str | None = None,
) -> dict[str, Any]:
    """The content of kernel.json.

    `python` and `entry` (`bitfusion_kernel/__main__.py`) are absolute paths: servers of other
    environments start the spec, too. `folder` is where the spec will lie. Debugger and encryption are the
    wrapped kernel's.
    """
    shown: dict[str, Any] = {"wraps": "ipykernel"}
    if request is not None:
        shown["request"] = request.to_json()
    metadata: dict[str, Any] = {
        key: wrapped_metadata[key] for key in ("debugger", "supported_encryption") if key in wrapped_metadata
    }
    metadata[MARK] = shown
    metadata["parameters"] = parameters_schema(request, acquire)
    return {
        "argv": [
            *(python, "-I", "-S", "-c", _START.replace("NAME", os.path.basename(folder)), entry),
            *("-f", "{connection_file}"),
            f"{OPTION_PREFIX}spec={folder}",  # tells the proxy the folder of its spec
            *setting_options(request, acquire),
        ],
        "display_name": display_name,
        "language": language,
        "interrupt_mode": "message",
        "kernel_protocol_version": "5.5",
        "metadata": metadata,
    }


def parameters_schema(request: GpuRequest | None, acquire: str | None) -> dict[str, Any]:
    """JSON schema of what could be chosen at start (JEP 87, parameterized kernelspecs)."""
    request = request or GpuRequest()
    properties: dict[str, dict[str, Any]] = {
        "gpus": {"type": "integer", "title": "GPUs", "minimum": 1, "default": request.gpus},
        "partial": {
            "type": "number",
            "title": "Share of each GPU",
            "exclusiveMinimum": 0,
            "maximum": 1,
        },
        "memory": {"type": "string", "title": "Memory of each GPU", "examples": ["8Gi", "8000M"]},
        "timeout": {"type": "string", "title": "Longest wait", "examples": ["30m", "2h"]},
        "acquire": {
            "type": "string",
            "title": "When the GPU is asked for",
            "enum": list(ACQUIRE),
            "default": acquire or ACQUIRE[0],
        },
    }
    if request.partial is not None:
        properties["partial"]["default"] = request.partial
    if request.memory_mib is not None:
        properties["memory"]["default"] = f"{request.memory_mib}Mi"
    if request.timeout is not None:
        properties["timeout"]["default"] = format_duration(request.timeout)
    return {
        "type": "object",
        "properties": properties,
        "not": {"required": ["partial", "memory"]},
        "additionalProperties": False,
    }


def is_ours(kernel: dict[str, Any]) -> bool:
    """Whether a kernel.json was written by `kernel_json`."""
    metadata = kernel.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get(MARK), dict)


def written_request(kernel: dict[str, Any]) -> GpuRequest | None:
    """The size that one of our kernel.json asks for; None if it leaves that to settings.

    Raises:
        InvalidRequest: Somebody has edited it.
    """
    request = kernel["metadata"][MARK].get("request")
    return GpuRequest.from_json(request) if request else None


def written_acquire(kernel: dict[str, Any]) -> str | None:
    """When a kernel.json says that GPUs are asked for; None if it leaves that to settings."""
    return last_value(entry_options(kernel), "acquire")


def needed_files(kernel: dict[str, Any]) -> list[str]:
    """The files without which one of our kernel.json cannot start the proxy: interpreter and proxy."""
    return [word for word in kernel["argv"][:6] if os.path.isabs(word)]


def entry_options(kernel: dict[str, Any]) -> list[str]:
    """The `--bitfusion-*` options of a kernel.json."""
    return [
        word for word in kernel.get("argv", []) if isinstance(word, str) and word.startswith(OPTION_PREFIX)
    ]
