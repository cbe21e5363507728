"""Start of the front process: keeper first, then sockets, then the loop.

The keeper is forked before zmq is imported, so it stays small and no thread is lost in the fork; with
`acquire = start` the wrapper is already on its way while the front imports zmq.
"""

from __future__ import annotations

import os
import sys

from bitfusion_kernel import connection_file, private_folder
from bitfusion_kernel.front_arguments import FrontArguments, split_arguments
from bitfusion_kernel.keeper import start_keeper
from bitfusion_kernel.kernel_start import KernelStarter
from bitfusion_kernel.wrapped_kernel import WrappedKernel


def main(argv: list[str]) -> None:
    """Run one front to its end. Exits the process; 2 with one line on stderr if it can't start."""
    try:
        arguments = split_arguments(argv)
        info = connection_file.read(arguments.connection_file)
        folder = private_folder.create(os.environ)
    except (ValueError, OSError) as error:
        print(f"bitfusion_kernel: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    status = 1
    try:
        status = _run(arguments, info, folder)
    except Exception:
        sys.excepthook(*sys.exc_info())  # for Jupyter's log; os._exit would swallow it
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads in zmq.proxy have no other end


def _run(arguments: FrontArguments, info: connection_file.ConnectionInfo, folder: str) -> int:
    wrapped = WrappedKernel.load(arguments.value("spec"))
    keeper = start_keeper(folder)
    starter = KernelStarter(arguments, wrapped, info, keeper)
    if starter.acquires_at_start:
        starter.try_start()
    from bitfusion_kernel.front import Front

    front = Front(info, keeper, starter, wrapped)
    return front.run()
