"""Fuzz the injector: ``python -m tests.bitfusion_device_plugin.injector.fuzz --pods 100000``.

Checked of each random pod: no crash; the object given is not written to; the patch, applied by another
implementation of RFC 6902, makes the result; nothing foreign is dropped or changed; the second pass is empty,
also after other webhooks; what was valid against the API's strict schemas still is.

The same pod then meets a few of other people's webhooks before and after ours, and ours again. What is
counted for a container is what it holds: where its command was put under the client, it is started on a
stage, with a real shell, and ``bitfusion run`` has to start once, for as much as the units say, with the
program that would have started without us. No init container of ours is larger than the container that asks,
and the pass after that is empty, too.

A failure prints the pod and the number that reproduces it: ``--first NUMBER --pods 1``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pickle
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonpatch

from bitfusion_client.command.command_line import parse_options, parse_request_text
from bitfusion_client.kubernetes.names import QUEUE_GATE
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    asks_for_gpus,
    limits_of,
    mapping,
    requests_of,
    text,
)
from bitfusion_client.kubernetes.sizes import units
from bitfusion_client.request.quantities import parse_quantity
from bitfusion_device_plugin.injector.injection.injected_pod import Refusal, injected_pod
from bitfusion_device_plugin.injector.injection.node_gpus import HIDDEN
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from tests.bitfusion_device_plugin.injector.pods import LOCAL_VOLUMES, STATUS, UNITS, Object
from tests.bitfusion_device_plugin.injector.random_pods import Case, Chooser, Randomness, case
from tests.bitfusion_device_plugin.injector.stage import Stage
from tests.bitfusion_device_plugin.injector.webhooks import (
    COPIED,
    MAKES_LINES,
    RENAMED,
    Change,
    applied,
)
from tests.notebook_controller_patch.admission.fuzz import KUBERNETES, schema

OUR_CONTAINERS = (
    *("bitfusion-client", "bitfusion-packages"),
    *(f"bitfusion-packages-{number}" for number in range(2, 8)),
)
NAMES = ("bitfusion-client", "bitfusion-identity")
GPUS = "nvidia.com/gpu"
OUR_VOLUMES = (*NAMES, *(RENAMED + name for name in NAMES))
CARRIED = (
    *("auto-management/bitfusion", "bitfusion-client/os", "bitfusion-client/version"),
    *("bitfusion-client/filter", "bitfusion.io/request", "bitfusion.io/path"),
)
CLIENT = ["/bitfusion/bin/bitfusion", "run"]
AMONG = "among webhooks"


@contextmanager
def a_stage() -> Iterator[Stage]:
    """Where commands are started; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="stage-") as folder:
        yield Stage(Path(folder))


def check(one: Case, rng: Randomness, stage: Stage, number: int = 0) -> list[str]:
    """Check one pod; returns what happened to it, alone and among others' webhooks.

    AssertionError tells what is wrong.
    """
    alone = _check_alone(one, rng, number)
    return [alone, *_check_among_webhooks(one, Chooser(rng), stage)]


def _check_alone(one: Case, rng: Randomness, number: int) -> str:
    result = _passed(one)
    if isinstance(result, Refusal):
        _check_refusal(one, result)
        return "refused"
    if result is one.pod:
        return "unchanged"
    _check_foreign(one.pod, result)
    _check_asking(one, result)
    versions = KUBERNETES[1:] if one.settings.gates else KUBERNETES  # the first has no gates
    validator = schema("pod-v1", versions[number % len(versions)])
    outcome = "injected"
    if not validator.is_valid(result):
        error = next(validator.iter_errors(result))
        assert not validator.is_valid(one.pod), f"no longer valid: {error.message}"
        outcome = "injected, odd before"
    again = _passed(dataclasses.replace(one, pod=copied(result)))
    assert not isinstance(again, Refusal), f"refused at the second pass: {again.message}"
    assert difference(result, again) == [], "the second pass changes something"
    _check_disturbed(one, result, Chooser(rng))
    return outcome


def copied(value: Any) -> Any:
    """A deep copy, in a quarter of the time of `copy.deepcopy`."""
    return pickle.loads(pickle.dumps(value))


def _passed(one: Case) -> Object | Refusal:
    """One pass: its patch makes its result, and nothing is written into what was given."""
    given = pickle.dumps(one.pod)
    result = injected_pod(one.pod, one.namespace, one.settings, one.notebook)
    if not isinstance(result, Refusal):
        patch = difference(one.pod, result)
        assert bool(patch) == (result != one.pod)
        if patch:
            assert jsonpatch.apply_patch(pickle.loads(given), copied(patch), in_place=True) == result
    assert pickle.dumps(one.pod) == given, "the pod was changed in place"
    return result


def _check_refusal(one: Case, refusal: Refusal) -> None:
    message = refusal.message
    assert len(message.splitlines()) == 1, message
    assert message.isprintable(), message
    assert len(message) < 1000, message
    assert "itfusion" in message or "injector" in message, message
    assert "bitfusion" in json.dumps([one.pod, one.notebook]), "a pod without a word of ours was refused"


def _check_foreign(before: Object, after: Object) -> None:
    """What is left without all that is ours is the same as before."""
    names = [[one.get("name") for one in pod["spec"]["containers"]] for pod in (before, after)]
    assert names[0] == names[1]
    assert without_ours(after) == without_ours(before), "something foreign was changed"


def without_ours(pod: Object) -> Object:
    """A pod without the client, its resources, and a command's beginning."""
    pod = copied(pod)
    spec = pod["spec"]
    for name, ours in (("initContainers", OUR_CONTAINERS), ("volumes", OUR_VOLUMES)):
        spec[name] = [
            one for one in spec.get(name) or () if one.get("name") not in ours or one.get("image") == "x"
        ]
    given = spec.get("schedulingGates") or []
    if isinstance(given, list):
        spec["schedulingGates"] = [gate for gate in given if mapping(gate).get("name") != QUEUE_GATE]
    # of what a pod wishes of nodes only what we add ourselves goes
    tolerations = spec.get("tolerations")
    if isinstance(tolerations, list):
        spec["tolerations"] = [one for one in tolerations if one != {"key": GPUS, "operator": "Exists"}]
    spec["tolerations"] = spec.get("tolerations") or []
    if GPUS in json.dumps(spec.get("affinity")):
        del spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    spec["affinity"] = spec.get("affinity") or {"nodeAffinity": {}}
    spec["affinity"].setdefault("nodeAffinity", {})
    for container in spec["containers"]:
        variables = container.get("env")
        if isinstance(variables, list) or variables is None:
            container["env"] = [one for one in variables or () if one != HIDDEN]
        mounts = container.get("volumeMounts")
        if isinstance(mounts, list) or mounts is None:
            container["volumeMounts"] = [
                one for one in mounts or () if mapping(one).get("name") not in OUR_VOLUMES
            ]
        if container.get("resources") is None:
            container["resources"] = {}
        resources = container["resources"]
        for part in ("limits", "requests") if isinstance(resources, dict) else ():
            if isinstance(given := resources.get(part) or {}, dict):
                kept = {key: value for key, value in given.items() if not key.startswith("bitfusion.io/gpu")}
                resources[part] = kept
        command = container.get("command")
        if isinstance(command, list) and command[:2] == CLIENT:
            command = command[command.index("--") + 1 :]
            container["command"] = command[1:] if command[:1] == ["/usr/bin/env"] else command
    metadata = pod["metadata"] = pod.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    foreign = {key: value for key, value in annotations.items() if key not in (*CARRIED, STATUS)}
    local = text(foreign.pop(LOCAL_VOLUMES, "")).split(",")
    metadata["annotations"] = foreign | {LOCAL_VOLUMES: [name for name in local if name not in ("", *NAMES)]}
    return pod


def _counts_nothing(one: Case) -> bool:
    """Whether the client is one of the kind that takes nothing of a pool."""
    return one.settings.clients[0].kind == "pods"


def _check_asking(one: Case, after: Object) -> None:
    spec = after["spec"]
    if one.settings.gates and not _counts_nothing(one):
        assert [gate.get("name") for gate in spec["schedulingGates"]].count(QUEUE_GATE) == 1
        assert not text(spec.get("nodeName"))
    else:
        assert spec.get("schedulingGates") == one.pod["spec"].get("schedulingGates")
    assert after["metadata"]["annotations"][STATUS] == "injected"
    for key, value in annotations_of(one.pod).items():
        kept = after["metadata"]["annotations"][key]
        assert kept == value or key in (one.notebook or {}) or key in (STATUS, LOCAL_VOLUMES)
    local = text(after["metadata"]["annotations"][LOCAL_VOLUMES]).split(",")
    assert len(local) == len(set(local))
    assert spec["initContainers"][0]["volumeMounts"][0]["name"] in local
    assert spec["initContainers"][0]["name"] == "bitfusion-client"
    words = spec["initContainers"][0]["args"][1:]
    asking = {words[place]: words[place : place + 5] for place in range(0, len(words), 5)}
    assert asking
    for container in spec["containers"]:
        name = text(container.get("name"))
        if name not in asking:
            assert not asks_for_gpus(container)
            continue
        limits, requests = limits_of(container), requests_of(container)
        ours = [key for key in (*limits, *requests) if key.startswith("bitfusion.io/gpu") and key != UNITS]
        assert not ours, "a size is left"
        if _counts_nothing(one):
            assert asking[name][3] == "pods"
            assert not {limits.get(UNITS), requests.get(UNITS)} - {None, "0"}
        else:
            assert limits[UNITS] == asking[name][2]
            assert int(limits[UNITS]) >= 1
        mounts = [mount for mount in container["volumeMounts"] if mount["name"] in OUR_VOLUMES]
        assert len([mount for mount in mounts if mount["mountPath"] == "/bitfusion"]) == 1
        assert all(mount["readOnly"] is True for mount in mounts)
    for container in spec["initContainers"]:
        if container.get("name") in OUR_CONTAINERS and container["image"] != "x":
            resources = json.dumps(container["resources"])
            assert "bitfusion.io" not in resources or _had_units(one.pod["spec"]), resources


def _had_units(spec: Object) -> bool:
    """Whether units stood, as by a LimitRange, in ours of the pass before, else in what is taken over."""
    init = [one for one in spec.get("initContainers") or () if one.get("name") == "bitfusion-client"]
    told = [one for one in init if one.get("image") != "x"] or spec["containers"]
    return any(UNITS in {**limits_of(one), **requests_of(one)} for one in told)


def _check_disturbed(one: Case, result: Object, chooser: Chooser) -> None:
    """Other webhooks come in between: a further pass may be needed, one after it is empty."""
    disturbed = copied(result)
    chooser.disturb(disturbed)
    second = _passed(dataclasses.replace(one, pod=disturbed))
    if isinstance(second, Refusal):  # by what the other webhook has added
        assert "late-asking" in json.dumps(disturbed), second.message
        return
    _check_foreign(disturbed, second)
    _check_asking(dataclasses.replace(one, pod=disturbed), second)
    third = _passed(dataclasses.replace(one, pod=copied(second)))
    assert not isinstance(third, Refusal), third.message
    assert difference(second, third) == [], "the third pass changes something"


def _check_among_webhooks(one: Case, chooser: Chooser, stage: Stage) -> list[str]:
    """The same pod with other people's webhooks before and after ours; what is worth counting of it."""
    if one.spoiled or not isinstance(one.pod["metadata"].get("annotations"), dict | None):
        return []
    earlier, later = chooser.webhooks(), chooser.webhooks()
    before = applied(one.pod, earlier)
    first = _passed(dataclasses.replace(one, pod=before))
    if isinstance(first, Refusal) or first is before:
        return []
    moved = dataclasses.replace(one, pod=applied(first, later))
    second = _passed(moved)
    if isinstance(second, Refusal):
        assert "made part of a line" in second.message, second.message
        assert len([each for each in (*earlier, *later) if each in MAKES_LINES]) > 1, second.message
        return [AMONG, "refused after others"]
    _check_asking(moved, second)
    _check_size(second)
    again = _passed(dataclasses.replace(one, pod=applied(second, later)))
    assert not isinstance(again, Refusal), again.message
    assert difference(second, again) == [], "a pass after other webhooks and ours changes something"
    started = _check_held(one, [*earlier, *later], second, stage)
    return [AMONG, *started]


def _check_size(pod: Object) -> None:
    """No init container of ours has more than the first container that asks."""
    names = pod["spec"]["initContainers"][0]["args"][1::5]
    like = next(each for each in pod["spec"]["containers"] if each.get("name") in names)
    for container in pod["spec"]["initContainers"]:
        if container.get("name") not in OUR_CONTAINERS or container["image"] == "x":
            continue
        for part in ("limits", "requests"):
            given, most = (mapping(each["resources"].get(part)) for each in (container, like))
            for name in COPIED:
                assert (name in given) <= (name in most), f"{part} of {name}"
                if name in given:
                    (top, bottom), (most_top, most_bottom) = map(parse_quantity, (given[name], most[name]))
                    assert top * most_bottom <= most_top * bottom, f"{part} of {name}"


def _check_held(one: Case, others: list[Change], pod: Object, stage: Stage) -> list[str]:
    """What is counted for a container is what it holds; an item for each command that was started for it.

    `others`: the webhooks that were called. Some of them lose where words end, so the program is the one that
    starts among them without ours, or, blanks being ends of words, the one that the user wrote. Where they
    break each other, so that no program at all would start among them, nothing is expected.
    """
    ours = pod["spec"]["initContainers"][0]
    words = ours["args"][1:]
    variables = {each["name"]: text(each.get("value")) for each in ours["env"]}
    wrapped = [word.partition("=")[0] for word in variables.get("BITFUSION_WRAPPED", "").split()]
    outcomes = []
    for name, asked in zip(words[::5], words[1::5], strict=True):
        container = _named(pod, name)
        request = parse_request_text(asked.replace("$$", "$"))
        if not _counts_nothing(one):
            assert units(request, one.settings.gpu_memory_mib) == int(limits_of(container)[UNITS])
        if name not in wrapped:
            continue
        probe = copied(one.pod)
        _named(probe, name).update(command=["python"], args=None)
        if not stage.started(_named(applied(probe, others), name)).programs:
            outcomes.append("broken by others")
            continue
        started = stage.started(container)
        assert len(started.runs) == 1, f"{started} by {container['command']} {container.get('args')}"
        held, rest = parse_options(started.runs[0][1:])
        assert held == request, started
        assert not rest
        without = stage.started(_named(applied(one.pod, others), name)).programs
        if started.programs != without:
            written = stage.started(_named(one.pod, name)).programs
            assert _split(started.programs) == _split(written), f"{started}, not {without} or {written}"
        outcomes.append("command started")
    return outcomes


def _split(programs: list[list[str]]) -> list[list[str]]:
    return [" ".join(words).split() for words in programs]


def _named(pod: Object, name: str) -> dict[str, Any]:
    return next(each for each in pod["spec"]["containers"] if each.get("name") == name)


def run(seed: int, first: int, pods: int, *, progress: bool) -> Counter[str]:
    """Check that many pods; counts what happened."""
    with a_stage() as stage:
        return _run(seed, first, pods, stage, progress)


def _run(seed: int, first: int, pods: int, stage: Stage, progress: bool) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for done in range(1, pods + 1):
        number = first + done - 1
        one = case(seed, number)
        try:
            outcomes.update(check(one, random.Random(f"{seed}/{number}/disturbed"), stage, number))
        except Exception:
            shown = {"pod": one.pod, "notebook": one.notebook, "namespace": one.namespace}
            print(f"pod {number} of seed {seed}:\n{json.dumps(shown, indent=1)}", file=sys.stderr)
            raise
        if progress and done % max(1, pods // 20) == 0:
            rate = done / (time.monotonic() - began)
            print(f"{done:>8} of {pods}, {rate:.0f} a second", file=sys.stderr, flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first pod")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        outcomes = run(options.seed, options.first, options.pods, progress=True)
    except Exception:
        traceback.print_exc()
        return 1
    counted = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    print(f"{options.pods} pods in {time.monotonic() - began:.0f} s: {counted}; none failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
