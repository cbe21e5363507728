"""The arguments of our init container: for each container that asks, what it gets.

They are also the injector's own memory: a pod comes a second time after other webhooks, and by then its sizes
are units, from which no request can be read, and its commands may stand elsewhere. Which commands it has put
under the client is in a variable of the init container, which reads no such variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bitfusion_client.command.command_line import parse_request_text
from bitfusion_client.errors import WrongInput
from bitfusion_client.kubernetes.annotations import format_request_annotation
from bitfusion_client.kubernetes.raw_objects import init_containers_of, mappings, text
from bitfusion_client.pod.pod_contract import INIT_CONTAINER, INSTALL_COMMAND, VOLUME_PATH
from bitfusion_client.request.gpu_request import GpuRequest

WORDS = 5  # name, request, units, kind, package
# Anybody may write an init container that looks like ours, and its requests are parsed. As many containers as
# may ask, with the longest annotations, stay below.
MOST_ASKING = 16
LONGEST_ARGUMENTS = 1 << 18  # characters
ENV_WRAPPED = "BITFUSION_WRAPPED"
LONGEST_WRAPPED = 4096  # characters


@dataclass(frozen=True, slots=True)
class Record:
    """What one container gets: the words of the init container's arguments."""

    container: str
    request: GpuRequest
    units: int
    kind: str
    package: str


def install_arguments(records: Iterable[Record]) -> list[str]:
    """The arguments of the init container."""
    words = [VOLUME_PATH]
    for record in records:
        request = escaped(format_request_annotation(record.request))
        words += [record.container, request, str(record.units), record.kind, record.package]
    return words


class Recorded(NamedTuple):
    """What an earlier pass has found out about a container."""

    request: GpuRequest
    kind: str


def recorded_requests(spec: Mapping[str, Any]) -> dict[str, Recorded]:
    """What an earlier pass has found out, by the container's name; empty for a pod that was not injected."""
    for container in init_containers_of(spec):
        if container.get("name") == INIT_CONTAINER:
            return _read(container) or {}
    return {}


def wrapped_lines(spec: Mapping[str, Any]) -> dict[str, str]:
    """The commands that an earlier pass has wrapped: `Wrapping.line` by the container's name."""
    for container in init_containers_of(spec):
        if container.get("name") == INIT_CONTAINER:
            values = [
                text(variable.get("value"))
                for variable in mappings(container.get("env"))
                if variable.get("name") == ENV_WRAPPED
            ]
            words = " ".join(values)[:LONGEST_WRAPPED].split()
            return {name: line for name, _, line in (word.partition("=") for word in words)}
    return {}


def with_wrapped_lines(variables: object, lines: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    """The init container's variables with that memory; the same list where they say so already."""
    present = mappings(variables)
    value = " ".join(f"{name}={line}" if line else name for name, line in lines.items())
    wanted = [{"name": ENV_WRAPPED, "value": value}] if lines else []
    if [variable for variable in present if variable.get("name") == ENV_WRAPPED] == wanted:
        return present
    return [variable for variable in present if variable.get("name") != ENV_WRAPPED] + wanted


def is_ours(container: Mapping[str, Any]) -> bool:
    """Whether an init container is the one that an earlier pass has made, and no other of its name."""
    return container.get("name") == INIT_CONTAINER and _read(container) is not None


def escaped(word: str) -> str:
    """A word of a command or of arguments in which the kubelet expands no ``$(VARIABLE)``."""
    return word.replace("$", "$$")


def _read(container: Mapping[str, Any]) -> dict[str, Recorded] | None:
    command, words = container.get("command"), container.get("args")
    if not isinstance(command, list) or tuple(command) != INSTALL_COMMAND:
        return None
    if not isinstance(words, list) or words[:1] != [VOLUME_PATH] or len(words) % WORDS != 1:
        return None
    if len(words) > MOST_ASKING * WORDS + 1 or sum(map(len, map(text, words))) > LONGEST_ARGUMENTS:
        return None
    found = {}
    for start in range(1, len(words), WORDS):
        name, request = words[start : start + 2]
        if not isinstance(name, str) or not isinstance(request, str):
            return None
        try:
            parsed = parse_request_text(request.replace("$$", "$"))
        except WrongInput:
            return None
        found[name] = Recorded(parsed, text(words[start + 3]))
    return found
