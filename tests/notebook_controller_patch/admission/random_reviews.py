"""Random reviews of Notebooks and StatefulSets, and a digest of what is answered to them.

Standard library only, and of randomness only ``random()``: the same seed and number give the same review
with every Python and every hash seed. ``python -m tests.notebook_controller_patch.admission.random_reviews
--reviews 500`` prints the digest of the answers.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_client.kubernetes.names import LABEL_ADMISSION
from bitfusion_cluster.webhooks.review import Review, Verdict, read_review
from notebook_controller_patch.admission.notebook import admit_notebook
from notebook_controller_patch.admission.statefulset import admit_statefulset, needs_owner
from tests.notebook_controller_patch.admission.reviews import (
    AMOUNT,
    CONTROLLER,
    IMAGE,
    LABEL,
    MANAGEMENT,
    MEMORY,
    OLD_IMAGE,
    OS,
    OURS,
    PENDING,
    PERCENT,
    REQUEST,
    STOPPED,
    VERSION,
    answered,
    body,
    notebook,
    review,
    statefulset,
)

T = TypeVar("T")

FOREIGN_KEYS = (
    "a/b",
    "a~b",
    "~0/~1",
    "~",
    "/",
    "//",
    "",
    "a b",
    "ü/ñ~",
    "日本/語",
    "😀/~0",
    "kubectl.kubernetes.io/last-applied-configuration",
    "notebooks.kubeflow.org/server-type",
    "notebooks.kubeflow.org/last-activity",
    "sidecar.istio.io/inject",
    "poddefault.admission.kubeflow.org/poddefault-x",
    STOPPED,
    "bitfusion.io/gpu",
    "bitfusion.io/retry",
    "xauto-management/bitfusion",
    "auto-management",
    "bitfusion-client",
    "bitfusion-clients/os",
    "example.org/" + "k" * 240,
)
VALUES = (
    "",
    "true",
    "x",
    "ü 日本 😀",
    "a/b~1",
    "-n 1",
    '{"a": [1, null]}',
    "y" * 3000,
    "zwei\nZeilen\t",
    "null",
)
TOO_LONG = "-n 1" + " " * 4093
OURS_VALUES = {
    MANAGEMENT: ("injection", "none", "all", ""),
    OS: ("ubuntu22", "ubuntu20", "centos8", "", "../../etc"),
    VERSION: ("454", "450", "401", ""),
    REQUEST: (
        *("-n 1", "-n 2 -p 0.5", "-m 8Gi", '{"gpus": 1}', "", "  ", "-n 0", "nonsense", "-p 2", "'", "{"),
        TOO_LONG,
    ),
    "bitfusion-client/filter": ("a=b", "a=b c=d", "", "nonsense", "=", "ü=ü"),
    "auto-management/status": ("injected", ""),
    "auto-management/a~b/c": ("x",),
    PENDING: ("1 GPU instead of 2 GPUs, from the next start", ""),
}
LABEL_KEYS = ("app", "access-ml-pipeline", "a~b/c", "ü")
RIGHT_SIZES: tuple[dict[str, Any], ...] = (
    {AMOUNT: "1"},
    {AMOUNT: 2},
    {AMOUNT: "4", PERCENT: "50"},
    {AMOUNT: "1", MEMORY: "8Gi"},
    {AMOUNT: 1, MEMORY: "8000M", "nvidia.com/gpu": "1"},
    {"bitfusion.io/gpu-50": "1"},
    {"bitfusion.io/gpu-8gib": "2"},
    {"bitfusion.io/gpu-8000mib": 1},
)
WRONG_SIZES: tuple[dict[str, Any], ...] = (
    {AMOUNT: "0"},
    {AMOUNT: "0.5"},
    {AMOUNT: "-1"},
    {AMOUNT: "two"},
    {AMOUNT: 1.5},
    {AMOUNT: "9" * 70},
    {AMOUNT: "1", PERCENT: "0"},
    {AMOUNT: "1", PERCENT: "101"},
    {AMOUNT: "1", PERCENT: "50", MEMORY: "8Gi"},
    {PERCENT: "50"},
    {"bitfusion.io/gpu-half": "1"},
    {"bitfusion.io/gpu-": "1"},
    {"bitfusion.io/gpu-0": "1"},
    {"bitfusion.io/gpu-ü": "1"},
    {"bitfusion.io/gpu-50": "1", "bitfusion.io/gpu-8gib": "1"},
    {"bitfusion.io/gpu": "150"},
    {"bitfusion.io/gpus": "1"},
    {"bitfusion.io/gpu_50": "1"},
    {"bitfusion.io/GPU-50": 1},
)
OTHER_LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"nvidia.com/gpu": "1"},
    {"bitfusion.io/fpga": "150"},
    {"cpu": 2},
)
ODD: tuple[Any, ...] = (None, [], {}, "", "text", 0, 1.5, True, [None], {"": None}, ["a", {"b": 1}], "\ud800")
IMAGES = (IMAGE, OLD_IMAGE, "team/x", "", "registry.example.org:5000/a/b:c@sha256:00", "ü")


class Randomness(Protocol):
    """What is needed of `random.Random`; Hypothesis has one that can be shrunk."""

    def random(self) -> float:
        """A number from 0 up to 1."""


@dataclass(frozen=True, slots=True)
class Case:
    """A review, and the annotations of the owner as a look-up would give them (None: unknown)."""

    review: dict[str, Any]
    owner: dict[str, Any] | None

    @property
    def is_notebook(self) -> bool:
        return bool(self.review["request"]["kind"]["kind"] == "Notebook")


def case(seed: int, number: int) -> Case:
    """The review with this number."""
    return random_case(random.Random(f"{seed}/{number}"))


def random_case(rng: Randomness) -> Case:
    """A review made of common, rare and impossible parts."""
    chooser = _Chooser(rng)
    if chooser.chance(0.5):
        new = chooser.notebook()
        old = chooser.former(new) if chooser.chance(0.5) else None
        owner = None
    else:
        new = chooser.statefulset()
        old = chooser.former_statefulset(new) if chooser.chance(0.7) else None
        owner = chooser.annotations() if chooser.chance(0.85) else None
    operation = "UPDATE" if old is not None else "CREATE"
    if chooser.chance(0.02):
        operation = chooser.pick(("DELETE", "CONNECT", "UPDATE", "CREATE"))
    fields: dict[str, Any] = {"dryRun": chooser.chance(0.3)}
    if chooser.chance(0.3):
        version = chooser.pick(("v1beta1", "v1alpha1"))
        fields["requestKind"] = {"group": "kubeflow.org", "version": version, "kind": "Notebook"}
    if chooser.chance(0.03):
        fields["subResource"] = chooser.pick(("status", "scale"))
    user = chooser.pick((CONTROLLER, CONTROLLER, CONTROLLER, "ann@example.org", OURS, ""))
    return Case(review(new, old, operation, user, **fields), owner)


def decide(data: dict[str, Any], owner: dict[str, Any] | None) -> tuple[Review, Verdict]:
    """What the server decides on a review, read by the standard library."""
    parsed = read_review(json.loads(body(data)))
    if parsed.kind == "Notebook":
        return parsed, admit_notebook(parsed, DEFAULT_RULES)
    known = owner if needs_owner(parsed, OURS) is not None else None
    return parsed, admit_statefulset(parsed, known, OURS)


class _Chooser:
    """Draws parts of objects."""

    def __init__(self, rng: Randomness) -> None:
        self._random = rng.random

    def chance(self, share: float) -> bool:
        # 0, which Hypothesis shrinks to, is no: loops end and rare things are left out
        return self._random() >= 1 - share

    def pick(self, values: Sequence[T]) -> T:
        return values[int(self._random() * len(values))]

    def notebook(self) -> dict[str, Any]:
        made = notebook(
            annotations=self.annotations(), image=self.pick(IMAGES), name=self.pick(("nb", "ü-1"))
        )
        labels = made["metadata"]["labels"]
        if self.chance(0.4):
            labels[LABEL] = self.pick(("true", "true", "true", "false", ""))
        if self.chance(0.03):
            labels[LABEL_ADMISSION] = self.pick(("ignore", "ignore", "please"))
        if self.chance(0.3):
            labels[self.pick(LABEL_KEYS)] = self.pick(("true", "", "x"))
        self.fill_pod(made["spec"]["template"]["spec"])
        if self.chance(0.03):
            made["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
        self.spoil(made, made["metadata"], made["spec"]["template"])
        return made

    def statefulset(self) -> dict[str, Any]:
        annotations = self.annotations() if self.chance(0.7) else None
        made = statefulset(
            annotations=annotations, replicas=self.pick((0, 0, 1, 1, None, 2)), owned=self.chance(0.9)
        )
        template = made["spec"]["template"]
        self.fill_pod(template["spec"])
        if self.chance(0.03):
            template["metadata"]["labels"][LABEL_ADMISSION] = "ignore"
        if self.chance(0.05):
            template["metadata"] = None
        if self.chance(0.03):
            made["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
        self.spoil(made, template["metadata"], template)
        return made

    def annotations(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while self.chance(0.6):
            made[self.pick(FOREIGN_KEYS)] = self.pick(VALUES)
        while self.chance(0.6):
            name = self.pick(tuple(OURS_VALUES))
            made[name] = self.pick(OURS_VALUES[name]) if self.chance(0.95) else self.pick(VALUES)
        return made

    def sizes(self) -> dict[str, Any]:
        flavour = self._random()
        if flavour < 0.5:
            return self.pick(RIGHT_SIZES)
        return self.pick(WRONG_SIZES) if flavour < 0.65 else self.pick(OTHER_LIMITS)

    def fill_pod(self, pod: dict[str, Any]) -> None:
        main = pod["containers"][0]
        main["resources"]["limits"].update(self.sizes())
        if self.chance(0.1):
            main["resources"]["requests"].update(
                self.sizes() if self.chance(0.4) else main["resources"]["limits"]
            )
        if self.chance(0.1):
            del main["resources"]
        while self.chance(0.25):
            side: dict[str, Any] = {"name": f"side-{len(pod['containers'])}", "image": self.pick(IMAGES)}
            if self.chance(0.4):
                side["resources"] = {
                    "limits": dict(self.sizes() if self.chance(0.3) else self.pick(OTHER_LIMITS))
                }
            pod["containers"].insert(int(self._random() * 2), side)
        if self.chance(0.15):
            init: dict[str, Any] = {"name": "init", "image": "busybox"}
            if self.chance(0.3):
                init["resources"] = {"limits": dict(self.sizes())}
            pod["initContainers"] = [init]

    def spoil(self, made: dict[str, Any], metadata: Any, template: dict[str, Any]) -> None:
        """Sometimes put something in a place that the API, or a schema without rules, might let through."""
        if not self.chance(0.12):
            return
        places: list[tuple[dict[str, Any], str]] = [
            (made, "metadata"),
            (made, "spec"),
            (made["spec"], "template"),
            (made["spec"], "replicas"),
            (template, "spec"),
            (template["spec"], "containers"),
            (template["spec"], "initContainers"),
            (template["spec"]["containers"][0], "image"),
            (template["spec"]["containers"][0], "name"),
            (template["spec"]["containers"][0], "resources"),
            (made["metadata"], "ownerReferences"),
        ]
        resources = template["spec"]["containers"][0].get("resources")
        if isinstance(resources, dict):
            places += [(resources, "limits"), (resources["limits"], AMOUNT)]
        if isinstance(metadata, dict):
            places += [(metadata, "annotations"), (metadata, "labels")] * 3
            annotations = metadata.get("annotations")
            if isinstance(annotations, dict):
                places += [(annotations, REQUEST), (annotations, OS), (annotations, "a/b")]
        holder, key = self.pick(places)
        if self.chance(0.2):
            holder.pop(key, None)
        else:
            holder[key] = copy.deepcopy(self.pick(ODD))

    def former(self, new: dict[str, Any]) -> dict[str, Any]:
        """What an object may have been before: the same, or another one of its kind."""
        if self.chance(0.3):
            return self.notebook()
        old = copy.deepcopy(new)
        metadata = old.get("metadata")
        if isinstance(metadata, dict) and self.chance(0.5):
            metadata["annotations"] = self.annotations()
        return old

    def former_statefulset(self, new: dict[str, Any]) -> dict[str, Any]:
        if self.chance(0.3):
            return self.statefulset()
        old = copy.deepcopy(new)
        spec = old.get("spec")
        if isinstance(spec, dict):
            spec["replicas"] = self.pick((0, 1, 1, 1, None))
            template = spec.get("template")
            if isinstance(template, dict) and isinstance(template.get("metadata"), dict) and self.chance(0.6):
                template["metadata"]["annotations"] = self.annotations()
        return old


def digest(seed: int, reviews: int) -> str:
    """SHA-256 of the answers to the first `reviews` reviews, byte by byte."""
    total = hashlib.sha256()
    for number in range(reviews):
        one = case(seed, number)
        parsed, verdict = decide(one.review, one.owner)
        total.update(json.dumps(answered(parsed, verdict)).encode() + b"\n")
    return total.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a digest of the answers to random reviews.")
    parser.add_argument("--reviews", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(digest(options.seed, options.reviews))


if __name__ == "__main__":
    main()
