"""Which Bitfusion client fits a notebook's image: an ordered list of rules that an administrator can extend.

VMware's injector chooses the client by the annotations ``bitfusion-client/os`` and
``bitfusion-client/version``. Kubeflow's own images are Ubuntu 20.04 up to 1.7 and 22.04 from 1.8 on. Client
4.5.4 is the only one for 22.04, 4.5.0 the last one for 20.04.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache

from bitfusion_client.errors import WrongSetting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Characters of registry, name and tag; registries accept 255 + 128 at most. The time of matching grows with
# the square of the length, and anybody may write an image.
LONGEST_REFERENCE = 512
LONGEST = 63  # characters of an os or a version, which become parts of a path in the pod

# What the image may choose: any client, or those in the list of VMware's injector (its last version), which
# refuses pods that name another one.
ANY, VMWARE = "any", "vmware"
CLIENT_LISTS = (ANY, VMWARE)
VMWARE_OS = ("ubuntu18", "ubuntu20", "centos7", "centos8")
VMWARE_VERSIONS = ("401", "450")

ALLOWED_LIST = "must be a list of items, each with image, os and version"
ALLOWED_ITEM = "must have image, os and version, such as {image: 'team/*:v2*', os: ubuntu22, version: 454}"
ALLOWED_IMAGE = "must be a pattern like team/notebook:v2*, without spaces and without a digest"
ALLOWED_VMWARE = (
    f"VMware's injector has no such client; os is one of {', '.join(VMWARE_OS)}, version one of "
    f"{', '.join(VMWARE_VERSIONS)}"
)
ALLOWED_WORD = f"must be letters, digits, dots, - or _, at most {LONGEST}"


@dataclass(frozen=True, slots=True)
class ImageRule:
    """Images and the client for them.

    Attributes:
        image: A shell pattern for references without their digest; ``*`` also matches ``/``. A registry or
            the prefix of a mirror may precede what it matches.
        client_os: Value of the annotation ``bitfusion-client/os``.
        client_version: Value of the annotation ``bitfusion-client/version``.
    """

    image: str
    client_os: str
    client_version: str


DEFAULT_RULES = (
    # Kubeflow 1.4 and 1.5, whatever the tag
    ImageRule("j1r0q0g6/notebooks/notebook-servers/*", "ubuntu20", "450"),
    ImageRule("kubeflownotebookswg/*:v1.6*", "ubuntu20", "450"),
    ImageRule("kubeflownotebookswg/*:v1.7*", "ubuntu20", "450"),
    # 1.8 to 1.10, and later
    ImageRule("kubeflownotebookswg/*", "ubuntu22", "454"),
    ImageRule("ghcr.io/kubeflow/*/notebook-servers/*", "ubuntu22", "454"),
    ImageRule("*", "ubuntu22", "454"),
)


NEAREST_OF_VMWARE = ("ubuntu20", "450")  # to ubuntu22 and 454, all that the defaults name beyond its list


def default_rules(clients: str = ANY) -> tuple[ImageRule, ...]:
    """The built-in rules; with `VMWARE` those for Ubuntu 22.04 name the nearest client that its list has."""
    if clients != VMWARE:
        return DEFAULT_RULES
    return tuple(
        rule if is_of_vmware(rule) else ImageRule(rule.image, *NEAREST_OF_VMWARE) for rule in DEFAULT_RULES
    )


def is_of_vmware(rule: ImageRule) -> bool:
    """Whether VMware's injector has the client that a rule names."""
    return rule.client_os in VMWARE_OS and rule.client_version in VMWARE_VERSIONS


def parse_image_rules(data: object, source: str = "", clients: str = ANY) -> tuple[ImageRule, ...]:
    """The rules of an administrator's file, followed by `default_rules`.

    Args:
        data: ``[{image, os, version}, …]`` as YAML reads it; None for an empty file.
        source: The path of the file, for the message of an error.
        clients: One of `CLIENT_LISTS`: what a rule may name.

    Raises:
        WrongSetting: Names the item and its field.
    """
    if data is None:
        return default_rules(clients)
    if not isinstance(data, (list, tuple)):
        raise WrongSetting("images", data, ALLOWED_LIST, source)
    own = tuple(_rule(item, f"images[{place}]", source) for place, item in enumerate(data))
    for place, rule in enumerate(own):
        if clients == VMWARE and not is_of_vmware(rule):
            named = f"{rule.client_os} {rule.client_version}"
            raise WrongSetting(f"images[{place}]", named, ALLOWED_VMWARE, source)
    return own + default_rules(clients)


def client_for_image(image: object, rules: Sequence[ImageRule] = DEFAULT_RULES) -> ImageRule:
    """The first rule whose pattern the image matches; the last default rule if none does."""
    reference = image.partition("@")[0] if isinstance(image, str) else ""
    if len(reference) > LONGEST_REFERENCE:
        reference = ""
    for rule in rules:
        if _matches(rule.image)(reference):
            return rule
    return DEFAULT_RULES[-1]


def is_client_word(text: str) -> bool:
    """Whether a text may be an os or a version of a client. They become parts of a path in the pod."""
    plain = text[: LONGEST + 1].replace(".", "").replace("-", "").replace("_", "")
    return len(text) <= LONGEST and plain.isascii() and plain.isalnum()


@lru_cache(maxsize=1024)  # admission asks for every Notebook; nobody writes so many rules
def _matches(pattern: str) -> Callable[[str], object]:
    return re.compile("(?:.*/)?" + translate(pattern), re.DOTALL).match


def _rule(item: object, place: str, source: str) -> ImageRule:
    if not isinstance(item, dict) or set(item) != {"image", "os", "version"}:
        raise WrongSetting(place, item, ALLOWED_ITEM, source)
    image = item["image"]
    if not isinstance(image, str) or not image or not image.isprintable() or set(" @") & set(image):
        raise WrongSetting(place + ".image", image, ALLOWED_IMAGE, source)
    words = []
    for name in ("os", "version"):
        value = item[name]
        # YAML reads 454 as a number.
        text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        if not is_client_word(text):
            raise WrongSetting(f"{place}.{name}", value, ALLOWED_WORD, source)
        words.append(text)
    return ImageRule(image, words[0], words[1])
