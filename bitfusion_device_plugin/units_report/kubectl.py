"""What the cluster's objects are: `kubectl` is asked, or its output is read from a file or standard input.

`kubectl` knows every way to log in to a cluster, and the person who runs it may see what it shows.
So the pool's package needs no Kubernetes client, and its pod no right to ask the API server.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import BinaryIO

from bitfusion_client.errors import ClientFailed
from bitfusion_client.kubernetes.raw_objects import mapping, text
from bitfusion_client.one_line import one_line
from bitfusion_device_plugin.units_report.cluster_objects import only_what_is_read

QUESTION = ("get", "nodes,pods,resourcequotas", "--all-namespaces", "-o", "json")
LIMIT_S = 60.0
MOST_BYTES = 48 << 20  # with what is made of it less than the memory of the sample pool's pod
STDIN = "-"
OF_ONE_NAMESPACE = "kubectl get nodes,pods,resourcequotas --namespace NAMESPACE -o json"

_REQUEST_S = 30
_END_S = 5.0  # from its last word to its end
_AT_ONCE = 1 << 16
_SHOWN_OF_STDERR = 2000


class ClusterUnreadable(ClientFailed):
    """The cluster's objects cannot be had; says why, and what to do."""

    headline = "The cluster could not be read."

    def __init__(self, answered: str, next_step: str) -> None:
        super().__init__(answered=answered, next_step=next_step)
        self.args = (answered, next_step)


def ask_kubectl(
    context: str = "",
    kubeconfig: str = "",
    limit_s: float = LIMIT_S,
    most_bytes: int = MOST_BYTES,
    environ: Mapping[str, str] | None = None,
) -> list[object]:
    """All nodes, pods and quotas that there are, as raw objects, by `kubectl`.

    Args:
        context: Of its configuration; empty: the current one.
        kubeconfig: Its configuration; empty: as it finds it.
        limit_s: How long it may take.
        most_bytes: How much it may print.
        environ: Its environment; the process's.

    Raises:
        ClusterUnreadable: There is no `kubectl`, it failed, took too long or printed something else.
    """
    named = [f"--context={context}"] if context else []
    named += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    words = ["kubectl", *named, *QUESTION, f"--request-timeout={_REQUEST_S}s"]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environ
            )
        except OSError as error:
            raise ClusterUnreadable(
                f"kubectl cannot be started: {error.strerror}",
                "install kubectl, or run it elsewhere: "
                f"kubectl {' '.join(QUESTION)} | bitfusion-pool status --kubernetes -",
            ) from None
        with process:
            try:
                found = _read_output(process, limit_s, most_bytes)
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise _not_answered(limit_s) from None
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        said = one_line(errors.read(_SHOWN_OF_STDERR).decode(errors="replace"))
    if process.returncode:
        raise ClusterUnreadable(
            f"kubectl failed: {said or f'exit status {process.returncode}'}",
            "it must be allowed to list nodes, pods and resourcequotas of all namespaces; check with "
            "`kubectl auth can-i list pods --all-namespaces`",
        )
    return parse_list(found)


def read_objects(path: str, most_bytes: int = MOST_BYTES) -> list[object]:
    """The same, from a file with what `kubectl` printed; ``-`` is standard input.

    Raises:
        ClusterUnreadable: The file cannot be read, or has something else in it.
    """
    if path == STDIN:
        return parse_list(_read_file(sys.stdin.buffer, most_bytes))
    try:
        with open(path, "rb") as file:
            return parse_list(_read_file(file, most_bytes))
    except OSError as error:
        raise ClusterUnreadable(
            f"{one_line(path)} cannot be read: {error.strerror}", "name a file with kubectl's output"
        ) from None


def parse_list(found: bytes) -> list[object]:
    """The objects of the list that `kubectl get … -o json` printed.

    Raises:
        ClusterUnreadable: It is no such list, is cut off, or nodes or pods are missing in it.
    """
    again = f"pass the output of: kubectl {' '.join(QUESTION)}"
    if not found.strip():
        raise ClusterUnreadable("kubectl's output is empty", again)
    try:
        data = json.loads(found, object_hook=only_what_is_read)
    except RecursionError:
        raise ClusterUnreadable("kubectl's output is nested too deeply", again) from None
    except ValueError:  # UnicodeDecodeError, too
        raise ClusterUnreadable(
            f"kubectl's output is not JSON or is incomplete ({len(found)} bytes)", again
        ) from None
    items = mapping(data).get("items")
    if not isinstance(items, list):
        kind = one_line(text(mapping(data).get("kind")), 60) or "something else"
        raise ClusterUnreadable(f"kubectl's output is not a list of objects but {kind}", again)
    if not any(mapping(item).get("kind") == "Node" for item in items):
        raise ClusterUnreadable("kubectl's output has no nodes, so it is incomplete", again)
    if not any(mapping(item).get("kind") == "Pod" for item in items):
        # kubectl prints the rest where one kind is refused, and a pipe hides that it failed
        raise ClusterUnreadable("kubectl's output has no pods: perhaps you may not list them", again)
    return items


def _read_output(process: subprocess.Popen[bytes], limit_s: float, most_bytes: int) -> bytes:
    if process.stdout is None:
        raise RuntimeError("kubectl was started without a pipe")
    fd, until, found = process.stdout.fileno(), time.monotonic() + limit_s, bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise _not_answered(limit_s)
            part = os.read(fd, _AT_ONCE)
            if not part:
                return bytes(found)
            found += part
            if len(found) > most_bytes:
                raise _too_much(most_bytes)


def _read_file(file: BinaryIO, most_bytes: int) -> bytes:
    found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise _too_much(most_bytes)
    return found


def _not_answered(limit_s: float) -> ClusterUnreadable:
    return ClusterUnreadable(
        f"kubectl has not answered within {limit_s:g} s",
        "see what delays it: kubectl get nodes --request-timeout=10s",
    )


def _too_much(most_bytes: int) -> ClusterUnreadable:
    return ClusterUnreadable(
        f"kubectl printed more than {most_bytes >> 20} MiB, which is the most that is read",
        f"look at one namespace at a time: {OF_ONE_NAMESPACE} | bitfusion-pool status --kubernetes -",
    )
