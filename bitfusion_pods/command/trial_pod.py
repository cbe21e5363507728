"""`bitfusion health --connect`: a pod like a GPU pod, without a GPU, from its making to its end."""

from __future__ import annotations

import os
import sys
import time

from bitfusion_client.command.log_output import LogOutput
from bitfusion_client.errors import PodLost
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text
from bitfusion_client.one_line import one_line
from bitfusion_client.pod import pod_contract
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods import environment, signals
from bitfusion_pods.api.client import Api, path, pods
from bitfusion_pods.command.agent_files import agent_files
from bitfusion_pods.command.asking import in_words
from bitfusion_pods.command.dialing import Dialing
from bitfusion_pods.command.keys import make_keys
from bitfusion_pods.command.making import Making
from bitfusion_pods.command.remote_program import FIRST, NotReached
from bitfusion_pods.command.run import FOR_CPUS_ONLY, NOT_REACHED
from bitfusion_pods.command.runs import Runs
from bitfusion_pods.command.telling import Telling
from bitfusion_pods.command.waiting import Waiting
from bitfusion_pods.command.where import Where
from bitfusion_pods.places.events import events_of
from bitfusion_pods.pod.volumes import TOKEN_VOLUMES
from bitfusion_pods.spawn import Spawn, ended_from_json, failed_from_json, started_from_json
from bitfusion_pods.stream.frames import Kind, ProtocolError
from bitfusion_pods.stream.link import Lost
from bitfusion_pods.stream.session import Session

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from bitfusion_client.command.health_report import Report
    from bitfusion_client.kubernetes.raw_objects import RawObject
    from bitfusion_pods.command.making import Running
    from bitfusion_pods.command.notebook_pod import NotebookPod
    from bitfusion_pods.places.kueue import Place

OF_TRIAL = "Trial pod"
LONGEST_WAIT = 120.0
"""Seconds for a node to take it; what a node does with it has no bound, as in `bitfusion run`."""
MOST_EVENTS = 100
NO_END = "it is reached, but a program in it did not end"
ANOTHER_PYTHON = ". What to do: ask your administrator for a GPU image with the same Python at the same path"


class _Steps(Telling):
    """As it is told of no wait for GPUs, of which there are none."""

    def waits(self, why: str, place: Place | None = None) -> None:
        """Each step once."""
        if why != self._said:
            self._said = why
            self.log.log(f"Trial pod: {why}")


def try_pod(
    report: Report, api: Api, where: Where, notebook: NotebookPod, environ: Mapping[str, str], closed: str
) -> None:
    """Make it, look at it, run this Python in it, delete it.

    Args:
        report: Gets a line for each step.
        api: For the cluster.
        where: This pod.
        notebook: The same, as the API has it.
        environ: This process's.
        closed: What NetworkPolicies say against the connection; may be empty.

    Raises:
        BitfusionError: There is no key, or no such size.
        Interrupted: A signal; the pod is deleted.
    """
    report.group(OF_TRIAL)
    keys = make_keys(where.folder)
    whole = where.budget or GpuRequest()
    request = GpuRequest(1, whole.partial, whole.memory_mib, timeout=LONGEST_WAIT)
    # without a GPU it is no part of the budget, and waits for nobody's
    names = where.namespace, where.name, where.notebook, where.container
    free = Where(where.account, where.settings, *names, None, where.folder)
    telling = _Steps(LogOutput(), environ)
    files: dict[str, bytes | str] = {**agent_files(), **keys.of_pod}
    making = Making(api, free, notebook, files, Runs(notebook.container), Waiting(request, telling))
    making.rule = making.rule.without_gpu()
    found: list[Running] = []

    def made() -> str:
        began = time.monotonic()
        with in_words():
            found.append(making.start())
        return f"{making.name} runs on node {making.node} after {time.monotonic() - began:.1f} s"

    try:
        if report.check("Check creating a pod without a GPU", made):
            _look(report, api, where.namespace, making.name)
            _reach(report, making, found[0], where.settings.port, keys.context, environ, closed)
    finally:
        signals.hold(signals.ENDS)
        name, began = making.name, time.monotonic()
        problem = making.delete()
        if problem:
            report.add("MARGINAL", f"Check deleting it: {name} may still exist: {problem}. It ends by itself")
        elif name:
            report.add("PASS", f"Check deleting it: done within {time.monotonic() - began:.1f} s")


def _look(report: Report, api: Api, namespace: str, name: str) -> None:
    """The image and the volumes: a pod that runs has both."""
    with in_words():
        pod = api.get(pods(namespace, name))
        uid = text(metadata_of(pod).get("uid"))
        selector = f"involvedObject.uid={uid}"
        way = path("api", "v1", "namespaces", namespace, "events", fieldSelector=selector, limit=MOST_EVENTS)
        events = events_of(mapping(api.find_readable(way)).get("items"), uid)
    (program,) = mappings(mapping(pod.get("spec")).get("containers"))[:1]
    told = (each.message for each in events if each.reason == "Pulled")
    report.add("PASS", f"Check image: {next(told, one_line(text(program.get('image'))))}")
    report.add("PASS", f"Check volumes: {', '.join(volume_words(pod, program)) or 'there are none'}")


def volume_words(pod: RawObject, program: RawObject) -> list[str]:
    """``claim home at /home/jovyan`` for each volume of the notebook's."""
    volumes = {text(each.get("name")): each for each in mappings(mapping(pod.get("spec")).get("volumes"))}
    found = []
    for mount in mappings(program.get("volumeMounts")):
        name = text(mount.get("name"))
        claim = mapping(volumes.get(name, {}).get("persistentVolumeClaim")).get("claimName")
        if name != pod_contract.CLIENT_VOLUME and not name.startswith(TOKEN_VOLUMES):
            told = f"claim {claim}" if claim else name
            found.append(one_line(f"{told} at {text(mount.get('mountPath'))}"))
    return found


def _reach(
    report: Report,
    making: Making,
    pod: Running,
    port: int,
    context: ssl.SSLContext,
    environ: Mapping[str, str],
    closed: str,
) -> None:
    said: dict[Kind, bytes] = {}

    def connected() -> str:
        # its files and frameworks are looked for by the Python that is named, the kernel's own
        asked = Spawn((sys.executable, "-c", "pass"), environment.sent(environ), "/")
        try:
            seconds = _talk((pod.address, port), context, asked, said)
        except (NotReached, ProtocolError) as error:
            making.is_lost = True
            why = f"{error}; {closed}" if closed else error
            words = NOT_REACHED.format(making.name, making.node, why)
            raise making.death() or PodLost.from_text("", words) from None
        return f"{pod.address} after {seconds * 1000:.0f} ms, encrypted"

    if not report.check(f"Check connection to port {port}", connected):
        return
    if Kind.FAILED in said:
        why = failed_from_json(said[Kind.FAILED]).why
        report.add("FATAL", f"Check program: {sys.executable}: {one_line(why)}{ANOTHER_PYTHON}")
        return
    status = ended_from_json(said[Kind.EXIT]).as_shell()
    ended = f"ended with status {status}{ANOTHER_PYTHON}" if status else "runs there"
    report.add("FATAL" if status else "PASS", f"Check program: {sys.executable} {ended}")
    only = started_from_json(said[Kind.SPAWNED]).for_cpus_only
    if only:
        told = FOR_CPUS_ONLY.format(names=one_line(", ".join(only)), image=one_line(pod.image))
        report.add("MARGINAL", f"Check frameworks: {told}")


def _talk(address: tuple[str, int], context: ssl.SSLContext, asked: Spawn, said: dict[Kind, bytes]) -> float:
    """Seconds until the connection is there; `said` gets what the agent says of the program, to its end.

    Nothing of this process's input and output goes there. Raises NotReached and ProtocolError.
    """
    session = Session(os.urandom(16), of_pod=False)
    link, dialing = session.link, Dialing(address, context, session)
    link.put(Kind.SPAWN, 0, asked.to_json())
    began, connected = time.monotonic(), 0.0
    try:
        while not said.keys() & {Kind.EXIT, Kind.FAILED}:
            passed = time.monotonic() - began
            if passed >= FIRST:
                raise NotReached(NO_END if connected else dialing.why)
            if link.connection is None:
                dialing.go_on()
            elif not connected:
                connected = passed
            try:
                session.turn(0.05, lambda frame: said.setdefault(frame.kind, frame.payload))
            except Lost as lost:
                link.detach()
                dialing.why = str(lost)
        link.put(Kind.BYE)
        link.flush()
    except Lost:
        pass  # all is said
    finally:
        session.close()
    return connected
