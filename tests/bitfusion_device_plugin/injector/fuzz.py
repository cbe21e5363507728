"""Fuzz the injector: ``python -m tests.bitfusion_device_plugin.injector.fuzz --pods 100000``.

Checked of each random pod: no crash; the object given is not written to; the patch, applied by another
implementation of RFC 6902, makes the result; nothing foreign is dropped or changed; the second pass is empty,
also after other webhooks; what was valid against the API's strict schemas still is. A failure prints the pod
and the number that reproduces it: ``--first NUMBER --pods 1``.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import random
import sys
import time
import traceback
from collections import Counter

import jsonpatch

from bitfusion_client.kubernetes.names import QUEUE_GATE
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    limits_of,
    mapping,
    requests_of,
    size_limits_of,
    text,
)
from bitfusion_device_plugin.injector.injection.injected_pod import Refusal, injected_pod
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from tests.bitfusion_device_plugin.injector.pods import STATUS, UNITS, Object
from tests.bitfusion_device_plugin.injector.random_pods import Case, Chooser, Randomness, case
from tests.notebook_controller_patch.admission.fuzz import KUBERNETES, schema

OUR_CONTAINERS = (
    *("bitfusion-client", "bitfusion-packages"),
    *(f"bitfusion-packages-{number}" for number in range(2, 8)),
)
OUR_VOLUMES = ("bitfusion-client", "bitfusion-identity")
CARRIED = (
    *("auto-management/bitfusion", "bitfusion-client/os", "bitfusion-client/version"),
    *("bitfusion-client/filter", "bitfusion.io/request", "bitfusion.io/path"),
)
CLIENT = ["/bitfusion/bin/bitfusion", "run"]


def check(one: Case, rng: Randomness, number: int = 0) -> str:
    """Check one pod; returns what happened to it. AssertionError tells what is wrong."""
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
    again = _passed(dataclasses.replace(one, pod=copy.deepcopy(result)))
    assert not isinstance(again, Refusal), f"refused at the second pass: {again.message}"
    assert difference(result, again) == [], "the second pass changes something"
    _check_disturbed(one, result, Chooser(rng))
    return outcome


def _passed(one: Case) -> Object | Refusal:
    """One pass: its patch makes its result, and nothing is written into what was given."""
    given = copy.deepcopy(one.pod)
    result = injected_pod(one.pod, one.namespace, one.settings, one.notebook)
    if not isinstance(result, Refusal):
        patch = difference(one.pod, result)
        assert bool(patch) == (result != one.pod)
        if patch:
            assert jsonpatch.apply_patch(copy.deepcopy(one.pod), copy.deepcopy(patch)) == result
    assert one.pod == given, "the pod was changed in place"
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
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    for name, ours in (("initContainers", OUR_CONTAINERS), ("volumes", OUR_VOLUMES)):
        spec[name] = [
            one for one in spec.get(name) or () if one.get("name") not in ours or one.get("image") == "x"
        ]
    given = spec.get("schedulingGates") or []
    if isinstance(given, list):
        spec["schedulingGates"] = [gate for gate in given if mapping(gate).get("name") != QUEUE_GATE]
    for container in spec["containers"]:
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
    metadata["annotations"] = foreign
    return pod


def _check_asking(one: Case, after: Object) -> None:
    spec = after["spec"]
    if one.settings.gates:
        assert [gate.get("name") for gate in spec["schedulingGates"]].count(QUEUE_GATE) == 1
        assert not text(spec.get("nodeName"))
    else:
        assert spec.get("schedulingGates") == one.pod["spec"].get("schedulingGates")
    assert after["metadata"]["annotations"][STATUS] == "injected"
    for key, value in annotations_of(one.pod).items():
        assert after["metadata"]["annotations"][key] == value or key in (one.notebook or {}) or key == STATUS
    assert spec["initContainers"][0]["name"] == "bitfusion-client"
    words = spec["initContainers"][0]["args"][1:]
    asking = {words[place]: words[place : place + 5] for place in range(0, len(words), 5)}
    assert asking
    for container in spec["containers"]:
        name = text(container.get("name"))
        if name not in asking:
            assert not size_limits_of(container)
            continue
        limits, requests = limits_of(container), requests_of(container)
        ours = [key for key in (*limits, *requests) if key.startswith("bitfusion.io/gpu") and key != UNITS]
        assert not ours, "a size is left"
        assert limits[UNITS] == asking[name][2]
        assert int(limits[UNITS]) >= 1
        mounts = [mount for mount in container["volumeMounts"] if mount["name"] in OUR_VOLUMES]
        assert len([mount for mount in mounts if mount["mountPath"] == "/bitfusion"]) == 1
        assert all(mount["readOnly"] is True for mount in mounts)
    for container in spec["initContainers"]:
        if container.get("name") in OUR_CONTAINERS and container["image"] != "x":
            assert "bitfusion.io" not in json.dumps(container["resources"])


def _check_disturbed(one: Case, result: Object, chooser: Chooser) -> None:
    """Other webhooks come in between: a further pass may be needed, one after it is empty."""
    disturbed = copy.deepcopy(result)
    chooser.disturb(disturbed)
    second = _passed(dataclasses.replace(one, pod=disturbed))
    if isinstance(second, Refusal):  # by what the other webhook has added
        assert "late-asking" in json.dumps(disturbed), second.message
        return
    _check_foreign(disturbed, second)
    _check_asking(dataclasses.replace(one, pod=disturbed), second)
    third = _passed(dataclasses.replace(one, pod=copy.deepcopy(second)))
    assert not isinstance(third, Refusal), third.message
    assert difference(second, third) == [], "the third pass changes something"


def run(seed: int, first: int, pods: int, *, progress: bool) -> Counter[str]:
    """Check that many pods; counts what happened."""
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for done in range(1, pods + 1):
        number = first + done - 1
        one = case(seed, number)
        try:
            outcomes[check(one, random.Random(f"{seed}/{number}/disturbed"), number)] += 1
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
