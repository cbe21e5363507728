"""Asking for a GPU: settings, client and command line become one StartCommand to the supervisor.

Everything here is imported lazily where it costs time: most proxies answer Jupyter first and ask for a
GPU later.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from bitfusion_kernel.protocol import connection_file

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_client.find_client import FoundClient
    from bitfusion_client.request import GpuRequest
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.protocol.arguments import ProxyArguments
    from bitfusion_kernel.settings.resolve import Settings
    from bitfusion_kernel.wrapped_kernel import WrappedKernel

PROXY_SOCKET_VARIABLE = "BITFUSION_KERNEL_SOCKET"
FILES_PREFIX_VARIABLE = "BITFUSION_KERNEL_FILES_PREFIX"
MAGIC_EXTENSION = "--InteractiveShellApp.extra_extensions=bitfusion_kernel.ipython_magic"


class KernelStarter:
    """Knows how to start a kernel under `bitfusion run`, and the one that was started last."""

    def __init__(
        self,
        arguments: ProxyArguments,
        wrapped: WrappedKernel,
        outer: connection_file.ConnectionInfo,
        supervisor: SupervisorLink,
    ) -> None:
        self._arguments = arguments
        self._wrapped = wrapped
        self._outer = outer
        self._supervisor = supervisor
        self._settings: Settings | None = None
        self._number = 0
        self.chosen: GpuRequest | None = None
        """Set by `%bitfusion request`; wins over all settings."""
        self.acquisition: Acquisition | None = None
        self.last_acquisition: Acquisition | None = None
        """The one before, for its log."""
        self.kernel_connection: connection_file.ConnectionInfo | None = None
        self.failed_early: BitfusionError | None = None
        """Why `acquire = start` could not even ask; told in the first cell."""

    @property
    def acquires_at_start(self) -> bool:
        """Whether to ask before the first message. A wrong setting waits for the first cell, too."""
        from bitfusion_client.errors import BitfusionError

        try:
            return self.settings.acquire == "start"
        except BitfusionError:
            return False

    @property
    def settings(self) -> Settings:
        """Resolved once. Raises WrongSetting, each time it is asked for until it is right."""
        if self._settings is None:
            from bitfusion_kernel.settings.resolve import current_settings

            self._settings = current_settings(self._arguments.options, os.environ)
        return self._settings

    @property
    def kernel_options(self) -> list[str]:
        """What Jupyter's client appended for the kernel."""
        return self._arguments.kernel_options

    @property
    def request(self) -> GpuRequest:
        """What the next start asks for. Raises WrongSetting."""
        return self.chosen or self.settings.request

    def find_client(self) -> FoundClient:
        """Raises ClientNotFound, WrongSetting."""
        from bitfusion_client.find_client import find_client

        return find_client(self.settings.client, os.environ)

    def client_environment(self) -> dict[str, str]:
        """The environment of the wrapper and of `bitfusion` commands: ours, with the client on PATH."""
        environment = dict(os.environ)
        folder = os.path.dirname(self.find_client().path)
        path = environment.get("PATH") or os.defpath
        if folder not in path.split(os.pathsep):
            environment["PATH"] = path + os.pathsep + folder
        environment.setdefault("BITFUSION_PYTHON", sys.executable)
        return environment

    def try_start(self) -> None:
        """As `start`, for a start nobody has asked for yet: its error is kept for the first cell."""
        from bitfusion_client.errors import BitfusionError

        try:
            self.start()
        except BitfusionError as error:
            self.failed_early = error

    def start(self) -> Acquisition:
        """Ask for a GPU and a kernel on it. Raises BitfusionError if it can't even be asked for."""
        from bitfusion_client.command_line import run_command
        from bitfusion_kernel.gpu.acquisition import Acquisition
        from bitfusion_kernel.processes import launcher
        from bitfusion_kernel.processes.messages import StartCommand

        request = self.request
        client = self.find_client()
        self._number += 1
        folder = self._supervisor.folder
        path, self.kernel_connection = connection_file.write_private(
            folder, f"kernel-{self._number}", self._outer
        )
        socket_path = os.path.join(folder, f"launcher-{self._number}")
        options = list(self._arguments.kernel_options)
        if self._wrapped.language == "python":
            options.append(MAGIC_EXTENSION)
        program = launcher.command(sys.executable, socket_path, self._wrapped.command(path, options))
        argv = run_command(client.path, request, program)
        environment = self.client_environment()
        environment.update(self._wrapped.env)
        notebook = os.path.basename(environment.get("JPY_SESSION_NAME", ""))
        environment.setdefault("BITFUSION_LABEL", notebook or "a Jupyter kernel")
        environment[PROXY_SOCKET_VARIABLE] = os.path.join(folder, "proxy")
        environment[FILES_PREFIX_VARIABLE] = self.files_prefix
        self._supervisor.start(StartCommand(self._number, argv, environment, socket_path))
        self.acquisition = Acquisition(self._number, request, time.monotonic())
        return self.acquisition

    @property
    def files_prefix(self) -> str:
        """Where the kernel names its cells' files for the debugger.

        ipykernel puts the kernel's pid into this folder's name and JupyterLab keeps the name from its
        first `debugInfo`, which it asks before there is a kernel. So the proxy chooses the folder and the
        kernel (through `ipython_magic`) uses it.
        """
        return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"ipykernel_{os.getpid()}")
