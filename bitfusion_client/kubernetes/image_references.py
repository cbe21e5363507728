"""References of images that people write: in a Notebook's annotation, in an admin's settings. Pure."""

from __future__ import annotations

LONGEST_IMAGE = 512  # characters of a reference
ALLOWED_IMAGE = f"must be an image reference without spaces, at most {LONGEST_IMAGE} characters"


def is_image(text: object) -> bool:
    """Whether it may be the reference of an image."""
    if not isinstance(text, str) or not 1 <= len(text) <= LONGEST_IMAGE:
        return False
    return text.isascii() and text.isprintable() and " " not in text
