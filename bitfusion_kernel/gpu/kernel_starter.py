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
    from bitfusion_kernel.processes.messages import JoinedEvent, KernelCommand
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.protocol.arguments import ProxyArguments
    from bitfusion_kernel.settings.resolve import Settings
    from bitfusion_kernel.wrapped_kernel import WrappedKernel

FILES_PREFIX_VARIABLE = "BITFUSION_KERNEL_FILES_PREFIX"


class KernelStarter:
    """Starts kernels under `bitfusion run`, one at a time, and knows the settings for that.

    Args:
        arguments: The proxy's command line.
        wrapped: The kernel to start.
        outer: The connection file that Jupyter wrote for the proxy.
        supervisor: Starts what is asked for.
        told: What happened to the lease of a restart, if that must be said; else empty.
    """

    def __init__(
        self,
        arguments: ProxyArguments,
        wrapped: WrappedKernel,
        outer: connection_file.ConnectionInfo,
        supervisor: SupervisorLink,
        told: str = "",
    ) -> None:
        self.told = [told] if told else []
        """What the next cell that gets a GPU says, once."""
        self._arguments = arguments
        self._wrapped = wrapped
        self._outer = outer
        self.file_name = os.path.basename(arguments.connection_file)
        """Of the connection file that Jupyter wrote."""
        self._supervisor = supervisor
        self._settings: Settings | None = None
        self._number = 0
        try:
            self._folder = os.getcwd()
        except OSError:
            self._folder = ""  # gone already: as any kernel that starts there
        self.beside: Acquisition | None = None
        """What has come beside the GPUs that the kernel has had: the next start is on it."""
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
    def log_states(self) -> bool:
        """Whether Jupyter's log has each change of the state; not while a setting is wrong."""
        from bitfusion_client.errors import BitfusionError

        try:
            return self.settings.log_states
        except BitfusionError:
            return False

    @property
    def hints(self) -> list[str]:
        """What is odd in the settings, though nothing is wrong, or was at the restart: a line each."""
        from bitfusion_kernel.settings.unknown_variables import hints

        return [*self.told, *hints(os.environ)]

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
        """The environment of the wrapper and of `bitfusion` commands: ours, with what cells call on PATH."""
        from bitfusion_client.command.find_client import ENVIRONMENT_NAME
        from bitfusion_kernel.gpu.cell_path import cell_path

        client = self.find_client()
        environment = {**os.environ, **self._wrapped.env}
        environment["PATH"] = cell_path(environment.get("PATH") or os.defpath, self._wrapped.argv[0], client)
        if client.kind == "configured":
            environment[ENVIRONMENT_NAME] = client.path  # what a config file says holds in cells, too
        environment.setdefault("BITFUSION_PYTHON", sys.executable)
        return environment

    def start(self) -> Acquisition:
        """Ask for a GPU and a kernel on it, where nothing runs; for the lifecycle. Raises BitfusionError."""
        if self.beside is not None:
            acquisition, self.beside = self.beside, None
            self._supervisor.take()
            return acquisition
        return self._start(self.request, takes_what_is_left=self.takes_what_is_left)

    def start_beside(self, request: GpuRequest, seconds: float) -> Acquisition:
        """Ask for GPUs, for so long, while a kernel keeps what it has. Raises BitfusionError."""
        return self._start(request, takes_what_is_left=False, beside=seconds)

    def _start(self, request: GpuRequest, *, takes_what_is_left: bool, beside: float = 0.0) -> Acquisition:
        from bitfusion_client.command.command_line import run_command
        from bitfusion_kernel.gpu import kept_lease, own_name
        from bitfusion_kernel.gpu.acquisition import Acquisition
        from bitfusion_kernel.processes import launcher
        from bitfusion_kernel.processes.messages import StartCommand

        self.check_budget(request)
        self._number += 1
        kernel, connection = self._prepare_kernel(request)
        client = self.find_client()
        socket_path = os.path.join(self._supervisor.folder, f"launcher-{self._number}")
        program = launcher.command(sys.executable, socket_path, kernel)
        argv, held_file = run_command(client.path, request, program), ""
        environment = self._kernel_environment()
        acquisition = Acquisition(self._number, request, time.monotonic())
        left = takes_what_is_left
        if self.pod is not None:
            from bitfusion_kernel.gpu.pod_wait import PodStart

            notebook = own_name.notebook(os.environ)
            start = PodStart(self.pod, request, notebook, os.environ, takes_what_is_left=left)
            argv, held_file = start.command(argv, client.path, program), start.entry
            acquisition.pod_wait = start.wait
        note = kept_lease.note(request, in_pod=self.pod is not None, takes_what_is_left=left)
        self._supervisor.start(
            StartCommand(self._number, argv, environment, socket_path, held_file, self._folder, note, beside)
        )
        acquisition.kernel_connection = connection
        return acquisition

    def go_on_with(self, kept: JoinedEvent) -> tuple[Acquisition, bool]:
        """What a restart has left: the lease or place in the queue, and whether it is still wanted.

        If so a kernel is started on it, at once or when it is granted. It is not wanted if another size has
        been chosen since, or if no kernel can be started; then it is being given back.
        """
        from bitfusion_client.errors import BitfusionError
        from bitfusion_client.request.gpu_request import GpuRequest
        from bitfusion_kernel.gpu import kept_lease
        from bitfusion_kernel.gpu.acquisition import Acquisition

        self._number = max(kept.number, kept.kernels)
        wanted = not kept.stopping
        try:
            acquisition = kept_lease.acquisition(kept)
        except ValueError:  # noted by a version with other rules
            acquisition, wanted = Acquisition(kept.number, GpuRequest(), kept.asked_at), False
            self.told.append("What this kernel held before its restart is given back: its size is not known.")
        command = None
        try:
            if wanted:
                command = self._next_kernel(acquisition)
        except BitfusionError:
            pass  # the first cell meets it again, and tells
        if command is None:
            self._supervisor.stop()
            return acquisition, False
        self._supervisor.run_kernel(command)
        return acquisition, True

    def kernel_after(self, acquisition: Acquisition | None) -> KernelCommand | None:
        """What `go_on_with` of the next proxy will ask for after a restart; None where that is not known."""
        from bitfusion_client.errors import BitfusionError

        if acquisition is None or not acquisition.granted:
            return None
        try:
            return self._next_kernel(acquisition)
        except BitfusionError:
            return None

    def _next_kernel(self, acquisition: Acquisition) -> KernelCommand | None:
        """Another kernel on what there is; None if another size is wanted by now. Raises BitfusionError."""
        from bitfusion_kernel.processes.messages import KernelCommand

        same = self.request.same_as(acquisition.request)
        if not same or self.takes_what_is_left != acquisition.takes_what_is_left:
            return None
        self._number += 1
        kernel, acquisition.kernel_connection = self._prepare_kernel(acquisition.request)
        return KernelCommand(self._number, kernel, self._kernel_environment(), {}, self._folder)

    def _prepare_kernel(self, request: GpuRequest) -> tuple[list[str], connection_file.ConnectionInfo]:
        """A kernel's command line and where it will listen; its folders are there. Raises BitfusionError."""
        from bitfusion_kernel.gpu import start_place
        from bitfusion_kernel.gpu.acquisition import FolderUnusable
        from bitfusion_kernel.processes import kernel_start, launcher, private_folder

        needs = (sys.executable, launcher.LAUNCHER, kernel_start.FILE)
        self._folder = start_place.enter(self._folder, request, needs)
        try:
            folder = self._supervisor.folder = private_folder.restore(self._supervisor.folder, os.environ)
            path, connection = connection_file.write_private(
                folder, f"kernel-{self._number}", self.file_name, self._outer
            )
            self.on_folder(folder)
        except OSError as error:
            where = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise FolderUnusable(request, where) from None
        kernel = self._wrapped.command(path, self._arguments.kernel_options)
        if self._wrapped.language == "python":
            kernel = kernel_start.command(kernel)
        return kernel, connection

    def _kernel_environment(self) -> dict[str, str]:
        from bitfusion_client.command.command_line import ALL_LINES_VARIABLE
        from bitfusion_client.kernel_state import proxy_socket, states
        from bitfusion_kernel.gpu import own_name

        environment = self.client_environment()
        own_name.leave_label(environment)
        environment[ALL_LINES_VARIABLE] = "1"
        environment[proxy_socket.SOCKET_VARIABLE] = os.path.join(self._supervisor.folder, proxy_socket.NAME)
        environment[states.FILE_VARIABLE] = os.path.join(self._supervisor.folder, states.FILE_NAME)
        environment[FILES_PREFIX_VARIABLE] = self.files_prefix
        return environment

    @property
    def files_prefix(self) -> str:
        """Where the kernel names its cells' files for the debugger.

        ipykernel puts the kernel's pid into this folder's name and JupyterLab keeps the name from its
        first `debugInfo`, which it asks before there is a kernel. So the proxy chooses the folder and the
        kernel (through `ipython_magic`) uses it. It bears the supervisor's pid, as a restart changes nothing
        that the next kernel is started with.
        """
        return os.path.join(
            os.environ.get("TMPDIR") or "/tmp", f"ipykernel_{self._supervisor.pid or os.getpid()}"
        )
