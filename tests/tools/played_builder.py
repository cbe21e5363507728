"""docker, the package builder and the registry for `make images`, played: programs for the PATH of a reader.

What they are given is checked, nothing is built: `make images-check` builds. The registry has of each image
what docs/how-to/images.md prints.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tools import wheel
from tools.images import registry

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "0123456789abcdef" * 4
SIZE = 12_700_000
DOCKER = f"""#!{sys.executable} -IS
import json, os, sys
words = sys.argv[1:]
if words == ["buildx", "version"] or words[0] == "version":
    sys.exit()
assert words[:3] == ["buildx", "build", "--tag"] and words[-1] == ".", words
assert os.path.isfile(words[words.index("--file") + 1]), words
with open(os.environ["SEEN"], "a") as file:
    print(json.dumps(words), file=file)
with open(words[words.index("--metadata-file") + 1], "w") as file:
    json.dump({{"containerimage.digest": "{DIGEST}"}}, file)
"""
PYTHON = f"""#!/bin/sh
PYTHONPATH=. exec {sys.executable} -B {Path(__file__)} "$@"
"""


def write_programs(folder: Path) -> None:
    """`docker`, which notes what it is given in the file $SEEN, and `python3` for `-m tools.images` alone."""
    for name, text in (("docker", DOCKER), ("python3", PYTHON)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def _asked(repository: str, what: str, insecure: bool, method: str = "GET") -> registry._Answer:
    assert not insecure
    kind, _, name = what.partition("/")
    body = (
        f'{{"config": {{"digest": "x"}}, "layers": [{{"size": {SIZE}}}]}}'
        if kind == "manifests"
        else '{"os": "linux", "architecture": "amd64", "config": {"User": "65532:65532"}}'
    )
    assert method == "HEAD" or (kind, name) in (("manifests", DIGEST), ("blobs", "x"))
    return registry._Answer({"Docker-Content-Digest": DIGEST}, body.encode())


def _build(targets: list[str], source: Path, folder: Path, epoch: int) -> list[Path]:
    assert targets == ["wheel"]
    (folder / "kubeflow_bitfusion-0.1.0-py3-none-any.whl").touch()
    return []


if __name__ == "__main__":
    wheel.build = _build  # type: ignore[assignment]  # plays it with fewer words
    registry._get = _asked
    option, module, *words = sys.argv[1:]
    assert (option, module) == ("-m", "tools.images")
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__")
