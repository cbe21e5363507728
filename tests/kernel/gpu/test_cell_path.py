"""The PATH of cells: whose Python comes first, and where the pool's commands are."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.command.find_client import FoundClient, embedded_folder
from bitfusion_kernel.gpu.cell_path import cell_path

SYSTEM = "/usr/local/bin:/usr/bin:/bin"
REAL = FoundClient("/opt/bitfusion/bin/bitfusion", "path", False)
OURS = FoundClient(f"{embedded_folder()}/bitfusion", "embedded", True)


@pytest.mark.parametrize(
    ("path", "kernel", "found"),
    [
        (SYSTEM, "/opt/venv/bin/python", f"/opt/venv/bin:{SYSTEM}"),
        (f"/opt/venv/bin:{SYSTEM}", "/opt/venv/bin/python", f"/opt/venv/bin:{SYSTEM}"),
        (f"/mine/bin:/opt/venv/bin/:{SYSTEM}", "/opt/venv/bin/python", f"/mine/bin:/opt/venv/bin/:{SYSTEM}"),
        (f"/conda/bin:{SYSTEM}", "/conda/envs/tf/bin/python", f"/conda/envs/tf/bin:/conda/bin:{SYSTEM}"),
        (SYSTEM, "/usr/bin/python3", SYSTEM),
        (SYSTEM, "ir", SYSTEM),
        (f":{SYSTEM}:.", "/opt/venv/bin/python", f"/opt/venv/bin::{SYSTEM}:."),
    ],
)  # fmt: skip
def test_the_kernels_own_folder_leads_unless_it_is_there(path: str, kernel: str, found: str) -> None:
    assert cell_path(path, kernel, REAL) == f"{found}:/opt/bitfusion/bin"


def test_a_folder_that_is_there_under_another_name_is_there(tmp_path: Path) -> None:
    """Where /bin is /usr/bin, it must not come before /usr/local/bin."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "bin").symlink_to(tmp_path / "usr/bin")
    path = f"/usr/local/bin:{tmp_path}/usr/bin:/opt/bitfusion/bin"
    assert cell_path(path, f"{tmp_path}/bin/python3", REAL) == path


def test_beside_the_stand_in_is_the_administrators_command_once() -> None:
    path = cell_path(SYSTEM, "/usr/bin/python3", OURS)
    assert path == f"{SYSTEM}:{embedded_folder()}"
    assert (Path(embedded_folder()) / "bitfusion-pool").stat().st_mode & 0o111
    in_pod = FoundClient("/bitfusion/bin/bitfusion", "injected", True)
    assert cell_path(SYSTEM, "ir", in_pod) == f"{SYSTEM}:/bitfusion/bin:{embedded_folder()}"


def test_a_real_client_is_not_hidden() -> None:
    assert embedded_folder() not in cell_path(SYSTEM, "ir", REAL)
