"""What people already have keeps working: kernelspecs, config files, variables, commands of earlier releases.

So does what runs: an update may come between a kernel and its restart, or between a proxy and its first cell.

The files in `compatibility/` are as version 0.1.0 wrote or documented them; in the kernelspec `@PYTHON@`,
`@PACKAGE@` and `@FOLDER@` stand for the paths. They are never changed: whoever has installed such a
kernelspec has these very files.
"""

from __future__ import annotations

import json
import pkgutil
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bitfusion_kernel
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.request_note import RequestNote
from bitfusion_kernel.gpu.simulated import with_banner_line
from bitfusion_kernel.settings.resolve import current_settings
from tests.jupyter.conftest import bitfusion_kernel_command
from tests.jupyter.embedded_pool import MEMORY_MIB, Pool
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled

FILES = Path(__file__).with_name("compatibility")
PACKAGE = Path(bitfusion_kernel.__file__).parent

SETTINGS = {
    "gpus": ("2", 2),
    "partial": ("0.5", 0.5),
    "memory": ("8Gi", 8192),
    "filter": ("device.name=Tesla", (("device.name", "Tesla"),)),
    "server_list": ("10.0.0.1:56001;10.0.0.2:56001", ("10.0.0.1:56001", "10.0.0.2:56001")),
    "timeout": ("30m", 1800),
    "acquire": ("start", "start"),
    "client": ("/usr/bin/bitfusion", "/usr/bin/bitfusion"),
    "silent_wait": ("7", 7.0),
    "idle_release": ("20m", 1200.0),
}
"""The documented settings, each with a value as it is written and as it is meant."""

NOTES_KEY = b"6e1c5b1c-a6a8d9c1f7a54e0fbc3d0ff0"
"""The key in a connection file."""

NOTE = "6e7853f1ceadeba5e05ad5f9a3706d53.json"
"""The name of that kernel's note."""

MEANT_BY = {"memory": "memory_mib", "filter": "filters", "server_list": "servers"}
"""Settings whose field has another name."""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Two simulated GPUs of this test's own."""
    made = Pool(tmp_path / "pool")
    made.write(gpus=2)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def kernelspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installed kernelspec, its placeholders filled in."""
    folder = tmp_path / "share" / "jupyter" / "kernels" / "half"
    folder.mkdir(parents=True)
    for name in ("kernel.json", "wrapped_kernel.json", "kernel_info.json"):
        text = (FILES / name).read_text(encoding="utf-8")
        for placeholder, path in (("@PYTHON@", sys.executable), ("@PACKAGE@", PACKAGE), ("@FOLDER@", folder)):
            text = text.replace(placeholder, json.dumps(str(path))[1:-1])
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    return folder


@pytest.fixture
def kernel(kernelspec: Path, pool: Pool) -> Iterator[LiveKernel]:
    """Started from that kernelspec by jupyter_client."""
    live = LiveKernel("half")
    yield live
    live.stop()


DEVICES = (
    "import json, os; print([d['memory_mib'] for d in json.loads(os.environ['BITFUSION_POOL_DEVICES'])])"
)


def test_a_kernelspec_starts_its_kernel_with_the_size_of_its_options(kernel: LiveKernel) -> None:
    assert kernel.run(DEVICES).stream() == f"[{MEMORY_MIB // 2}]\n"
    assert "1 GPU × 50 %" in kernel.run("%bitfusion").stream()
    loaded = kernel.run("print(sorted(get_ipython().extension_manager.loaded))").stream()
    assert "bitfusion_kernel.ipython_magic" in loaded


def test_a_cell_finds_the_variables_of_its_lease_and_its_proxy(kernel: LiveKernel) -> None:
    names = kernel.run("import os; print(*(name for name in os.environ if name[:10] == 'BITFUSION_'))")
    assert set(names.stream().split()) >= {
        "BITFUSION_KERNEL_FILES_PREFIX",
        "BITFUSION_KERNEL_SOCKET",
        "BITFUSION_LABEL",
        "BITFUSION_POOL_DEVICES",
        "BITFUSION_PYTHON",
    }


def test_the_kernel_answers_with_the_kernel_info_in_the_kernelspec(kernel: LiveKernel) -> None:
    kernel.connect(ready=False)
    reply = kernel.client.channels.kernel_info(reply=True, timeout=scaled(30))
    written = json.loads((FILES / "kernel_info.json").read_text(encoding="utf-8"))
    assert reply["content"] == with_banner_line(written)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("jupyter_bitfusion_config.py.txt", "jupyter_bitfusion_config.py"),
        ("jupyter_bitfusion_config.json", "jupyter_bitfusion_config.json"),
    ],
)
def test_a_config_file_is_in_force_in_a_cell_and_its_lock_holds(
    kernelspec: Path, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, name: str
) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / name).write_text((FILES / written).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder))
    kernel = LiveKernel("half")
    try:
        assert kernel.run(DEVICES).stream() == f"[{MEMORY_MIB // 4}, {MEMORY_MIB // 4}]\n"
        assert "locked" in kernel.run("%bitfusion request -n 1").error_text
    finally:
        kernel.stop()


@pytest.mark.parametrize("name", SETTINGS)
def test_a_variable_and_an_option_set_each_setting(name: str) -> None:
    written, meant = SETTINGS[name]
    field = MEANT_BY.get(name, name)
    for settings in (
        current_settings([], {f"BITFUSION_{name.upper()}": written}),
        current_settings([f"--bitfusion-{name}={written}"], {}),
    ):
        holder = settings.request if hasattr(settings.request, field) else settings
        assert getattr(holder, field) == meant


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("partial", ".5", 0.5),
        ("partial", "1", 1.0),
        ("memory", "8G", 7629),
        ("memory", "8000M", 7629),
        ("memory", "8192", 8192),
        ("memory", "0.5Gi", 512),
        ("filter", "a=b;c=d", (("a", "b"), ("c", "d"))),
        ("timeout", "1h30m", 5400),
        ("timeout", "90", 90),
        ("silent_wait", "2.5", 2.5),
        ("idle_release", "off", 0.0),
        ("idle_release", "1h30m", 5400.0),
    ],
)
def test_each_spelling_of_a_value_keeps_its_meaning(name: str, written: str, meant: object) -> None:
    settings = current_settings([], {f"BITFUSION_{name.upper()}": written})
    field = MEANT_BY.get(name, name)
    assert getattr(settings.request if hasattr(settings.request, field) else settings, field) == meant


def test_what_a_kernel_was_asked_for_before_an_update_holds_after_its_restart(tmp_path: Path) -> None:
    notes = tmp_path / "bitfusion-kernel" / "requests"
    notes.mkdir(parents=True, mode=0o700)
    (notes / NOTE).write_text((FILES / "request_note.json").read_text(encoding="utf-8"), encoding="utf-8")
    request = RequestNote(NOTES_KEY, {"XDG_STATE_HOME": str(tmp_path)}).read()
    filters, servers = (("device.name", "Tesla"),), ("10.0.0.1:56001",)
    assert request == GpuRequest(2, 0.25, filters=filters, servers=servers, timeout=1200)


def test_an_installed_kernelspec_is_listed_and_removed(kernelspec: Path) -> None:
    listed = subprocess.run(
        [*bitfusion_kernel_command(), "list"], capture_output=True, text=True, check=True, timeout=scaled(30)
    )
    assert re.search(r"^half +Bitfusion \(1 GPU × 50 %\) +1 GPU × 50 % .*first_cell", listed.stdout, re.M)
    subprocess.run([*bitfusion_kernel_command(), "remove", "half"], check=True, timeout=scaled(30))
    assert not kernelspec.exists()


def test_a_launcher_of_today_serves_the_supervisor_of_a_kernel_that_ran_before_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command line and its messages, as version 0.1.0 has them."""
    monkeypatch.chdir(tmp_path)  # the path of a socket may have 107 bytes only
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("launcher-1")
        listener.listen(1)
        listener.settimeout(scaled(20))
        argv = [sys.executable, "-I", "-S", str(PACKAGE / "processes" / "launcher.py")]
        launcher = subprocess.Popen([*argv, "launcher-1", "--", "sleep", "300"])
        connection, _ = listener.accept()
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        connection.settimeout(None)
        launched = json.loads(lines.readline())
        assert (launched["type"], launched["launcher_pid"]) == ("launched", launcher.pid)
        assert isinstance(launched["kernel_pid"], int)
        assert isinstance(launched["environment"], dict)
        lines.write('{"type": "stop"}\n')
        lines.flush()
        exited = json.loads(lines.readline())  # fields may be added
        assert (exited["type"], exited["status"]) == ("kernel_exited", -9)
        launcher.wait(scaled(10))


@pytest.mark.parametrize(
    "command",
    [
        [str(PACKAGE / "__main__.py")],
        ["-m", "bitfusion_kernel"],
    ],
)
def test_the_proxy_is_started_by_its_file_or_its_package(command: list[str]) -> None:
    isolated = ["-I", "-S"] if command[0] != "-m" else []
    done = subprocess.run(
        [sys.executable, *isolated, *command], capture_output=True, text=True, check=False, timeout=scaled(20)
    )
    assert done.returncode == 2
    assert "no connection file was given" in done.stderr


def test_the_command_is_also_a_module() -> None:
    argv = [sys.executable, "-m", "bitfusion_kernel.cli", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=scaled(20))
    assert done.stdout.startswith("usage: bitfusion-kernel ")


def test_the_console_scripts_have_their_names_and_something_to_call() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("[project.scripts]\n")[2].partition("\n\n")[0]
    lines = [line for line in section.splitlines() if not line.startswith("#")]
    scripts = dict(line.replace('"', "").split(" = ") for line in lines)
    assert scripts.keys() >= {
        "bitfusion-kernel",
        "bitfusion-notebook-controller",
        "bitfusion-pool",
        "kubeflow-bitfusion",
    }
    for target in scripts.values():
        assert callable(pkgutil.resolve_name(target))


def test_the_extension_can_be_loaded_by_its_name() -> None:
    assert callable(pkgutil.resolve_name("bitfusion_kernel.ipython_magic:load_ipython_extension"))
