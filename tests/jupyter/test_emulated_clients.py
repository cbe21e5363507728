"""Nobody can ask the real client how it behaves where its documents are silent: each answer must do."""

from __future__ import annotations

import pytest

from bitfusion_pool.inventory.emulation import CHOICES, DURATIONS
from tests.jupyter.conftest import FIRST_CELL, Launch
from tests.jupyter.embedded_pool import Pool

WITHOUT_A_GPU = ("servers", "token")
"""With these no cell runs: `test_messages` has what it says."""

OTHER_THAN_BY_DEFAULT = [
    f"{name}={value}"
    for name, values in (CHOICES | dict.fromkeys(DURATIONS, ("", "0.3"))).items()
    for value in values[1:]
    if name not in WITHOUT_A_GPU
]


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(setting, marks=[pytest.mark.long] * (number % 3 > 0))
        for number, setting in enumerate(OTHER_THAN_BY_DEFAULT)
    ],
)
def test_a_cell_runs_and_the_gpu_is_given_back(launch: Launch, pool: Pool, setting: str) -> None:
    pool.write(gpus=1, manners=setting)
    kernel = launch(FIRST_CELL)
    assert kernel.run("6 * 7").result == "42"
    assert len(pool.leases()) == 1
    assert "Held for" in kernel.run("%bitfusion").stream()
    kernel.stop()
    pool.wait_until_free(5)
