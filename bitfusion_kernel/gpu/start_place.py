"""Where a kernel starts, which may be long after its notebook was opened, and what must still be there then.

A plain kernel starts with its notebook. The first cell of this one may come days later: by then the folder
may have been made anew (a fresh clone, a job's scratch folder) or be gone, and so may the Python environment.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bitfusion_client.errors import BitfusionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bitfusion_client.request.gpu_request import GpuRequest


class FolderGone(BitfusionError):
    """`answered` names the folder."""

    headline = "The folder in which this kernel starts is gone."
    next_step = "make it again and run the cell again, or open the notebook from where it is now."


class EnvironmentGone(BitfusionError):
    """`answered` names the file."""

    headline = "The Python environment of this kernel is gone."
    next_step = (
        "install it again in the same place, with kubeflow-bitfusion, and run the cell again; or choose "
        "another kernel for this notebook."
    )


def enter(folder: str, asked: GpuRequest, needs: Iterable[str]) -> str:
    """Be in the folder of a kernel that is about to be started; returns its path.

    Args:
        folder: Its path when the proxy started there; empty if it was gone even then: nothing is done.
        asked: For the errors.
        needs: Files that the start takes.

    Raises:
        FolderGone: It is not there any more, under no name.
        EnvironmentGone: A file is not there.
    """
    for path in needs:
        if not os.path.exists(path):
            raise EnvironmentGone(asked, f"{path} no longer exists")
    try:
        if folder:
            os.chdir(folder)
    except OSError as error:
        if not (moved := _new_name()):
            raise FolderGone(asked, f"{folder}: {error.strerror}") from None
        return moved
    return folder


def _new_name() -> str:
    """Where a folder that was only renamed is now: this process is still in it."""
    try:
        return os.getcwd()
    except OSError:
        return ""
