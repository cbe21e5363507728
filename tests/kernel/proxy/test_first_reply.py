"""What the first reply of a proxy does not wait for: it decides when Jupyter calls the kernel ready."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.kernel.proxy_harness import StartProxy
from tests.support.waiting import wait_until

COUNTING = """
import gc, os, runpy, sys
enable = gc.enable
def enable_and_tell():
    enable()
    with open({told!r}, "a") as told:
        print(os.getpid(), gc.isenabled(), gc.get_freeze_count() > 1000, file=told)
gc.enable = enable_and_tell
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

PUT_OFF = {
    "bitfusion_client.errors",
    "bitfusion_client.request.gpu_request",
    "bitfusion_kernel.gpu.acquisition",
    "bitfusion_kernel.magic.commands",
    "bitfusion_kernel.protocol.message_date",
    "bitfusion_kernel.proxy.jupyter.jupyter_log",
    "bitfusion_kernel.proxy.kernel_events",
    "bitfusion_kernel.settings.resolve",
    "traitlets",
}


def python_that(tmp_path: Path, words: str) -> str:
    """A program that runs this Python with these words before the arguments; `$@` are the arguments."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}\n')
    path.chmod(0o755)
    return str(path)


def test_what_only_later_messages_need_is_not_imported_for_it(proxy: StartProxy, tmp_path: Path) -> None:
    harness = proxy(python=python_that(tmp_path, '-X importtime "$@"'))
    harness.reply(harness.send("kernel_info_request"))
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", harness.stderr.read_text(), re.MULTILINE))
    assert {
        "zmq",
        "bitfusion_kernel.proxy.cells.cell_scheduler",
        "bitfusion_client.command.find_client",
    } <= imported
    assert imported & PUT_OFF == set()


def test_no_garbage_is_collected_before_it_and_both_processes_collect_afterwards(
    proxy: StartProxy, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    code = tmp_path / "code.py"
    code.write_text(COUNTING.format(told=str(told)))
    harness = proxy(python=python_that(tmp_path, f'-I -S "{code}" "$3" "$4" "$5"'))
    harness.reply(harness.send("kernel_info_request"))
    proxy_line = f"{harness.process.pid} True True"  # what it has imported is frozen
    assert proxy_line in told.read_text()
    wait_until(lambda: told.read_text().count("\n") == 2, "both tell")
    (supervisor,) = set(told.read_text().splitlines()) - {proxy_line}
    assert supervisor.split()[1] == "True"
