"""A real Kubernetes for a developer: ``python -m tests.cluster up``, ``status``, ``down``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import background
from tests.cluster.binaries import ClusterUnavailable
from tests.cluster.components import ComponentFailed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    0: it went well (status: the cluster runs); 3: nothing or not all of it runs; 1: a failure; 130: Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    file: Path = options.state or background.default_state_file()
    if options.action == "hold":
        background.hold(file, options.notebook_controller)
        return 0
    if options.action == "status":
        return _status(file)
    if options.action == "down":
        ended = background.down(file)
        print("cluster: ended" if ended else "cluster: none is running")
        return 0
    try:
        state = background.up(file, options.notebook_controller, _say)
    except (ClusterUnavailable, ComponentFailed) as failed:
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


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description="A real Kubernetes control plane on this machine."
    )
    # `hold` is the process that `up` starts in the background.
    parser.add_argument("action", choices=["up", "status", "down", "hold"], metavar="up|status|down")
    parser.add_argument(
        "--notebook-controller",
        choices=["1.7", "1.8"],
        help="up: also run a stub of the notebook controller of Kubeflow up to 1.7, or since 1.8",
    )
    parser.add_argument("--state", type=Path, help="another state file, for a second cluster")
    return parser


if __name__ == "__main__":
    sys.exit(main())
