"""Jupyter's config path, found without importing Jupyter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_kernel.settings.config_path import config_folders


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"JUPYTER_CONFIG_DIR": "/c"},
        {"JUPYTER_CONFIG_PATH": "/a:/b/"},
        {"JUPYTER_PLATFORM_DIRS": "1"},
        {"JUPYTER_PLATFORM_DIRS": "1", "XDG_CONFIG_HOME": "/x", "XDG_CONFIG_DIRS": "/y:/z"},
        {"JUPYTER_PREFER_ENV_PATH": "0"},
        {"JUPYTER_PREFER_ENV_PATH": "1"},
    ],
)
def test_config_path_is_jupyters(environ: dict[str, str], tmp_path: Path) -> None:
    code = "import jupyter_core.paths as p; print('\\n'.join(p.jupyter_config_path()))"
    whole = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **environ}
    done = subprocess.run([sys.executable, "-c", code], env=whole, capture_output=True, text=True, check=True)
    assert config_folders(whole) == done.stdout.split()


def test_no_config_path_if_jupyter_has_none() -> None:
    assert config_folders({"JUPYTER_NO_CONFIG": "1"}) == []
