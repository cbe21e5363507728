"""Every command after a plain ``pip install``: what needs more packages says which, in one line."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What only extras bring; the rest of what is installed here comes with ipykernel.
NAMES = "cryptography google grpc kubernetes orjson prometheus_client pynvml urllib3 yaml"
PLAIN = f"""
import pkgutil, sys
NAMES = {NAMES.split()}
class Missing:
    def find_spec(name, path, target=None):
        if name.partition(".")[0] in NAMES:
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Missing)
sys.exit(pkgutil.resolve_name(sys.argv.pop(1))())
"""
NAMESPACE = "--namespace=kubeflow"
EXTRAS = {
    "bitfusion": (["version"], ""),
    "bitfusion-device-plugin": ([], "device-plugin"),
    "bitfusion-health-check": ([NAMESPACE], "controller"),
    "bitfusion-identity": ([NAMESPACE, "--issuer-files=/tmp"], "controller"),
    "bitfusion-injector": ([NAMESPACE], "controller"),
    "bitfusion-kernel": (["list"], ""),
    "bitfusion-notebook-controller": ([NAMESPACE], "controller"),
    "bitfusion-pool": (["status"], ""),
    "bitfusion-queue": ([NAMESPACE], "controller"),
    "kubeflow-bitfusion": (["form", __file__], "form"),
}


@pytest.mark.parametrize("name", PROJECT["scripts"])
def test_a_command_without_its_packages_names_the_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITFUSION_POOL_DIR", str(tmp_path))
    words, extra = EXTRAS[name]
    command = [sys.executable, "-c", PLAIN, PROJECT["scripts"][name], *words]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    if not extra:
        assert done.returncode == 0
        assert "Error" not in done.stderr
        return
    assert done.returncode == (1 if extra == "form" else 2)
    told = " ".join(done.stderr.split())
    assert told.startswith(f"{name}: ")
    cure = "PyYAML" if extra == "form" else f"'.[{extra}]', in a checkout of kubeflow-bitfusion"
    assert told.endswith(f"What to do: pip install {cure}")
    assert "Traceback" not in told
    assert extra in PROJECT["optional-dependencies"]
