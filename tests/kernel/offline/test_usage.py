"""What a kernel that does not run uses, in the fields of ipykernel's `usage_reply`."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil  # type: ignore[import-untyped]  # ships no types

from bitfusion_kernel.offline.usage import Usage

OF_IPYKERNEL = {"hostname", "pid", "kernel_cpu", "kernel_memory", "cpu_count", "host_virtual_memory"}
OF_THE_PANEL = {"active", "available", "free", "inactive", "percent", "total", "used"}
"""What jupyter-resource-usage shows of the machine; it fails where the object is missing."""


def test_the_fields_are_those_that_the_panel_shows() -> None:
    reply = Usage().reply()
    assert set(reply) == OF_IPYKERNEL
    assert set(reply["host_virtual_memory"]) >= OF_THE_PANEL
    assert (reply["hostname"], reply["pid"]) == (os.uname().nodename, os.getpid())
    assert reply["kernel_cpu"] == 0.0, "nothing can be said of the time before the first request"


OF_A_PROCESS = """
import subprocess, sys, psutil
from bitfusion_kernel.offline.usage import Usage
usage = Usage()
alone, own = usage.reply()["kernel_memory"], psutil.Process().memory_info().rss
code = "x = b'1' * 50_000_000; print(1, flush=True); input()"
with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    together = usage.reply()["kernel_memory"]
    child.communicate(b"\\n")
print(alone, own, together)
"""
"""One of its own: that of the tests has the children of other tests."""


def test_memory_is_that_of_the_process_and_its_children() -> None:
    done = subprocess.run([sys.executable, "-c", OF_A_PROCESS], capture_output=True, text=True, check=True)
    alone, own, together = map(int, done.stdout.split())
    assert 0 < alone < own * 1.2
    assert together - alone > 40_000_000


def test_computing_is_seen_from_the_second_request_on() -> None:
    usage = Usage()
    usage.reply()
    sum(range(3_000_000))
    assert 0 < usage.reply()["kernel_cpu"] <= 100.0 * (os.cpu_count() or 1)


def test_the_machines_memory_is_that_of_psutil() -> None:
    ours, theirs = Usage().reply()["host_virtual_memory"], psutil.virtual_memory()
    assert ours["total"] == theirs.total
    assert abs(ours["available"] - theirs.available) < theirs.total * 0.05
    assert 0 < ours["percent"] < 100
