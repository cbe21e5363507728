"""Ends the wrapper and the kernel that a killed supervisor has left behind."""

from __future__ import annotations

import signal

from bitfusion_kernel.processes import reaper
from bitfusion_kernel.processes.process_watch import ProcessWatch


def end_orphan(
    wrapper_pid: int, kernel_pid: int | None, launcher_pid: int | None = None, patience: float = 0.4
) -> None:
    """End a wrapper whose supervisor was killed; called by the proxy, which is about to end itself.

    The launcher notices that the supervisor is gone and kills the kernel; the wrapper then releases its GPUs
    and ends. A wrapper that still waits in the queue, or has lost its launcher too, gets SIGTERM, then
    SIGKILL. The proxy has adopted them all, and reaps them here.

    Args:
        wrapper_pid: The wrapper; it leads a process group.
        kernel_pid: The kernel, which leads another one; None if it was not started.
        launcher_pid: The launcher, likewise.
        patience: Seconds before each signal.
    """
    others = reaper.children() - {wrapper_pid}
    wrapper = ProcessWatch(wrapper_pid)
    kernel = ProcessWatch(kernel_pid) if kernel_pid is not None else None
    if kernel is None:
        wrapper.kill_group(signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if wrapper.wait(patience):
            break
        wrapper.kill_group(number)
    if kernel is not None:
        kernel.kill_group(signal.SIGKILL)
        kernel.close()
    wrapper.close()
    children = [wrapper_pid, launcher_pid, None if kernel_pid is None else -kernel_pid]
    reaper.reap([child for child in children if child is not None], reaper.ORPHANS_PATIENCE)
    if kernel_pid is None:
        reaper.end_strays(others)
