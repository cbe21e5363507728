"""Kinds of containers and images that users have, and what each sees of the client in it.

The rows of the table in docs/reference/containers.md. `kind_pods` makes a pod of each on a node and looks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.base_images import PYTHON_IMAGE, base_image
from tests.cluster.image_builder import build
from tests.cluster.image_files import BuiltImage
from tests.cluster.installation import NOTEBOOK_IMAGE
from tests.cluster.node import SMALL
from tests.cluster.pods import SECURITY

BY_PATH = "/bitfusion/bin/bitfusion"
OPENSHIFT = 1_000_650_000
"""The first user of a range as OpenShift gives one to each namespace."""
_IMAGE = "localhost/kubeflow-bitfusion-test/kind-"

_OWN_CLIENT = "#!/bin/sh\necho the image's own client\n"
# The words of the starter come from a Python that says it is 3.8; what it runs is read by the real one.
_OLD_PYTHON = """\
#!/usr/lib/real-python -IS
import sys
sys.version_info = (3, 8, 10)
sys.executable = "/usr/bin/python3"
while not sys.argv[0].endswith("/stand-in/bitfusion"):
    del sys.argv[0]
__file__ = sys.argv[0]
exec(compile(open(__file__).read(), __file__, "exec"))
"""
_FILES = {"own-client": _OWN_CLIENT, "old-python": _OLD_PYTHON}
_CONTAINERFILES = {
    "file": "COPY --chmod=755 own-client /usr/local/bin/bitfusion",
    "folder": 'RUN ["mkdir", "/usr/local/bin/bitfusion"]',
    "link": "COPY --chmod=755 own-client /opt/vendor/bitfusion\n"
    'RUN ["ln", "-s", "/opt/vendor/bitfusion", "/usr/local/bin/bitfusion"]',
    "dead-link": 'RUN ["ln", "-s", "/opt/vendor/bitfusion", "/usr/local/bin/bitfusion"]',
    "own-client": "COPY --chmod=755 own-client /usr/bin/bitfusion",
    "own-client-first": "COPY --chmod=755 own-client /opt/vendor/bin/bitfusion\n"
    "ENV PATH=/opt/vendor/bin:/usr/local/bin:/usr/bin:/bin",
    "no-shell": 'RUN ["rm", "/bin/sh", "/bin/bash", "/bin/dash"]',
    "venv": 'RUN ["python3", "-m", "venv", "--without-pip", "/opt/venv"]\nENV PATH=/opt/venv/bin',
    "old-python": 'RUN ["mv", "/usr/bin/python3.11", "/usr/lib/real-python"]\n'
    'RUN ["rm", "/usr/bin/python3"]\nCOPY --chmod=755 old-python /usr/bin/python3',
}
"""By name: what is added to an image with Python, some bytes each."""


def kind_images() -> list[BuiltImage]:
    """The images that the kinds need besides the project's own."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in _FILES.items():
            (Path(folder) / name).write_text(content)
        found = []
        for name, lines in _CONTAINERFILES.items():
            file = Path(folder) / f"Containerfile.{name}"
            file.write_text(f"FROM {PYTHON_IMAGE}\n{lines}\n")
            found.append(build(file, Path(folder), _image(name), base_image, say=lambda line: None))
        return found


def _image(name: str) -> str:
    return f"{_IMAGE}{name}:1"


@dataclass(frozen=True)
class Kind:
    """One row: how it differs from the first one, and what is expected of it.

    Attributes:
        image: Of its containers.
        container: Fields of each container.
        pod: Fields of the pod's spec.
        annotations: Of the pod.
        containers: The names of its containers; each asks for a size of its own.
        limits: Of each container besides its size; none: it says nothing of cpu and memory.
        size: Replaces the size.
        client: How the command is called in it.
        mounted: Whether the injector puts the command at its path.
        is_so: What a program sees that runs with the GPU: that the container is what the row says.
        version: Words of `bitfusion version`.
        refused: Words by which the API server refuses the pod.
        not_started: Words by which the kubelet says why the container cannot start.
        says: Words with which the client ends instead of running a program.
    """

    image: str = NOTEBOOK_IMAGE
    container: Mapping[str, Any] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[str, ...] = ("main",)
    limits: Mapping[str, str] = field(default_factory=lambda: {"cpu": "1", "memory": "256Mi"})
    size: Mapping[str, str] = field(default_factory=dict)
    client: str = "bitfusion"
    mounted: bool = True
    is_so: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    refused: str = ""
    not_started: str = ""
    says: str = ""


def _volume(path: str, **source: Any) -> dict[str, Any]:
    """A volume of the user's at this path: the fields of container and pod."""
    mount = {"name": "own", "mountPath": path}
    if "configMap" in source:
        mount["subPath"] = "ca.crt"
    return {
        "container": {"volumeMounts": [mount]},
        "pod": {"volumes": [{"name": "own", **source}]},
    }


_EMPTY: dict[str, Any] = {"emptyDir": {}}
_FILE = {"configMap": {"name": "kube-root-ca.crt"}}  # there is one in every namespace
_NO_PATH = {"bitfusion.io/path": "none"}
_WHAT_TO_DO = (
    "What to do: use an image with Python 3.10 or newer; or ask your administrator for VMware's client in "
    "the map of clients"
)

KINDS = {
    "Kubeflow's notebook image, conda's PATH": Kind(is_so={"python": "/opt/conda/bin/python3", "uid": 1000}),
    "read-only root filesystem": Kind(
        container={"securityContext": {**SECURITY, "readOnlyRootFilesystem": True}}, is_so={"writes": False}
    ),
    "uid 12345, HOME=/": Kind(
        container={
            "securityContext": {**SECURITY, "runAsUser": 12345},
            "env": [{"name": "HOME", "value": "/"}],
        },
        is_so={"uid": 12345, "home": "/"},
    ),
    "OpenShift: uid 1000650000, gid 0": Kind(
        container={"securityContext": {**SECURITY, "runAsUser": OPENSHIFT}},
        pod={"securityContext": {"fsGroup": OPENSHIFT}},
        is_so={"uid": OPENSHIFT, "gid": 0},
    ),
    "a PATH of a virtual environment only": Kind(
        _image("venv"), client=BY_PATH, is_so={"path": ["/opt/venv/bin"], "python": "/opt/venv/bin/python3"}
    ),
    "no /bin/sh": Kind(_image("no-shell"), is_so={"shell": False}),
    "two containers that ask": Kind(containers=("main", "second")),
    "a file at the path": Kind(_image("file")),
    "a symbolic link at the path": Kind(_image("link")),
    "a dead symbolic link at the path": Kind(_image("dead-link")),
    "a folder at the path": Kind(_image("folder"), not_started="not a directory"),
    "a folder at the path, path: none": Kind(
        _image("folder"), annotations=_NO_PATH, client=BY_PATH, mounted=False
    ),
    "path: none": Kind(annotations=_NO_PATH, client=BY_PATH, mounted=False),
    "a user's volume above the path": Kind(
        **_volume("/usr/local/bin", **_EMPTY), client=BY_PATH, mounted=False
    ),
    "a user's volume at the path": Kind(
        **_volume("/usr/local/bin/bitfusion", **_EMPTY), client=BY_PATH, mounted=False
    ),
    "a user's file at the path": Kind(
        **_volume("/usr/local/bin/bitfusion", **_FILE), client=BY_PATH, mounted=False
    ),
    "a user's volume at /bitfusion": Kind(
        **_volume("/bitfusion/data", **_EMPTY),
        refused='mountPath /bitfusion/data of container "main" is the place of the client, /bitfusion',
    ),
    "a client of the image's own": Kind(
        _image("own-client"),
        version="The image has one of its own, /usr/bin/bitfusion; "
        "on this PATH `bitfusion` is /usr/local/bin/bitfusion",
    ),
    "a client of the image's own, first on PATH": Kind(
        _image("own-client-first"),
        client=BY_PATH,
        version="The image has one of its own, /opt/vendor/bin/bitfusion; "
        "on this PATH `bitfusion` is /opt/vendor/bin/bitfusion",
    ),
    "no Python": Kind(
        SMALL,
        client=BY_PATH,
        container={"command": ["/bin/busybox", "sleep", "1000"]},
        says="Error: this image has no Python for the bitfusion stand-in: there is no python3 on PATH, nor "
        f"in /opt/conda/bin, /usr/local/bin, /usr/bin. {_WHAT_TO_DO}",
    ),
    "a Python that is too old": Kind(
        _image("old-python"),
        says="Error: the Python of this image is too old for the bitfusion stand-in: /usr/bin/python3 is "
        f"3.8.10. {_WHAT_TO_DO}",
    ),
    "cpu and memory from a LimitRange": Kind(limits={}),
    "more than the ResourceQuota has": Kind(
        size={"bitfusion.io/gpu-amount": "3"},
        refused="exceeded quota: quota, requested: requests.bitfusion.io/gpu=300",
    ),
}
