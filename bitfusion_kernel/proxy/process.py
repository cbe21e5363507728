"""The proxy process, from its command line to its exit status: supervisor first, then the sockets.

The supervisor is forked before zmq is imported, so it stays small and no thread is lost in the fork; with
`acquire = start` the wrapper is already on its way while the proxy imports zmq.
"""

from __future__ import annotations

import os
import sys

from bitfusion_kernel.gpu.kernel_starter import KernelStarter
from bitfusion_kernel.processes import predecessor
from bitfusion_kernel.processes.predecessor import AnotherProxy
from bitfusion_kernel.protocol import connection_file
from bitfusion_kernel.protocol.arguments import ProxyArguments, split_arguments
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
from bitfusion_kernel.wrapped_kernel import WrappedKernel

SUPERVISOR_END_LIMIT = 1.0
"""Seconds the proxy waits at its end for the supervisor, to reap it."""


def main(argv: list[str]) -> None:
    """Run one proxy to its end. Exits the process.

    If it can't start it says why in one line on stderr, and exits with 2, or with 1 if an address is taken.
    """
    try:
        arguments = split_arguments(argv)
        info = connection_file.read(arguments.connection_file)
    except ValueError as error:
        print(f"bitfusion_kernel: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    status = 1
    try:
        status = _run(arguments, info)
    except (connection_file.CannotListen, AnotherProxy) as error:
        print(f"bitfusion_kernel: {error}", file=sys.stderr)
    except Exception:
        sys.excepthook(*sys.exc_info())  # for Jupyter's log; os._exit would swallow it
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # also where the log's disk is full
            os._exit(status)  # threads in zmq.proxy have no other end


def _run(arguments: ProxyArguments, info: connection_file.ConnectionInfo) -> int:
    wrapped = WrappedKernel.load(arguments.value("spec"))
    supervisor, told = predecessor.supervisor(info.key)
    if told:
        print(f"bitfusion_kernel: {told}", file=sys.stderr)
    try:
        starter = KernelStarter(arguments, wrapped, info, supervisor, told)
        lifecycle = KernelLifecycle(starter.start, starter.check_acquire)
        if supervisor.kept.number:
            acquisition, wanted = starter.go_on_with(supervisor.kept)
            lifecycle.go_on(acquisition, wanted=wanted)
        elif starter.acquire_at_start:
            lifecycle.request_early()
        from bitfusion_kernel.proxy.proxy import Proxy

        return Proxy(info, wrapped, starter, supervisor, lifecycle).serve()
    finally:
        supervisor.close()
        supervisor.await_end(SUPERVISOR_END_LIMIT)
