"""Why no GPU pod can be made beside a notebook, in words; and the copies of what is taken over from it."""

from __future__ import annotations

from bitfusion_client.errors import NeverSatisfiable
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

DEEPEST = 60  # levels; no part of a pod has half as many


class NotebookUnusable(NeverSatisfiable):
    """The notebook's pod is not as the pods are of which others can be made."""

    headline = "No GPU pod can be created for this notebook."
    next_step = "stop the notebook and start it again; if that does not help, ask your administrator."


class FilesElsewhere(NeverSatisfiable):
    """The notebook's files cannot be mounted where a GPU is."""

    headline = "No GPU pod can access the files of this notebook."
    next_step = (
        "keep the files on a claim that is ReadWriteMany; or run the notebook itself on a GPU node; or, if "
        "several nodes can mount the storage, as with NFS, ask your administrator to set rwo_anywhere."
    )


def copy_of(value: Any, depth: int = 0) -> Any:
    """A copy of JSON values that shares nothing. Raises NotebookUnusable for what is no such value."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if depth < DEEPEST:
        if isinstance(value, dict):
            return {str(key): copy_of(each, depth + 1) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [copy_of(each, depth + 1) for each in value]
    raise NotebookUnusable(
        "", "the API returned something about the notebook's pod that does not belong to a pod"
    )
