"""Options that the commands for JupyterHub and for Notebooks v2 share, and what they may be."""

from __future__ import annotations

import argparse
import re

from bitfusion_client.errors import UsageError
from bitfusion_client.kubernetes.client_images import LONGEST_REFERENCE
from jupyter_ext.spawner.command_output import STDOUT
from jupyter_ext.spawner.gpu_pod_rules import add_pods_option
from jupyter_ext.spawner.presets import NUMBERS, parse_numbers

NO_LIST = "give a list of sizes; `kubeflow-bitfusion form --example` prints a list to start from"
NO_IMAGE = "give --image IMAGE: the notebook image that has the Bitfusion kernel"
ALLOWED_IMAGE = (
    f"--image must be a reference like registry.example.com/team/notebook:1.0, 2 to {LONGEST_REFERENCE} "
    "characters without blanks"
)

_is_image = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:/@-]{{0,{LONGEST_REFERENCE - 2}}}[A-Za-z0-9_]").fullmatch


def add_preset_options(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser of one command."""
    parser.add_argument("sizes", nargs="?", metavar="sizes.yaml", help="your list of sizes")
    parser.add_argument("--image", metavar="IMAGE", help="the notebook image that has the Bitfusion kernel")
    parser.add_argument(
        "--numbers",
        metavar="N,N…",
        type=_numbers,
        default=NUMBERS,
        help=f"the numbers of GPUs to choose from (default: {','.join(map(str, NUMBERS))})",
    )
    add_pods_option(parser)
    parser.add_argument(
        "--output", metavar="FILE", default=STDOUT, help="where to write (default: -, stdout)"
    )
    parser.add_argument("--force", action="store_true", help="replace a file that was edited by hand")


def check_preset_options(options: argparse.Namespace) -> None:
    """Raises UsageError: the list or the image is missing, or is no reference of an image."""
    if not options.sizes:
        raise UsageError(NO_LIST)
    if not options.image:
        raise UsageError(NO_IMAGE)
    check_image(options.image)


def check_image(image: str) -> None:
    """Raises UsageError: it is no reference of an image, such as one whose $REGISTRY is not set."""
    if not _is_image(image):
        raise UsageError(f"{ALLOWED_IMAGE}: {image[:60]!r}")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return parse_numbers(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: {text[:60]!r}") from None
