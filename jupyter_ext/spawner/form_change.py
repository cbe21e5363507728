"""The form's file in a cluster: sizes and an image put in, and what was there before given back. Pure.

What was there before is kept beside the file, as text (`Before.to_text`). While nobody else has changed the
file since, it comes back byte for byte. Otherwise only what is ours is taken out of the file as it is now, so
that others' changes stay.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from dataclasses import dataclass

from jupyter_ext.spawner.form_config import FormGpus, form_gpus, replace_gpus, without_sizes
from jupyter_ext.spawner.form_images import add_image, images_of, without_image
from jupyter_ext.spawner.sizes import SizeList
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import LARGEST_FILE, Document, parse_document

LONGEST_KEPT = 1 << 16
"""Characters of `Before.to_text`; Kubernetes takes 256 kB of annotations. A longer file is not kept."""


@dataclass(frozen=True, slots=True)
class Before:
    """What the form's file was before us.

    Attributes:
        file: The whole file; None where it is too long to be kept.
        written: The checksum of the file as we have left it.
        image: The image that we have added to its list; empty for none.
    """

    file: str | None
    written: str
    image: str

    def to_text(self) -> str:
        """What `read_before` reads as the same."""
        fields = {"written": self.written, "image": self.image}
        if self.file is not None:
            # mtime: the same bytes each time
            packed = base64.b64encode(gzip.compress(self.file.encode(), mtime=0)).decode()
            if len(packed) <= LONGEST_KEPT:
                fields["file"] = packed
        return json.dumps(fields)


@dataclass(frozen=True, slots=True)
class Changed:
    """A form's file as it is to be.

    Attributes:
        text: The file.
        before: What is to be kept beside it; None: nothing, as nothing of ours is in it.
        gpus: What its dropdown offers; None where no list of sizes was given.
        told: What is to be said of its images, in whole lines.
    """

    text: str
    before: Before | None
    gpus: FormGpus | None = None
    told: tuple[str, ...] = ()


def read_before(kept: str | None) -> Before | None:
    """What was kept; None for nothing, and for what cannot be read, as anybody may write there."""
    try:
        fields = json.loads(kept or "")
        packed, written, image = fields.get("file"), fields["written"], fields.get("image", "")
        file = None if packed is None else _unpacked(packed)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OSError,
        EOFError,
        zlib.error,
        RecursionError,
    ):
        return None
    return Before(file, str(written), str(image))


def put_in(text: str, before: Before | None, sizes: SizeList | None, image: str, source: str) -> Changed:
    """The form's file with these sizes and this image, in the place of those of an earlier call.

    Args:
        text: The file as it is.
        before: What the earlier call has kept.
        sizes: None: none are offered.
        image: For the form's list of images; empty: that stays as it is.
        source: What messages call the file.

    Raises:
        WrongFile: The file is no form's, or the change would touch more than it should.
    """
    own = give_back(text, before, source)
    existing = parse_document(own, source)
    gpus = None
    told: tuple[str, ...] = ()
    added = ""
    if sizes is not None:
        gpus = form_gpus(sizes, existing)
        existing = parse_document(replace_gpus(existing, gpus).text, source)
    if image:
        added = "" if image in images_of(existing) else image
        edited = add_image(existing, image)
        told = edited.told
        existing = parse_document(edited.edited.text, source)
    if existing.text == own:
        return Changed(own, None, gpus, told)
    return Changed(existing.text, Before(own, checksum(existing.text), added), gpus, told)


def give_back(text: str, before: Before | None, source: str) -> str:
    """The form's file without what is ours. Raises WrongFile."""
    if before is None:
        return text
    if before.file is not None and checksum(text) == before.written:
        return before.file
    existing = parse_document(text, source)
    earlier = _earlier(before, source)
    gpus = without_sizes(existing, earlier)
    if gpus is not None:
        existing = parse_document(replace_gpus(existing, gpus).text, source)
    if before.image:
        return without_image(existing, before.image).text
    return existing.text


def checksum(text: str) -> str:
    """By which a file is known again."""
    return hashlib.sha256(text.encode()).hexdigest()


def _earlier(before: Before, source: str) -> Document | None:
    try:
        return None if before.file is None else parse_document(before.file, source)
    except WrongFile:
        return None


def _unpacked(packed: str) -> str:
    """Never more than a file may have. Raises ValueError and what gzip raises."""
    unpacker = zlib.decompressobj(wbits=31)
    data = unpacker.decompress(base64.b64decode(packed, validate=True), LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE or not unpacker.eof:
        raise ValueError("too long, or cut off")
    return data.decode()
