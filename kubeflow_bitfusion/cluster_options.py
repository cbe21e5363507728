"""What commands that ask a cluster are told of it: its kubeconfig, and names of namespaces."""

from __future__ import annotations

import argparse
import re


def add_kubeconfig(parser: argparse._ActionsContainer) -> None:
    """Add the option."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="the cluster (default: this pod's, otherwise kubectl's)"
    )


def namespace_name(text: str) -> str:
    """A namespace's name, checked. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"must be a namespace's name, such as kubeflow: {text!r}")
    return text
