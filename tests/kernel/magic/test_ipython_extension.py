"""`%bitfusion` in cells that hold other code: the extension asks the proxy."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_kernel import ipython_magic
from bitfusion_kernel.gpu.simulated import BANNER_LINE
from bitfusion_kernel.magic import ipython_extension
from bitfusion_kernel.magic.commands import RESTARTS
from bitfusion_kernel.magic.ipython_extension import ask_proxy, bitfusion
from tests.kernel.proxy_harness import ProxyHarness, refuse


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProxyHarness]:
    harness = ProxyHarness(refuse("Error: no"), others="print('said', words[0])")
    monkeypatch.setenv("BITFUSION_KERNEL_SOCKET", harness.await_socket())
    yield harness
    harness.close()


def test_the_magic_gets_answers_and_mistakes_in_words(
    proxy: ProxyHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    bitfusion("request -n 2")
    assert capsys.readouterr().out.startswith("The next cell asks for 2 GPUs.\n")
    bitfusion("")
    assert capsys.readouterr().out.startswith(
        "Kernel    no GPU; the next cell asks for one\nRequest   2 GPUs\n"
    )
    bitfusion("relase")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Unknown command 'relase'. Commands: status")
    assert ask_proxy("help")["text"].startswith("%bitfusion status")


def test_the_magic_finds_its_proxy_when_the_folder_of_the_socket_was_removed(
    proxy: ProxyHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `$XDG_RUNTIME_DIR` is when a user's last login ends; kernels may go on."""
    shutil.rmtree(os.path.dirname(os.environ["BITFUSION_KERNEL_SOCKET"]))
    bitfusion("request -n 2")
    assert capsys.readouterr().out.startswith("The next cell asks for 2 GPUs.\n")


def test_the_magic_finds_its_proxy_when_a_cell_has_emptied_the_environment(
    proxy: ProxyHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ipython_extension, "_environment", dict(os.environ, MINE="as before"))
    proxy.script("", others="print('said', os.environ['MINE'])")
    for name in list(os.environ):
        monkeypatch.delenv(name)
    bitfusion("request -n 2")
    bitfusion("list_gpus")
    assert capsys.readouterr().out == f"The next cell asks for 2 GPUs.\n{RESTARTS}\nsaid as before\n"


def test_another_users_program_with_the_sockets_name_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"/no/such/{os.urandom(8).hex()}"
    monkeypatch.setenv("BITFUSION_KERNEL_SOCKET", path)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + path)
        listener.listen()
        bitfusion("status")
    assert "does not answer" in capsys.readouterr().err


def test_without_a_proxy_the_magic_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BITFUSION_KERNEL_SOCKET", "/no/such/socket")
    bitfusion("status")
    assert capsys.readouterr().err == (
        "The Bitfusion proxy of this kernel does not answer; restart the kernel.\n"
    )
    monkeypatch.delenv("BITFUSION_KERNEL_SOCKET")
    bitfusion("status")
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["list_gpus", "list_gpus  # now"])
def test_the_kernel_runs_the_bitfusion_client_itself(
    proxy: ProxyHarness,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
) -> None:
    """The one that the proxy has found, and not what lies beside the notebook."""
    other = tmp_path / "bitfusion"
    other.write_text("#!/bin/sh\necho another\n")
    other.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    bitfusion(command)
    assert capfd.readouterr().out == "said list_gpus\n"


def test_a_client_that_has_gone_is_told(proxy: ProxyHarness, capsys: pytest.CaptureFixture[str]) -> None:
    proxy.client.unlink()
    bitfusion("list_gpus")
    assert capsys.readouterr().err.startswith("The configured `bitfusion` command cannot be run.\n")


def test_a_mistake_is_told_before_the_client_is_run(
    proxy: ProxyHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    bitfusion("health now")
    assert capsys.readouterr().err.startswith(
        "%bitfusion health takes no arguments, but was given: now\nWhat to do: "
    )


def test_ipython_loads_the_magic_under_its_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITFUSION_KERNEL_FILES_PREFIX", raising=False)
    registered: list[tuple[object, ...]] = []

    class Shell:
        def register_magic_function(self, *words: object) -> None:
            registered.append(words)

        def set_hook(self, name: str, *_: object, str_key: str) -> None:
            registered.append((name, str_key))

    ipython_magic.load_ipython_extension(Shell())
    assert registered == [(bitfusion, "line", "bitfusion"), ("complete_command", "%bitfusion")]


def test_the_banner_of_a_running_kernel_tells_of_simulated_gpus_and_of_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consoles show it, also those that join a kernel that runs."""
    monkeypatch.delenv("BITFUSION_KERNEL_FILES_PREFIX", raising=False)

    class Shell:
        banner1 = "Python 3\n"

        def register_magic_function(self, *_: object) -> None:
            """Not looked at here."""

        def set_hook(self, *_: object, str_key: str) -> None:
            """Not looked at here."""

    simulated, real = Shell(), Shell()
    monkeypatch.setenv("BITFUSION_POOL_DEVICES", '[{"simulated": true}]')
    ipython_extension.load_ipython_extension(simulated)
    assert simulated.banner1 == f"Python 3\n{BANNER_LINE}\n"
    monkeypatch.setenv("BITFUSION_POOL_DEVICES", '[{"simulated": false}]')
    ipython_extension.load_ipython_extension(real)
    assert real.banner1 == "Python 3\n"


def test_the_debuggers_files_are_named_as_the_proxy_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from ipykernel import compiler

    monkeypatch.setattr(compiler, "get_tmp_directory", compiler.get_tmp_directory)
    debugger = sys.modules.get("ipykernel.debugger")
    if debugger is not None:
        monkeypatch.setattr(debugger, "get_tmp_directory", compiler.get_tmp_directory)
    monkeypatch.setenv("BITFUSION_KERNEL_FILES_PREFIX", "/tmp/ipykernel_7")

    class Shell:
        def register_magic_function(self, *_: object) -> None:
            """Not looked at here."""

        def set_hook(self, *_: object, str_key: str) -> None:
            """Not looked at here."""

    ipython_extension.load_ipython_extension(Shell())
    assert compiler.get_tmp_directory() == "/tmp/ipykernel_7"  # type: ignore[no-untyped-call]  # ipykernel's
