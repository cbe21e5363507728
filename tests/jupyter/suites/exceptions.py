"""The tests of those suites that must differ with our kernel, each with its reason."""

from __future__ import annotations

_MESSAGE = "counts signals to the kernel's process; our spec says `interrupt_mode: message`"
_IDENTITY = "looks at the ROUTER identity of a request; the proxy's own stands before the client's"

NAMED: dict[str, dict[str, str]] = {
    "ipykernel": {"tests/test_kernel.py::test_parent_header_and_ident": _IDENTITY},
    "jupyter-client": {
        f"tests/test_kernelmanager.py::{test}[{transport}]": _MESSAGE
        for test in (
            "TestKernelManager::test_subclass_callables",
            "TestAsyncKernelManager::test_subclass_callables",
        )
        for transport in ("tcp", "ipc")
    },
}
