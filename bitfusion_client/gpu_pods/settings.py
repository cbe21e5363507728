"""`PodSettings`: what an admin decides about GPU pods, from ``pods.yaml`` and from the JSON in each pod.

The injector reads the file and puts it as JSON into notebooks (`pod_contract.SETTINGS_FILE`), where
`bitfusion run` reads it and puts it into the Secrets of GPU pods. Pure, and bounded in every list and text: a
pod's file is written by the injector, but a user may run the client with another one.
"""

from __future__ import annotations

import json

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.gpu_pods.fragments import RESERVED, RESERVED_LABELS, parse_pod_fragment
from bitfusion_client.gpu_pods.size_rules import DEFAULT_RULES, SizeRule, parse_rules
from bitfusion_client.gpu_pods.values import (
    LONGEST_KEY,
    Place,
    boolean,
    fields,
    image,
    items,
    line,
    name,
    quantity,
    whole,
)
from bitfusion_client.kubernetes.image_references import LONGEST_IMAGE
from bitfusion_client.kubernetes.names import GROUP
from bitfusion_client.request.durations import parse_duration

if TYPE_CHECKING:
    from typing import Any

    from bitfusion_client.gpu_pods.fragments import Fragment

DEFAULT_PORT = 8778
ANY_NAMESPACE = "*"

MOST_QUEUES = 2000
MOST_IMAGES = 200
MOST_LABELS = 50
MOST_CLASSES = 50
MOST_SECONDS = 100 * 24 * 3600
LONGEST_TEXT = 1 << 16  # characters of all of it as JSON: a variable of a container has it

FIELDS = ("rules", "port", "deadline", "cpu", "memory", "queues", "images", "labels", "rwo_anywhere", "pod")
IMAGE_FIELDS = ("image", "gpu_image")
ALLOWED_DEADLINE = "must be a duration from 1m to 2400h, such as 12h"
ALLOWED_ANYWHERE = "must be true, false, or a list of storage classes"
ALLOWED_JSON = "must be settings for GPU pods as JSON, as the injector writes them"
TOO_LONG = f"is too long: as JSON it may have at most {LONGEST_TEXT} characters"
ALLOWED_PATTERN = "must be a pattern like team/notebook:v2*, without spaces and without a digest"


@dataclass(frozen=True, slots=True)
class ImageTwin:
    """Images, by a shell pattern as in `client_images`, and the image with CUDA of their GPU pods."""

    image: str
    gpu_image: str


@dataclass(frozen=True, slots=True)
class PodSettings:
    """All of it. Immutable; `parse_settings` makes it.

    Attributes:
        rules: The sizes that there are, first match first; field ``rules``.
        port: Where the agent of a GPU pod listens; field ``port``.
        deadline_s: The longest life of a GPU pod in seconds, None for none; field ``deadline``, ``12h``.
        cpu: Requested and allowed for each GPU of a pod, whole or a share; empty: the notebook's own.
        memory: The same of memory.
        queues: Pairs of namespace (`ANY_NAMESPACE` for all others) and queue of Kueue's; field ``queues``, an
            object.
        images: GPU twins of images, first match first; field ``images``, a list of ``{image, gpu_image}``.
        labels: Labels that a GPU pod takes over from the notebook's pod, by name. Usually none: a Service
            finds a notebook by its labels. Those by which PodDefaults choose belong here.
        rwo_anywhere: Whether claims that are ReadWriteOnce are mounted on several nodes all the same, as on
            NFS; or the names of the storage classes whose claims are; field ``rwo_anywhere``.
        pod: Fragment that all GPU pods get: ``nodeSelector``, ``tolerations``, ``priorityClassName``,
            ``runtimeClassName``, ``schedulerName`` and what else `fragments` allows.
    """

    rules: tuple[SizeRule, ...] = DEFAULT_RULES
    port: int = DEFAULT_PORT
    deadline_s: int | None = None
    cpu: str = ""
    memory: str = ""
    queues: tuple[tuple[str, str], ...] = ()
    images: tuple[ImageTwin, ...] = ()
    labels: tuple[str, ...] = ()
    rwo_anywhere: bool | tuple[str, ...] = False
    pod: Fragment | None = None

    def queue_of(self, namespace: str) -> str:
        """The queue of Kueue's in which GPU pods of a namespace wait; empty for none."""
        queues = dict(self.queues)
        return queues.get(namespace, queues.get(ANY_NAMESPACE, ""))

    def gpu_image_of(self, reference: str) -> str:
        """The GPU twin of an image; empty where it has none and is used itself."""
        if not self.images:
            return ""
        from fnmatch import fnmatchcase  # few clusters have twins

        plain = reference.partition("@")[0][:LONGEST_IMAGE]
        for twin in self.images:
            if fnmatchcase(plain, twin.image) or fnmatchcase(plain, f"*/{twin.image}"):
                return twin.gpu_image
        return ""

    def mounts_anywhere(self, storage_class: str) -> bool:
        """Whether a ReadWriteOnce claim of this storage class is mounted on several nodes all the same."""
        if isinstance(self.rwo_anywhere, bool):
            return self.rwo_anywhere
        return storage_class in self.rwo_anywhere

    def to_json(self) -> dict[str, Any]:
        """What `parse_settings` reads as the same settings."""
        answer: dict[str, Any] = {"rules": [rule.to_json() for rule in self.rules], "port": self.port}
        if self.deadline_s is not None:
            answer["deadline"] = self.deadline_s
        answer |= {each: getattr(self, each) for each in ("cpu", "memory", "pod") if getattr(self, each)}
        if self.queues:
            answer["queues"] = dict(self.queues)
        if self.images:
            answer["images"] = [{"image": twin.image, "gpu_image": twin.gpu_image} for twin in self.images]
        if self.labels:
            answer["labels"] = list(self.labels)
        if self.rwo_anywhere:
            anywhere = self.rwo_anywhere
            answer["rwo_anywhere"] = anywhere if isinstance(anywhere, bool) else list(anywhere)
        return answer

    def to_text(self) -> str:
        """One line of JSON, for `pod_contract.SETTINGS_FILE`."""
        return json.dumps(self.to_json(), separators=(",", ":"))


DEFAULT_SETTINGS = PodSettings()


def parse_settings(data: object, source: str = "") -> PodSettings:
    """The settings of a ``pods.yaml``, as YAML or JSON reads it; the defaults for an empty one.

    Args:
        data: Of any shape.
        source: Where it comes from, for the message of an error.

    Raises:
        WrongSetting: Names the field, its value, and what is allowed.
    """
    root = Place("", source)
    given = fields(data, root, FIELDS)
    settings = PodSettings(
        rules=parse_rules(given.get("rules"), root.field("rules")),
        port=whole(given.get("port", DEFAULT_PORT), root.field("port"), 1024, 65535),
        deadline_s=_deadline(given.get("deadline"), root.field("deadline")),
        cpu=quantity(given["cpu"], root.field("cpu"), "4 or 500m") if "cpu" in given else "",
        memory=quantity(given["memory"], root.field("memory"), "16Gi") if "memory" in given else "",
        queues=_queues(given.get("queues"), root.field("queues")),
        images=_images(given.get("images"), root.field("images")),
        labels=_labels(given.get("labels"), root.field("labels")),
        rwo_anywhere=_anywhere(given.get("rwo_anywhere", False), root.field("rwo_anywhere")),
        pod=parse_pod_fragment(given.get("pod"), root.field("pod"), numbers=False) or None,
    )
    if len(settings.to_text()) > LONGEST_TEXT:
        raise root.wrong("…", TOO_LONG)
    return settings


def settings_from_text(text: str, source: str = "") -> PodSettings:
    """The settings in a pod's file; the defaults for an empty one. Raises WrongSetting."""
    if not text.strip():
        return DEFAULT_SETTINGS
    if len(text) > LONGEST_TEXT:
        raise Place("", source).wrong("…", TOO_LONG)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Place("", source).wrong(text, ALLOWED_JSON) from None
    return parse_settings(data, source)


def _deadline(value: object, place: Place) -> int | None:
    if value is None:
        return None
    seconds = float(value) if isinstance(value, int) and not isinstance(value, bool) and value < 1e9 else 0.0
    if isinstance(value, str):
        try:
            seconds = parse_duration(value)
        except InvalidRequest:
            seconds = 0.0
    if not 60 <= seconds <= MOST_SECONDS:
        raise place.wrong(value, ALLOWED_DEADLINE)
    return int(seconds)


def _queues(value: object, place: Place) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MOST_QUEUES:
        raise place.wrong(value, f"must have at most {MOST_QUEUES} namespaces, each with its queue")
    for namespace in value:
        if namespace != ANY_NAMESPACE:
            name(namespace, place)
    return tuple((namespace, name(queue, place.field(namespace))) for namespace, queue in value.items())


def _images(value: object, place: Place) -> tuple[ImageTwin, ...]:
    twins = []
    for index, each in enumerate(items(value, place, MOST_IMAGES, "images")):
        spot = place.item(index)
        given = fields(each, spot, IMAGE_FIELDS)
        pattern = image(given.get("image"), spot.field("image"))
        if "@" in pattern:
            raise spot.field("image").wrong(pattern, ALLOWED_PATTERN)
        twins.append(ImageTwin(pattern, image(given.get("gpu_image"), spot.field("gpu_image"))))
    return tuple(twins)


def _labels(value: object, place: Place) -> tuple[str, ...]:
    names = []
    for index, each in enumerate(items(value, place, MOST_LABELS, "labels")):
        label = line(each, place.item(index), LONGEST_KEY)
        if label in RESERVED_LABELS or label.startswith(GROUP):
            raise place.item(index).wrong(label, RESERVED)
        names.append(label)
    return tuple(names)


def _anywhere(value: object, place: Place) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return boolean(value, place)
    if not isinstance(value, (list, tuple)):
        raise place.wrong(value, ALLOWED_ANYWHERE)
    classes = enumerate(items(value, place, MOST_CLASSES, "storage classes"))
    return tuple(line(each, place.item(index), LONGEST_KEY) for index, each in classes) or False
