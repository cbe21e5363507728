"""What a plain kernel bears in its environment, ours bears, too, under the embedded client."""

from __future__ import annotations

import os

import pytest

from tests.jupyter.conftest import ALL, Launch

MIB = 1 << 20


@pytest.mark.parametrize("name", ALL)
def test_an_environment_of_one_mebibyte(launch: Launch, name: str) -> None:
    large = {f"SERVICE_{number}_PORT": "x" * (MIB // 1024) for number in range(1024)}
    kernel = launch(name, env=os.environ | large)
    cell = kernel.run(
        "import os; print(sum(len(value) for name, value in os.environ.items() if name in "
        "{f'SERVICE_{number}_PORT' for number in range(1024)}))"
    )
    assert cell.stream() == f"{MIB}\n"
