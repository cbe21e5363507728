"""The doctor's checks of a pod: what was injected, the identity, what the client says of it, the budget.

A client that makes GPU pods needs no injector (JupyterHub): it is asked wherever the pod has one.
Outside Kubernetes there is nothing to check, and the report has no line about it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from bitfusion_client.command.client_reports import parse_health
from bitfusion_client.command.find_client import find_client
from bitfusion_client.errors import BitfusionError
from bitfusion_client.one_line import one_line
from bitfusion_client.pod import pod_contract
from bitfusion_kernel.install.check_client import VERDICTS, run_client
from bitfusion_kernel.install.finding import FAIL, PASS, WARN, Finding
from bitfusion_kernel.pod.account import standing
from bitfusion_kernel.pod.facts import Pod, pod_root, read_pod

IDENTITY_FILES = (pod_contract.SERVERS_KEY, pod_contract.TOKEN_KEY, pod_contract.CA_KEY)

IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"
"""The kubelet sets it in every container."""

NOT_INJECTED = (
    "stop the notebook and choose a Bitfusion size in its form (or set the annotation "
    "auto-management/bitfusion: injection and a limit such as bitfusion.io/gpu-50: 1); if it has one, ask "
    "your administrator whether the pod injector runs and looks at this namespace"
)
NO_INJECTOR = "no injector was here, and this client needs none: it makes GPU pods by itself"
BY_CONNECTING = (
    "`bitfusion health --connect` in a terminal tries image, volumes and connection, too: in a pod like a "
    "GPU pod, without a GPU"
)
NO_IDENTITY = (
    "ask your administrator to let this namespace use the pool (its Secret "
    f"{pod_contract.IDENTITY_SECRET}); files that are made now arrive within two minutes, without a restart"
)


def check_pod(environ: Mapping[str, str]) -> Iterator[Finding]:
    """All that concerns the pod in which this process runs."""
    try:
        pod = read_pod(environ)
    except BitfusionError as error:
        yield Finding.from_error("pod", error)
        return
    if pod is None:
        if environ.get(IN_KUBERNETES):
            yield from _without_injector(environ)
        return
    budget = pod.budget
    counted = f"{budget.request.describe()} ({budget.units or '?'} units)"
    yield Finding(
        PASS,
        "pod",
        f"{pod.files.describe()}: budget {counted}, client {one_line(pod.files.client) or 'unknown'}",
    )
    yield _what_is_left(pod, environ)
    if pod.files.client != pod_contract.PODS:
        yield _identity(pod)
    yield from _client(pod, environ)


def _without_injector(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        path = find_client(None, environ).path
    except BitfusionError:
        path = ""  # told by the checks of the client
    if path and pod_contract.OF_GPU_PODS in run_client(path, ["version"])[1]:
        yield Finding(PASS, "pod", NO_INJECTOR)
        yield from _health(path)
        yield Finding(PASS, "GPU pod", BY_CONNECTING)
        return
    found = f"no Bitfusion client was injected: there is no {pod_root(environ)}/pod"
    yield Finding(WARN, "pod", found, NOT_INJECTED)


def _what_is_left(pod: Pod, environ: Mapping[str, str]) -> Finding:
    now = standing(pod, environ)
    clock = time.time()
    found = f"left of the pod's budget: {now.describe_left()}"
    for what, entries in (("held by", now.holders), ("waiting", now.waiting)):
        if entries:
            found += f"; {what} {', '.join(entry.describe(clock) for entry in entries)}"
    return Finding(PASS, "pod budget", found)


def _identity(pod: Pod) -> Finding:
    folder = os.path.join(pod.root, pod_contract.IDENTITY_FOLDER)
    missing = [name for name in IDENTITY_FILES if not os.path.isfile(os.path.join(folder, name))]
    if missing:
        who = one_line(pod.files.namespace)
        found = f"{folder} has no {', '.join(missing)}: the namespace {who} has no access to the pool"
        return Finding(FAIL, "pod identity", found, NO_IDENTITY)
    unreadable = [name for name in IDENTITY_FILES if not os.access(os.path.join(folder, name), os.R_OK)]
    if unreadable:
        found = f"this user cannot read {', '.join(unreadable)} in {folder}"
        return Finding(FAIL, "pod identity", found, "start Jupyter as the user of the image")
    return Finding(PASS, "pod identity", f"{', '.join(IDENTITY_FILES)} in {folder}")


def _client(pod: Pod, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the kernel uses what was injected, and what that says of server and token."""
    own = os.path.join(pod.root, pod_contract.COMMAND_FILE)
    try:
        client = find_client(None, environ)
    except BitfusionError:
        return  # told by the checks of the client
    if not os.path.exists(own):
        found = f"{own} is missing: the pod's first init container has not filled the folder"
        yield Finding(FAIL, "pod client", found, "ask your administrator to look at that container's log")
    elif not _same_file(client.path, own):
        found = f"the kernel uses {client.path}, not the pod's {own}"
        yield Finding(WARN, "pod client", found, f"set BITFUSION_CLIENT={own}, unless that is meant")
    if client.is_embedded_pool:
        return  # its pool is checked with it
    yield from _health(client.path)
    if pod.files.client == pod_contract.PODS:
        yield Finding(PASS, "GPU pod", BY_CONNECTING)


def _health(path: str) -> Iterator[Finding]:
    _, text, problem = run_client(path, ["health"])
    if problem is not None:
        yield problem
        return
    checks = [check for section in parse_health(text).sections for check in section.checks]
    if not checks:
        yield Finding(WARN, "bitfusion health", "it reported nothing", "run `bitfusion health` in a terminal")
    for check in checks:
        subject, _, found = check.text.removeprefix("Check ").partition(": ")
        if check.tag in VERDICTS:
            cure = "" if check.tag == "PASS" else "ask your administrator"
            yield Finding(VERDICTS[check.tag], subject, found or check.tag.lower(), cure)


def _same_file(one: str, other: str) -> bool:
    """A file that is mounted twice by subPath has one inode."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
