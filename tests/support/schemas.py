"""Whether an object fits Kubernetes' own schemas.

`kubernetes_validate` reads a megabyte of definitions anew for each object; here the last few are kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import kubernetes_validate
from kubernetes_validate import utils

_KEPT = 64
"""Files: that of one kind in one version has some kilobytes, one with definitions a megabyte."""

utils.schema_contents = lru_cache(_KEPT)(utils.schema_contents)
utils.all_versions = lru_cache(1)(utils.all_versions)


def validate(item: dict[str, Any], version: str = "1.34") -> None:
    """Every field is known and of its type in this version of Kubernetes.

    Raises:
        kubernetes_validate.ValidationError: It is not.
        kubernetes_validate.SchemaNotFoundError: The version does not know the kind.
    """
    kubernetes_validate.validate(item, version, strict=True)
