"""`bitfusion run`: a pod for the program, the program in it, and the pod deleted."""

from __future__ import annotations

import json
import os
import signal
import time

from bitfusion_client.command.client_output import NOTE
from bitfusion_client.command.command_line import ALL_LINES_VARIABLE, parse_options, parse_program
from bitfusion_client.command.log_output import VERSION, LogOutput
from bitfusion_client.errors import PodLost, PodRefused
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.proxy_socket import SOCKET_VARIABLE
from bitfusion_client.kernel_state.states import FILE_VARIABLE
from bitfusion_client.one_line import one_line
from bitfusion_client.request.decimals import plain_number
from bitfusion_pods import environment, pythons, signals
from bitfusion_pods.api.client import Api, ApiUnreachable
from bitfusion_pods.command import where as places_of
from bitfusion_pods.command.agent_files import agent_files
from bitfusion_pods.command.keys import make_keys
from bitfusion_pods.command.making import Making
from bitfusion_pods.command.notebook_pod import read_notebook_pod
from bitfusion_pods.command.remote_program import NotReached, RemoteProgram
from bitfusion_pods.command.runs import Runs
from bitfusion_pods.command.telling import Telling
from bitfusion_pods.command.waiting import UNASKED, Waiting
from bitfusion_pods.pod.memory import memory_variables
from bitfusion_pods.spawn import Failed, Spawn, ended_from_json
from bitfusion_pods.stream.frames import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from threading import Thread

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pods.api.account import Account
    from bitfusion_pods.command.making import Running
    from bitfusion_pods.command.notebook_pod import NotebookPod
    from bitfusion_pods.command.where import Where
    from bitfusion_pods.spawn import Started

KILLED = 137
"""The exit status of a program that ended with its pod, as a shell tells SIGKILL."""
NO_DRIVER = (
    "The image {image} has no CUDA libraries, and its node provides none: programs compute on the CPU "
    "(libcuda.so.1 not found). What to do: choose a notebook image for GPUs; or ask your administrator, "
    "whose settings may name a GPU image for this one, or the runtimeClassName of GPU nodes"
)
FOR_CPUS_ONLY = (
    "{names} in the image {image}: built for the CPU, so it computes there even if there are GPUs. What to "
    "do: "
    "install the package for GPUs, or choose a notebook image that has it"
)
ASK_EVERY = 5.0
"""Seconds between two questions whether the pod is over, while its connection is lost."""
STATUS_WITHIN = 3.0
"""Seconds for the API to know of the end of a pod whose agent has just ended."""
NOT_REACHED = (
    "the pod {} on node {} does not answer: {}. What to do: run the cells again from the first one; if it "
    "happens again, ask your administrator about the network between the pods: `bitfusion health --connect` "
    "tries it, and manifests/components/gpu-pods-network-policy/network-policy.yaml opens it"
)
NOT_WRITTEN = "the program's output could not be written completely here: {}"


def run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """The whole subcommand; returns its exit status.

    Raises:
        BitfusionError: The program was not run.
        Interrupted: A signal ended the wait for a GPU.
    """
    request, rest = parse_options(args)
    program = parse_program(rest)
    where = places_of.here(environ)
    places_of.check_no_gpu_pod(environ)
    log = LogOutput()
    log.log("Query server kubernetes gpu availability")
    telling = Telling(log, environ)
    waiting = Waiting(request, telling)
    # all before the pod: a kubelet that comes before the Secret looks again half a second later
    keys, api = make_keys(where.folder), Api(where.account)
    files: dict[str, bytes | str] = {**agent_files(), **keys.of_pod}
    try:
        notebook = _notebook(api, where, waiting)
        making = Making(api, where, notebook, files, Runs(notebook.container), waiting)
        try:
            pod = making.start()
            asked = _asked(program, environ, request, pod, making)
            address = pod.address, where.settings.port
            _announce(log, request, pod, making, program)
            hears = _Hears(
                telling, making, pod.image, where.account, lambda: _tell_state(environ, where, making.name)
            )
            remote = RemoteProgram(address, keys.context, asked, hears)
            return _run(remote, making, log, program)
        finally:
            signals.hold(signals.ENDS)
            _release(making, log)
    finally:
        api.close()


def _notebook(api: Api, where: Where, waiting: Waiting) -> NotebookPod:
    while True:
        try:
            return read_notebook_pod(api, where)
        except ApiUnreachable as error:
            waiting.pause(UNASKED.format(error))


class _Hears:
    """What is told of program and connection, and who knows more of the pod."""

    def __init__(
        self, telling: Telling, making: Making, image: str, account: Account, tell_state: Callable[[], None]
    ) -> None:
        self.lost = telling.lost
        self.back = telling.back
        self._log = telling.log
        self._making = making
        self._image = one_line(image)
        self._account = account
        self._tell_state = tell_state
        self._asks: Thread | None = None
        self._ask_at = 0.0
        self._is_over = False

    def begins(self, started: Started) -> None:
        self._tell_state()
        if not started.has_driver:
            self._log.log(NOTE + NO_DRIVER.format(image=self._image), "WARN")
        elif started.for_cpus_only:
            names = one_line(", ".join(started.for_cpus_only))
            self._log.log(NOTE + FOR_CPUS_ONLY.format(names=names, image=self._image), "WARN")

    def is_over(self) -> bool:
        """As far as a thread has heard: an API that is away, too, holds up neither signals nor dialling."""
        now = time.monotonic()
        if now >= self._ask_at and (self._asks is None or not self._asks.is_alive()):
            from threading import Thread  # few connections are ever lost

            self._ask_at = now + ASK_EVERY
            self._asks = Thread(target=self._ask, daemon=True)
            self._asks.start()
        return self._is_over

    def _ask(self) -> None:
        api = Api(self._account)
        self._is_over = self._making.death(api) is not None
        api.close()


def _tell_state(environ: Mapping[str, str], where: Where, pod: str) -> None:
    """Begin to say in the pod's annotation what the kernel in it does, if a kernel is run that says so."""
    if environ.get(FILE_VARIABLE):
        from bitfusion_pods.command.state_teller import StateTeller  # while the program starts already

        StateTeller(environ[FILE_VARIABLE], where.account, where.namespace, pod).start()


def _asked(
    program: list[str], environ: Mapping[str, str], request: GpuRequest, pod: Running, making: Making
) -> Spawn:
    given = environment.sent(environ)
    for name in (ALL_LINES_VARIABLE, FILE_VARIABLE):
        given.pop(name, None)  # what runs in the program is read by somebody else, and is no kernel
    kind, total = " + ".join(making.rule.resources) or "GPU", making.rule.rule.gpu_memory
    device: dict[str, object] = {"name": kind, "server": pod.node, "simulated": False}
    if total is not None:
        device |= {"total_mib": total, "memory_mib": request.memory_per_gpu(total)}
    elif request.memory_mib is not None:
        device["memory_mib"] = request.memory_mib
    devices = [{"id": number, **device} for number in range(request.gpus)]
    given[environment.DEVICES_VARIABLE] = json.dumps(devices)
    given |= memory_variables(request, making.rule, given)
    socket_path = environ.get(SOCKET_VARIABLE, "")
    folder = os.path.dirname(socket_path)
    versions = pythons.versions(program, environ) if making.has_twin else {}
    return Spawn(tuple(program), given, _cwd(environ), folder, _texts(folder), pythons=versions or None)


def _cwd(environ: Mapping[str, str]) -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return environ.get("HOME", "/")


def _texts(folder: str) -> dict[str, str]:
    """The files that are in the private folder now; what comes later the stream brings."""
    found = {}
    if folder:
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False):
                with open(entry.path, encoding="utf-8", errors="replace") as file:
                    found[entry.name] = file.read()
    return found


def _announce(
    log: LogOutput, request: GpuRequest, pod: Running, making: Making, program: Sequence[str]
) -> None:
    numbers = " ".join(str(number) for number in range(request.gpus))
    memory = f"{request.memory_mib or 0} MiB of memory"
    log.log(f"Requesting GPUs [{numbers}] with {memory} from server 0, with version {VERSION}...")
    share = plain_number(request.partial or 1)
    log.log(
        f"Locked {request.gpus} GPUs with partial memory {share}, configuration saved to 'pod/{making.name}'"
    )
    if making.rule.note:
        log.log(f"{NOTE}this size is {making.rule.note}")
    command = " ".join(program).replace("\n", " ")
    log.log(f"Running client command '{command}' on {request.gpus} GPUs, with the following servers:")
    log.log(f"{pod.node} 0 {making.name} 0 {VERSION}")
    log.plain("")


def _run(remote: RemoteProgram, making: Making, log: LogOutput, program: Sequence[str]) -> int:
    """Run it to its end; its exit status, or that of a pod that has ended before. Raises Interrupted."""
    try:
        outcome = remote.run()
    except (NotReached, ProtocolError) as error:
        return _without_end(error, making, log)
    if isinstance(outcome, Failed):
        exec_failed = f'exec: "{program[0]}": {outcome.why}'
        log.error(PodRefused("", outcome.why, outcome.cure) if outcome.cure else exec_failed)
        return outcome.status
    # who ends a pod by SIGKILL may reach the program before the agent
    was_killed = outcome.status == -signal.SIGKILL and not outcome.memory_ran_out
    if outcome.told_to or was_killed:
        death = _death(making) if outcome.told_to else making.death()
        if death is not None and (outcome.told_to or making.is_deleted):
            log.error(death)
    elif remote.not_written:
        log.error(NOT_WRITTEN.format(remote.not_written))
        return outcome.as_shell() or 1
    elif outcome.memory_ran_out and outcome.status:
        log.log(f"Memory of the pod {making.name} ran out: Linux killed a process in it", "WARN")
    return outcome.as_shell()


def _death(making: Making) -> PodLost | None:
    """Why the pod is over, of which the API may know a moment later, or cannot be asked at this one."""
    end = time.monotonic() + STATUS_WITHIN
    while (death := making.death()) is None and time.monotonic() < end:
        time.sleep(0.2)
    return death


def _without_end(error: Exception, making: Making, log: LogOutput) -> int:
    """The connection is lost and nobody has said how the program ended: the pod's status may know."""
    death = _death(making)
    try:
        ended = ended_from_json(making.last_words.encode())
    except ProtocolError:
        ended = None
    if ended is not None and not ended.told_to:
        return ended.as_shell()  # the connection was lost just before its end
    making.is_lost = death is None
    log.error(death or PodLost.from_text("", NOT_REACHED.format(making.name, making.node, error)))
    return KILLED if ended is None else ended.as_shell()


def _release(making: Making, log: LogOutput) -> None:
    name = making.name
    if not name:
        return
    log.log(f"Releasing GPUs from config file 'pod/{name}'...")
    problem = making.delete()
    if problem:
        log.log(f"The pod {name} may still exist: {problem}. Without a client it ends by itself", "WARN")
    else:
        log.log(f"Released GPUs on 1 servers and removed generated config file 'pod/{name}'")
