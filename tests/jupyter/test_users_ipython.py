"""The user's IPython is the user's, beside plain ipykernel: extensions, arguments, files beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.jupyter.conftest import FIRST_CELL, PLAIN, Launch
from tests.jupyter.live_kernel import LiveKernel
from tests.support.machine import scaled

pytestmark = pytest.mark.long

LOADED = "print(sorted(get_ipython().extension_manager.loaded))"
EXTENSION = "bitfusion_kernel.ipython_magic"


def _loaded(kernel: LiveKernel) -> list[str]:
    loaded: list[str] = eval(kernel.run(LOADED).stream())
    return loaded


@pytest.mark.parametrize("trait", ["extensions", "extra_extensions"])
@pytest.mark.parametrize("options", [[], ["--ext=autoreload"]], ids=["", "--ext"])
def test_the_users_extensions_are_loaded_and_the_magic_is(
    launch: Launch, tmp_path: Path, trait: str, options: list[str]
) -> None:
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(
        f'c.InteractiveShellApp.{trait} = ["cythonmagic_of_ada"]\n'
    )
    (profile / "ipython_config.py").write_text("")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "cythonmagic_of_ada.py").write_text("def load_ipython_extension(ipython): pass\n")
    loaded = {}
    for name in (PLAIN, FIRST_CELL):
        kernel = launch(
            name,
            cwd=str(folder),
            env=os.environ | {"IPYTHONDIR": str(tmp_path / "ipython")},
            extra_arguments=options,
        )
        loaded[name] = _loaded(kernel)
    assert loaded[FIRST_CELL] == sorted([*loaded[PLAIN], EXTENSION])
    given = trait == "extensions" or not options
    assert ("cythonmagic_of_ada" in loaded[PLAIN], "IPython.extensions.autoreload" in loaded[PLAIN]) == (
        given,
        bool(options),
    )
    assert kernel.run("pass\n%bitfusion").stream().startswith("Kernel ")


def test_a_startup_file_may_use_the_magic(launch: Launch, tmp_path: Path) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.ipy").write_text("%bitfusion help\nx = 5\n")
    kernel = launch(FIRST_CELL, env=os.environ | {"IPYTHONDIR": str(tmp_path / "ipython")})
    assert kernel.run("x").result == "5"


@pytest.mark.parametrize(
    "taken", ["bitfusion_kernel", "bitfusion_client", "bitfusion_kernel.py", "zmq_of_mine.py"]
)
def test_what_lies_beside_the_notebook_does_not_take_the_magic_away(
    launch: Launch, tmp_path: Path, taken: str
) -> None:
    if taken.endswith(".py"):
        (tmp_path / taken).write_text("raise RuntimeError('mine')\n")
    else:
        (tmp_path / taken).mkdir()
        (tmp_path / taken / "__init__.py").write_text("raise RuntimeError('mine')\n")
    kernel = launch(FIRST_CELL, cwd=str(tmp_path))
    assert kernel.run("pass\n%bitfusion").stream().startswith("Kernel ")
    completed = kernel.client.channels.complete("%bitfusion acq", reply=True, timeout=scaled(10))
    assert completed["content"]["matches"] == ["acquire"]


def test_a_cell_finds_what_it_finds_in_a_plain_kernel(launch: Launch, tmp_path: Path) -> None:
    """Arguments, import path, `__main__` and the name of the process."""
    code = (
        "import os, sys, __main__\n"
        "print([os.path.basename(word) for word in sys.argv[:2]], sys.argv[3:], sys.path,"
        " sys.flags, getattr(__main__, '__file__', None), __main__.__spec__,"
        " open('/proc/self/comm').read(),"
        " 'ipykernel_launcher' in open('/proc/self/cmdline').read().split('\\0'))"
    )
    found = {name: launch(name, cwd=str(tmp_path)).run(code).stream() for name in (PLAIN, FIRST_CELL)}
    assert found[FIRST_CELL] == found[PLAIN]
    assert found[PLAIN].startswith("['ipykernel_launcher.py', '-f'] [] ")
