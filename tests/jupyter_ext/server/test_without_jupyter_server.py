"""Where jupyter_server is missing nothing of the extension is loaded, and everything else can be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IMPORTS = """
import sys
for name in ("jupyter_server", "jupyter_events", "tornado", "yaml"):
    sys.modules[name] = None
import jupyter_ext.server, kubeflow_bitfusion.cli
import jupyter_ext.server.kernel_actions, jupyter_ext.server.own_names, jupyter_ext.server.pool_look
print(jupyter_ext.server._jupyter_server_extension_points.__name__)
"""


def test_everything_else_is_importable_without_it() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("_jupyter_server_extension_points\n", "")


def test_the_wheel_brings_the_file_that_enables_it() -> None:
    folder = "jupyter-config/jupyter_server_config.d"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"{folder}" = "etc/jupyter/jupyter_server_config.d"' in project
    (file,) = (ROOT / folder).iterdir()
    assert json.loads(file.read_text()) == {
        "ServerApp": {"jpserver_extensions": {"jupyter_ext.server": True}}
    }
