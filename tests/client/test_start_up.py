"""What the modules of a kernel's start-up path may import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {
    "ast",
    "asyncio",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "inspect",
    "json",
    "re",
    "typing",
}
PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
__import__(sys.argv[2])
print(*sorted(name for name in sys.modules))
"""


def modules_after_importing(name: str) -> Any:
    command = [sys.executable, "-I", "-S", "-c", PROBE, str(ROOT), name]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "errors",
        "request.gpu_request",
        "command.command_line",
        "command.client_output",
        "command.find_client",
        "request.quantities",
        "request.shares",
        "command.exit_status",
    ],
)
def test_nothing_heavy(module: str) -> None:
    loaded = modules_after_importing(f"bitfusion_client.{module}")
    assert f"bitfusion_client.{module}" in loaded
    assert not loaded & (HEAVY | {"subprocess", "bitfusion_pool", "bitfusion_kernel"})


def test_the_package_itself_imports_none_of_its_modules() -> None:
    loaded = modules_after_importing("bitfusion_client")
    assert [name for name in loaded if name.startswith("bitfusion_client.")] == []
