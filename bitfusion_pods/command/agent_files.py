"""What the agent of a GPU pod is: the packages of this command as one zip, and the script that starts it."""

from __future__ import annotations

import os

from bitfusion_client.errors import ClusterUnusable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.pod import secret

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("bitfusion_client", "bitfusion_pods")
MAIN = """\
import gc
import sys

gc.set_threshold(50_000)  # as in bin/bitfusion

from bitfusion_pods.cli import main

main(sys.argv[1:])
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's own: the same files make the same bytes


def agent_files() -> dict[str, bytes]:
    """Both, by their keys in the pod's Secret. Raises ClusterUnusable."""
    return {secret.SCRIPT: agent_script(), secret.AGENT: agent_zip()}


def agent_zip() -> bytes:
    """The packages' modules, and what Python runs of them. Raises ClusterUnusable: they cannot be read."""
    import io
    import zipfile  # while a pod is made only

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        try:
            for name, text in (("__main__.py", MAIN.encode()), *_modules()):
                file.writestr(zipfile.ZipInfo(name, _EPOCH), text, zipfile.ZIP_DEFLATED)
        except OSError as error:
            raise ClusterUnusable("", f"{error.filename}: {error.strerror}") from None
    return data.getvalue()


def agent_script() -> bytes:
    """The shell script `bitfusion` of a GPU pod. Raises ClusterUnusable where it cannot be read."""
    path = os.path.join(_folder(), "bitfusion_pods", "agent", "bitfusion")
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ClusterUnusable("", f"{path}: {error.strerror}") from None


def _modules() -> Iterator[tuple[str, bytes]]:
    top = _folder()
    for package in PACKAGES:
        for folder, folders, names in os.walk(os.path.join(top, package)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with open(path, "rb") as file:
                        yield os.path.relpath(path, top), file.read()


def _folder() -> str:
    """Where the packages lie."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
