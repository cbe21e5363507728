"""A real Kubernetes for a developer: ``python -m tests.cluster up``, ``status``, ``import``, ``down``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import background
from tests.cluster.binaries import ClusterUnavailable
from tests.cluster.components import ComponentFailed
from tests.cluster.debian_packages import PackagesUnavailable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    0: it went well (status: the cluster runs); 3: nothing or not all of it runs; 1: a failure; 130: Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    file: Path = options.state or background.default_state_file()
    if options.action == "hold":
        background.hold(file, options.notebook_controller, options.node)
        return 0
    if options.action == "status":
        return _status(file)
    if options.action == "import":
        return _import(file, options.archive)
    if options.action == "down":
        ended = background.down(file)
        print("cluster: ended" if ended else "cluster: none is running")
        return 0
    try:
        state = background.up(file, options.notebook_controller, _say, options.node)
    except (ClusterUnavailable, ComponentFailed, PackagesUnavailable) as failed:
        print(failed, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cluster: not started", file=sys.stderr)
        return 130
    print("\n".join(background.told(state)))
    return 0


def _status(file: Path) -> int:
    state = background.read_state(file)
    if state is None:
        print("cluster: none is running")
        return 3
    print("\n".join(background.told(state)))
    return 0 if state.complete else 3


def _import(file: Path, archive: Path | None) -> int:
    state = background.read_state(file)
    if state is None:
        print("cluster: none is running")
        return 3
    if archive is None or not archive.is_file():
        print(f"cluster: import needs the archive of an image (docker save): {archive}", file=sys.stderr)
        return 1
    try:
        print(background.import_archive(state, archive), end="")
    except ComponentFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description="A real Kubernetes control plane on this machine."
    )
    # `hold` is the process that `up` starts in the background.
    parser.add_argument(
        "action", choices=["up", "status", "import", "down", "hold"], metavar="up|status|import|down"
    )
    parser.add_argument("archive", type=Path, nargs="?", help="import: of an image, for the node")
    parser.add_argument(
        "--notebook-controller",
        choices=["1.7", "1.8"],
        help="up: also run a stub of the notebook controller of Kubeflow up to 1.7, or since 1.8",
    )
    parser.add_argument(
        "--node", action="store_true", help="up: with a node on which pods really run; needs root and Debian"
    )
    parser.add_argument("--state", type=Path, help="another state file, for a second cluster")
    return parser


if __name__ == "__main__":
    sys.exit(main())
