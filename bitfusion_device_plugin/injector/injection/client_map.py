"""Which client a pod gets: an ordered list of rules by operating system and version, which an admin edits.

The annotations ``bitfusion-client/os`` and ``bitfusion-client/version`` name them, as for VMware's injector;
``bitfusion_client.kubernetes.client_images`` chooses them for images. Without rules everybody gets the
stand-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitfusion_client.errors import InvalidRequest, WrongSetting
from bitfusion_client.kubernetes.annotations import shortened
from bitfusion_client.kubernetes.client_images import ALLOWED_WORD, is_client_word
from bitfusion_client.kubernetes.names import ANNOTATION_CLIENT_OS, ANNOTATION_CLIENT_VERSION
from bitfusion_client.one_line import one_line
from bitfusion_client.pod.pod_contract import CLIENT_IMAGE, KINDS, PODS, STAND_IN, VMWARE

ANY = "*"
LONGEST_IMAGE = 512  # characters of a reference
MOST_RULES = 1000
LONGEST_LIST = 160  # characters of all clients, within a message

FIELDS = ("os", "version", "kind", "image", "package")
ALLOWED_LIST = f"must be a list of at most {MOST_RULES} items, each with {', '.join(FIELDS)}"
ALLOWED_ITEM = "must have os, version and kind, may have image and package, and nothing else"
WORD = ALLOWED_WORD.removeprefix("must be ")
ALLOWED_CLIENT_WORD = f'must be "{ANY}" for any, or a word of {WORD}'
ALLOWED_KIND = f"must be {STAND_IN}, {PODS} or {VMWARE}"
ALLOWED_IMAGE = f"must be an image reference without spaces, at most {LONGEST_IMAGE} characters"
NEEDS_IMAGE = f"is missing: kind {VMWARE} needs the image that holds the packages"
ALLOWED_PACKAGE = f"must be the package's folder in the image: {WORD}; kind {VMWARE} needs it"
NO_PACKAGE = f"is only for kind {VMWARE}; leave it out"


@dataclass(frozen=True, slots=True)
class ClientRule:
    """One client, and for whom.

    Attributes:
        os: Value of the annotation ``bitfusion-client/os``; `ANY` matches each.
        version: Value of the annotation ``bitfusion-client/version``; `ANY` matches each.
        kind: One of `KINDS`.
        image: With starter and client; of VMware's the image with its packages.
        package: VMware's: the package's folder in that image; empty for the others.
    """

    os: str
    version: str
    kind: str
    image: str
    package: str = ""


def default_clients(image: str = CLIENT_IMAGE) -> tuple[ClientRule, ...]:
    """The rules where an administrator has written none."""
    return (ClientRule(ANY, ANY, STAND_IN, image),)


DEFAULT_CLIENTS = default_clients()


def parse_clients(data: object, source: str = "", image: str = CLIENT_IMAGE) -> tuple[ClientRule, ...]:
    """The rules of an administrator's ``clients.yaml``; `default_clients` for an empty file.

    Args:
        data: ``[{os, version, kind, image, package}, …]`` as YAML reads it; None for an empty file.
        source: The path of the file, for the message of an error.
        image: Of a rule that names none.

    Raises:
        WrongSetting: Names the item and its field.
    """
    if data is None:
        return default_clients(image)
    if not isinstance(data, (list, tuple)) or not data or len(data) > MOST_RULES:
        raise WrongSetting("clients", data, ALLOWED_LIST, source)
    return tuple(_rule(item, f"clients[{place}]", source, image) for place, item in enumerate(data))


def client_for(os: str, version: str, rules: Sequence[ClientRule]) -> ClientRule:
    """The first rule that matches both words. Raises InvalidRequest that says which clients there are."""
    for rule in rules:
        if rule.os in (ANY, os) and rule.version in (ANY, version):
            return rule
    known = dict.fromkeys(f"{rule.os} {rule.version}" for rule in rules)
    allowed = "this cluster has clients for " + ", ".join(known)
    spelled = f"{ANNOTATION_CLIENT_OS} and {ANNOTATION_CLIENT_VERSION}"
    raise InvalidRequest(
        ANNOTATION_CLIENT_OS,
        f"{shortened(os)} {shortened(version)}",
        one_line(allowed, LONGEST_LIST),
        spelled,
    )


def _rule(item: object, place: str, source: str, default_image: str) -> ClientRule:
    if not isinstance(item, dict) or not {"os", "version", "kind"} <= set(item) <= set(FIELDS):
        raise WrongSetting(place, item, ALLOWED_ITEM, source)
    words = []
    for name in ("os", "version"):
        text = _text(item[name])
        if text != ANY and not is_client_word(text):
            raise WrongSetting(f"{place}.{name}", item[name], ALLOWED_CLIENT_WORD, source)
        words.append(text)
    kind = item["kind"]
    if kind not in KINDS:
        raise WrongSetting(f"{place}.kind", kind, ALLOWED_KIND, source)
    image, package = item.get("image"), item.get("package")
    if image is None:
        if kind == VMWARE:
            raise WrongSetting(f"{place}.image", image, NEEDS_IMAGE, source)
        image = default_image
    if not _is_image(image):
        raise WrongSetting(f"{place}.image", image, ALLOWED_IMAGE, source)
    if kind != VMWARE and package not in (None, ""):
        raise WrongSetting(f"{place}.package", package, NO_PACKAGE, source)
    if kind == VMWARE and not (isinstance(package, str) and is_client_word(package)):
        raise WrongSetting(f"{place}.package", package, ALLOWED_PACKAGE, source)
    return ClientRule(words[0], words[1], kind, image, package or "")


def _text(value: object) -> str:
    # YAML reads 454 as a number
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def _is_image(image: object) -> bool:
    if not isinstance(image, str) or not 1 <= len(image) <= LONGEST_IMAGE:
        return False
    return image.isascii() and image.isprintable() and " " not in image
