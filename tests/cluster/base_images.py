"""What stands for the public images that our Containerfiles begin with, where no registry can be asked.

A Python image is a Debian with Python and pip; a Debian image is that distribution. A notebook image of
Kubeflow's is made from the first by a Containerfile of its own, `notebook_base/`: laid out as Kubeflow's,
with the versions of Jupyter that the release has, on Debian's Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cluster.debian_packages import bootstrap
from tests.cluster.image_builder import BuildFailed, build, build_layer, kept, key_of
from tests.cluster.image_files import DEFAULT_PATH, BuiltImage

_SUITE = "bookworm"
_DEBIAN = f'FROM scratch\nADD root.tar /\nCOPY empty /\nENV PATH={DEFAULT_PATH}\nCMD ["bash"]\n'
# Nothing of this machine stays: name servers, the archive's address; nor devices.
_CLEAN = (
    "--skip=output/dev",
    '--customize-hook=cd "$1"/etc && rm -f resolv.conf hostname machine-id apt/sources.list',
    '--customize-hook=cd "$1"/etc && touch resolv.conf hostname machine-id apt/sources.list',
    '--customize-hook=cd "$1" && find var/lib/apt/lists var/cache/apt var/log tmp -mindepth 1 -delete',
)
_NOTEBOOKS = Path(__file__).with_name("notebook_base")
_HUB_IMAGE = Path(__file__).with_name("hub_image")

_PYTHON = ("python3", "python3-venv", "python3-pip", "ca-certificates")
_DEBIANS: dict[str, tuple[str, ...]] = {
    r"(docker\.io/library/)?python:3\.1[0-5][\w.-]*": _PYTHON,
    r"(docker\.io/library/)?debian:bookworm[\w.-]*": ("ca-certificates",),
}
_NOTEBOOK = re.compile(
    r"(?:ghcr\.io/kubeflow/kubeflow/notebook-servers|(?:docker\.io/)?kubeflownotebookswg)"
    r"/jupyter(?P<kind>-tensorflow)?(?:-full)?:v(?P<release>1\.\d+)\.\d+"
)
_HUBS = re.compile(r"quay\.io/jupyterhub/k8s-singleuser-sample:4\.\d+\.\d+")
_RELEASES = ("1.8", "1.10")
"""Of Kubeflow, of whose Jupyter `notebook_base/` has the versions."""

Say = Callable[[str], None]

PYTHON_IMAGE = "docker.io/library/python:3.11-slim-bookworm"


def base_image(name: str, say: Say = print) -> BuiltImage:
    """What stands for this image. Raises BuildFailed, also for one that nothing stands for."""
    for pattern, packages in _DEBIANS.items():
        if re.fullmatch(pattern, name):
            return _debian(name, packages, say)
    notebook = _NOTEBOOK.fullmatch(name)
    if notebook and notebook["release"] in _RELEASES:
        more = "tensorflow-cpu scikit-learn matplotlib" if notebook["kind"] else ""
        arguments = {"KUBEFLOW": notebook["release"], "MORE": more}
        return notebook_base(name, arguments, say)
    if _HUBS.fullmatch(name):
        return build(
            _HUB_IMAGE / "Containerfile", _HUB_IMAGE, name, lambda base: base_image(base, say), None, say
        )
    known = "python:3.10 to 3.15, debian:bookworm, JupyterHub's k8s-singleuser-sample:4, "
    known += "Kubeflow's jupyter and jupyter-tensorflow of "
    raise BuildFailed(f"nothing stands for the image {name} here; known are {known}{' and '.join(_RELEASES)}")


def notebook_base(name: str, arguments: Mapping[str, str], say: Say = print) -> BuiltImage:
    """A notebook image as Kubeflow's are, by the arguments of `notebook_base/Containerfile`."""
    return build(
        _NOTEBOOKS / "Containerfile", _NOTEBOOKS, name, lambda base: base_image(base, say), arguments, say
    )


def _debian(name: str, packages: tuple[str, ...], say: Say) -> BuiltImage:
    def make() -> str:
        say(f"images: a Debian that stands for {name}, with {', '.join(packages)} …")
        return build_layer(lambda folder: _bootstrap(packages, folder), _DEBIAN, name)

    return kept(name, key_of(_DEBIAN, _SUITE, packages, _CLEAN), make)


def _bootstrap(packages: tuple[str, ...], folder: Path) -> None:
    """Fill the folder that `_DEBIAN` is built from."""
    (folder / "empty" / "dev").mkdir(parents=True)
    bootstrap(_SUITE, packages, folder / "root.tar", "--variant=minbase", *_CLEAN)
