"""Makes a release in dist/: wheel, source archive, manifests, chart, SHA256SUMS. `make dist` runs this.

    python3 -m tools.dist

It is made of the commit that is checked out, whatever has been changed since, and the same commit gives the
same bytes: files have the commit's date, no owner, and no mode but that of git. It needs git, and Python 3.10
or newer with its `venv`; another version of Python's zlib may compress differently.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tools import checkout, wheel
from tools.checkout import ROOT

FOLDER = ROOT / "dist"
NAME = "kubeflow-bitfusion"
CHART = f"charts/{NAME}"


def main() -> int:
    """Make the release."""
    try:
        return _main(checkout.read())
    except checkout.WrongCheckout as wrong:
        print(f"dist: {wrong}", file=sys.stderr)
        return 2
    except (wheel.WheelFailed, OSError, subprocess.CalledProcessError) as failed:
        print(f"dist: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _main(state: checkout.Checkout) -> int:
    if not state.revision:
        print("dist: a release is made of a commit: run this in a clone, with git.", file=sys.stderr)
        return 2
    if state.revision.endswith("-dirty"):
        print(
            f"· files were changed since commit {state.revision[:12]}; the release is without these changes"
        )
    FOLDER.mkdir(exist_ok=True)
    for old in [*FOLDER.glob("kubeflow*bitfusion-*"), *FOLDER.glob("SHA256SUMS")]:
        old.unlink()
    with tempfile.TemporaryDirectory() as place:
        _release(Path(place), state.epoch)
    for path in sorted(FOLDER.glob("kubeflow*bitfusion-*")):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.2f} MB")
    return 0


def _release(place: Path, epoch: int) -> None:
    tree = place / "tree"
    tree.mkdir()
    exported = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "HEAD"],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(exported)) as tar:
        tar.extractall(tree, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(tree)
    wheel.build(["wheel", "sdist"], tree, FOLDER, epoch)
    version = checkout.version_in((tree / "pyproject.toml").read_text())
    manifests = [
        tree / "LICENSE",
        *(tree / "manifests").rglob("*"),
        *(tree / "examples" / "gpu-pods").rglob("*"),
    ]
    name = f"{NAME}-manifests-{version}"
    (FOLDER / f"{name}.tar.gz").write_bytes(archive(manifests, tree, name, epoch))
    chart = tree / CHART
    if chart.is_dir():
        # As `helm package` lays it out.
        version = chart_version((chart / "Chart.yaml").read_text())
        (FOLDER / f"{NAME}-{version}.tgz").write_bytes(archive(chart.rglob("*"), chart, NAME, epoch))
    (FOLDER / "SHA256SUMS").write_text(sums(FOLDER.glob("kubeflow*bitfusion-*")))


def archive(paths: Iterable[Path], root: Path, prefix: str, epoch: int) -> bytes:
    """A .tar.gz of files below a folder, dated `epoch`, whatever the disk says of dates and owners."""
    buffer = io.BytesIO()
    # gzip's own head has the date, but no name.
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(each for each in paths if each.is_file()):
            entry = tarfile.TarInfo(f"{prefix}/{path.relative_to(root).as_posix()}")
            content = path.read_bytes()
            entry.size, entry.mtime = len(content), epoch
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def chart_version(text: str) -> str:
    """The version in Chart.yaml."""
    found = re.search(r'(?m)^version: "?([\w.+-]+)"?$', text)
    if found is None:
        raise wheel.WheelFailed(f"{CHART}/Chart.yaml has no line `version: …`")
    return found[1]


def sums(paths: Iterable[Path]) -> str:
    """What `sha256sum --check` reads."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(paths)
    )


if __name__ == "__main__":
    sys.exit(main())
