"""Whether a text is one certificate in PEM, as it is put into an annotation of the GPU pod. Pure.

What it says is for TLS to judge. This keeps anything else out of the API, above all a key.
"""

from __future__ import annotations

from bitfusion_pods.pod.cannot_copy import NotebookUnusable

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
LONGEST = 8192  # characters; ours have some 600
LONGEST_LINE = 76
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_SEQUENCE = "M"  # of DER, tag 0x30, in base64

NO_CERTIFICATE = "the notebook's certificate, which its init container makes, is none"


def checked_certificate(pem: str) -> str:
    """The same text, with one line end behind it. Raises NotebookUnusable."""
    lines = [line.strip() for line in pem.strip().split("\n")] if len(pem) <= LONGEST else []
    inside = lines[1:-1]
    if (
        not inside
        or lines[0] != BEGIN
        or lines[-1] != END
        or inside[0][:1] != _SEQUENCE
        or not all(0 < len(line) <= LONGEST_LINE and _BASE64.issuperset(line) for line in inside)
    ):
        raise NotebookUnusable("", NO_CERTIFICATE)
    return "\n".join(lines) + "\n"
