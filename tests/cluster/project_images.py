"""This project's images, built from `manifests/images/` for the tests, as an admin does with docker.

    python -m tests.cluster.project_images notebook

builds one and says how long it took; in a test `project_image("notebook")` does.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cluster.base_images import base_image
from tests.cluster.image_builder import build
from tests.cluster.image_files import BuiltImage, why_no_images
from tests.cluster.made_once import made_once, user_cache

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "manifests" / "images"
VERSION = "0.1.0"

# What the wheel is made of; pyproject.toml names the packages.
_OF_THE_WHEEL = ("pyproject.toml", "README.md", "LICENSE")


def project_image(
    name: str, arguments: Mapping[str, str] | None = None, say: Callable[[str], None] = print
) -> BuiltImage:
    """`kubeflow-bitfusion/<name>:0.1.0`, as it is made of the files of this checkout.

    `arguments` are those of `docker build --build-arg`. An image that was built before takes a second.
    """
    file = IMAGES / name / "Containerfile"
    with tempfile.TemporaryDirectory() as folder:
        for line in Path(f"{file}.dockerignore").read_text().splitlines():
            if line.startswith("!"):
                _send(line[1:], Path(folder))
        return build(
            file,
            Path(folder),
            f"kubeflow-bitfusion/{name}:{VERSION}",
            lambda base: base_image(base, say),
            arguments,
            say,
        )


def _send(pattern: str, context: Path) -> None:
    root = project_wheel().parents[1] if pattern.startswith("dist/") else ROOT
    for path in root.glob(pattern):
        place = context / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, place)


def project_wheel() -> Path:
    """The wheel of this checkout, from the cache while its files stay as they are."""
    digest = hashlib.sha256()
    for path in sorted(_wheel_files()):
        digest.update(f"{path.relative_to(ROOT)} {path.stat().st_mode:o} ".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())

    def make(folder: Path) -> None:
        # under dist/, where a build looks for it
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, "--wheel-dir", str(folder / "dist"), str(ROOT)], check=True)

    folder = made_once(user_cache() / "images" / "wheel" / digest.hexdigest()[:20], make)
    (wheel,) = folder.glob("dist/*.whl")
    return wheel


def _wheel_files() -> list[Path]:
    files = [ROOT / name for name in _OF_THE_WHEEL]
    files += [path for path in (ROOT / "jupyter-config").rglob("*") if path.is_file()]
    for package in ROOT.glob("*/__init__.py"):
        files += [path for path in package.parent.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return files


def main() -> int:
    """Build the images named on the command line; `NAME=VALUE` words are build arguments of all of them."""
    words = sys.argv[1:]
    arguments = dict(word.split("=", 1) for word in words if "=" in word)
    reason = why_no_images()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 3
    for name in [word for word in words if "=" not in word] or sorted(path.name for path in IMAGES.iterdir()):
        image = project_image(name, arguments)
        print(
            f"{image.name}: {image.size() / 1e6:.0f} MB in {len(image.layers)} layers, {image.build_s:.1f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
