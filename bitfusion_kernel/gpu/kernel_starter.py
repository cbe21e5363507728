"""Asks for a GPU: settings, bitfusion client and command line become one StartCommand to the supervisor.

What costs time is imported only when it is needed: most proxies answer Jupyter first and ask for a GPU later.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from bitfusion_kernel.protocol import connection_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_client.command.find_client import FoundClient
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.gpu.request_note import RequestNote
    from bitfusion_kernel.pod.facts import Pod
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.protocol.arguments import ProxyArguments
    from bitfusion_kernel.settings.resolve import Settings
    from bitfusion_kernel.wrapped_kernel import WrappedKernel

PROXY_SOCKET_VARIABLE = "BITFUSION_KERNEL_SOCKET"
FILES_PREFIX_VARIABLE = "BITFUSION_KERNEL_FILES_PREFIX"
MAGIC_EXTENSION = "--InteractiveShellApp.extra_extensions=bitfusion_kernel.ipython_magic"


class KernelStarter:
    """Starts kernels under `bitfusion run`, one at a time, and knows the settings for that.

    Args:
        arguments: The proxy's command line.
        wrapped: The kernel to start.
        outer: The connection file that Jupyter wrote for the proxy.
        supervisor: Starts what is asked for.
    """

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
        self._chosen: GpuRequest | None = None
        self._note_is_read = False
        self.on_folder: Callable[[str], None] = lambda folder: None
        """Called with the private folder before each start: it may have been made again, or elsewhere."""

    # -- settings --------------------------------------------------------------------------------

    @property
    def acquire_at_start(self) -> str:
        """The setting `acquire` if it says to ask before the first request, else empty.

        With `start_and_wait` the kernel's start lasts until it has its GPU. A wrong setting is reported in
        the first cell instead.
        """
        if not self._start_is_named():
            return ""
        from bitfusion_client.errors import BitfusionError

        try:
            return self.settings.acquire if self.settings.acquire.startswith("start") else ""
        except BitfusionError:
            return ""

    def _start_is_named(self) -> bool:
        """Whether some setting may say so; reading them all would delay the first reply."""
        from bitfusion_kernel.settings.config_path import config_files_exist

        given = (self._arguments.value("acquire"), os.environ.get("BITFUSION_ACQUIRE"))
        return any("start" in text for text in given if text) or config_files_exist(os.environ)

    @property
    def settings(self) -> Settings:
        """Resolved once. Raises WrongSetting, each time it is asked for until it is right."""
        if self._settings is None:
            from bitfusion_kernel.settings.resolve import current_settings

            self._settings = current_settings(self._arguments.options, os.environ)
        return self._settings

    @property
    def silent_wait(self) -> float:
        """Seconds after which a silent cell is answered without a kernel, also while a setting is wrong."""
        from bitfusion_client.errors import BitfusionError

        try:
            return self.settings.silent_wait
        except BitfusionError:
            from bitfusion_kernel.settings.table import DEFAULT_SILENT_WAIT

            return DEFAULT_SILENT_WAIT

    @property
    def hints(self) -> list[str]:
        """What is odd in the settings, though nothing is wrong: a line each."""
        from bitfusion_kernel.settings.unknown_variables import hints

        return hints(os.environ)

    def check_acquire(self) -> None:
        """Whether anything but `%bitfusion acquire` may ask for a GPU.

        Raises:
            WaitCancelled: GPUs are taken by `%bitfusion acquire` only.
            WrongSetting: A setting has a wrong value.
        """
        if self.settings.acquire == "manual":
            from bitfusion_client.errors import WaitCancelled

            raise WaitCancelled(
                self.request,
                "this kernel takes a GPU only when it is told to (acquire = manual)",
                "run `%bitfusion acquire` in a cell, then do this again.",
            )

    # -- starting --------------------------------------------------------------------------------

    @property
    def kernel_options(self) -> list[str]:
        """What Jupyter's client appended for the kernel."""
        return self._arguments.kernel_options

    @property
    def request(self) -> GpuRequest:
        """What the next start asks for: what `%bitfusion request` chose, here or before a restart, wins.

        Raises:
            WrongSetting: A setting is wrong, or an administrator has locked what was chosen since.
        """
        if not self._note_is_read:
            self._note_is_read = True
            self._chosen = self._note().read()
            if self._chosen is not None:
                from bitfusion_client.errors import WrongSetting

                try:
                    self.settings.check_unlocked(self._chosen)
                except WrongSetting:
                    self.forget_choice()
                    raise
        return self._chosen or self.settings.request

    @property
    def pod(self) -> Pod | None:
        """The pod with an injected client in which this runs, if it does. Raises WrongSetting."""
        return self.settings.pod

    @property
    def takes_what_is_left(self) -> bool:
        """Whether the next start takes what is left of the pod's budget, `request` at most; raises alike."""
        return self.request is not None and self._chosen is None and self.settings.takes_what_is_left

    def check_budget(self, request: GpuRequest) -> None:
        """Raise OverBudget if the pod can never have this; anything goes outside pods."""
        if self.pod is not None:
            from bitfusion_kernel.pod.budget import check_fits

            check_fits(self.pod.budget, request)

    def choose(self, request: GpuRequest) -> None:
        """Ask for this from the next start on, also after restarts of this kernel.

        Raises:
            WrongSetting: It differs from the settings in one that is locked; nothing is changed.
            OSError: It holds for this process, but could not be kept for a restart.
        """
        self.settings.check_unlocked(request)
        self._chosen = request
        self._note_is_read = True
        self._note().write(request)

    def forget_choice(self) -> None:
        """Ask for what the settings say."""
        self._chosen = None
        self._note_is_read = True
        self._note().remove()

    def _note(self) -> RequestNote:
        from bitfusion_kernel.gpu.request_note import RequestNote

        return RequestNote(self._outer.key, os.environ)

    def find_client(self) -> FoundClient:
        """Raises ClientNotFound, WrongSetting."""
        from bitfusion_client.command.find_client import find_client

        return find_client(self.settings.client, os.environ)

    @property
    def uses_embedded_pool(self) -> bool:
        """Whether the client is the embedded pool's. Asked before the first reply, which must not wait.

        So a config file that has not been read by now is not read for it, though it might name the client.
        """
        from bitfusion_client.command.find_client import ENVIRONMENT_NAME, is_embedded_pool

        if self._settings is not None:
            configured = self._settings.client
        else:
            configured = os.environ.get(ENVIRONMENT_NAME) or self._arguments.value("client")
        return is_embedded_pool(configured, os.environ)

    def client_environment(self) -> dict[str, str]:
        """The environment of the wrapper and of `bitfusion` commands: ours, with the client on PATH."""
        environment = dict(os.environ)
        folder = os.path.dirname(self.find_client().path)
        path = environment.get("PATH") or os.defpath
        if folder not in path.split(os.pathsep):
            environment["PATH"] = path + os.pathsep + folder
        environment.setdefault("BITFUSION_PYTHON", sys.executable)
        return environment

    def start(self) -> Acquisition:
        """Ask for a GPU and a kernel on it, where nothing runs; for the lifecycle. Raises BitfusionError."""
        from bitfusion_client.command.command_line import run_command
        from bitfusion_kernel.gpu.acquisition import Acquisition, FolderUnusable
        from bitfusion_kernel.processes import launcher, private_folder
        from bitfusion_kernel.processes.messages import StartCommand

        request = self.request
        self.check_budget(request)
        client = self.find_client()
        self._number += 1
        try:
            folder = self._supervisor.folder = private_folder.restore(self._supervisor.folder, os.environ)
            path, connection = connection_file.write_private(folder, f"kernel-{self._number}", self._outer)
            self.on_folder(folder)
        except OSError as error:
            where = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise FolderUnusable(request, where) from None
        socket_path = os.path.join(folder, f"launcher-{self._number}")
        options = list(self._arguments.kernel_options)
        if self._wrapped.language == "python":
            options.append(MAGIC_EXTENSION)
        program = launcher.command(sys.executable, socket_path, self._wrapped.command(path, options))
        argv, held_file = run_command(client.path, request, program), ""
        environment = self.client_environment()
        environment.update(self._wrapped.env)
        notebook = os.path.basename(environment.get("JPY_SESSION_NAME", ""))
        environment.setdefault("BITFUSION_LABEL", notebook or "a Jupyter kernel")
        acquisition = Acquisition(self._number, request, time.monotonic())
        if self.pod is not None:
            from bitfusion_kernel.gpu.pod_wait import PodStart

            left = self.takes_what_is_left
            start = PodStart(self.pod, request, notebook, os.environ, takes_what_is_left=left)
            argv, held_file = start.command(argv, client.path, program), start.entry
            acquisition.pod_wait = start.wait
        environment[PROXY_SOCKET_VARIABLE] = os.path.join(folder, "proxy")
        environment[FILES_PREFIX_VARIABLE] = self.files_prefix
        self._supervisor.start(StartCommand(self._number, argv, environment, socket_path, held_file))
        acquisition.kernel_connection = connection
        return acquisition

    @property
    def files_prefix(self) -> str:
        """Where the kernel names its cells' files for the debugger.

        ipykernel puts the kernel's pid into this folder's name and JupyterLab keeps the name from its
        first `debugInfo`, which it asks before there is a kernel. So the proxy chooses the folder and the
        kernel (through `ipython_magic`) uses it.
        """
        return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"ipykernel_{os.getpid()}")
