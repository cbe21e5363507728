"""`kubeflow-bitfusion workspacekind`: from ``sizes.yaml`` to a WorkspaceKind of Kubeflow Notebooks v2."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from bitfusion_client.errors import UsageError
from bitfusion_client.request.quantities import parse_quantity
from jupyter_ext.spawner.command_output import add_command, columns, deliver
from jupyter_ext.spawner.gpu_pod_rules import advice
from jupyter_ext.spawner.preset_options import add_preset_options, check_preset_options
from jupyter_ext.spawner.presets import WITHOUT_GPUS, WITHOUT_GPUS_ID, Preset, presets
from jupyter_ext.spawner.sizes import parse_sizes
from jupyter_ext.spawner.workspace_kind import (
    DEFAULT_NAME,
    DEFAULT_TITLE,
    LONGEST_NAME,
    SHORTEST_NAME,
    kind_text,
    preset_id,
    preset_name,
    workspace_kind,
)
from jupyter_ext.spawner.yaml_document import read_document

LONGEST_QUANTITY = 20

ALLOWED_NAME = (
    "--name must be lowercase letters, digits and -, at most 63, with a letter or digit at both ends"
)
SMALLEST_MEMORY = 1 << 20  # bytes: whoever leaves the unit out means GiB
ALLOWED_TITLE = f"--title must be one line of {SHORTEST_NAME} to {LONGEST_NAME} characters"

DESCRIPTION = """\
GPU sizes for Kubeflow Notebooks v2. Reads a short list of sizes and writes a WorkspaceKind, JupyterLab in one
image, with a pod configuration for each size and number of GPUs."""

EXAMPLES = """\
examples:
  kubeflow-bitfusion workspacekind sizes.yaml --image registry.example.com/team/notebook:1.0
  kubeflow-bitfusion workspacekind sizes.yaml --image team/notebook:1.0 --numbers 1,2 --cpu 2 --memory 8Gi"""

_is_name = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?").fullmatch


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the parser of `kubeflow-bitfusion`."""
    parser = add_command(commands, run, "workspacekind", "Kubeflow Notebooks v2", DESCRIPTION, EXAMPLES)
    add_preset_options(parser)
    parser.add_argument(
        "--name", default=DEFAULT_NAME, help="of the WorkspaceKind in the cluster (default: %(default)s)"
    )
    parser.add_argument("--title", default=DEFAULT_TITLE, help="title that users see (default: %(default)s)")
    parser.add_argument("--cpu", metavar="AMOUNT", help="CPU that every notebook requests, such as 2 or 500m")
    parser.add_argument("--memory", metavar="AMOUNT", help="memory that every notebook requests, such as 8Gi")


def run(options: argparse.Namespace) -> int:
    """Returns 0; raises BitfusionError, OSError. Nothing is written unless all of it can be."""
    check_preset_options(options)
    _check(options)
    sizes = parse_sizes(read_document(options.sizes))
    requests = {name: value for name in ("cpu", "memory") if (value := getattr(options, name))}
    title = options.title.strip()
    kind = workspace_kind(sizes, options.image, options.numbers, options.name, title, requests)
    told = [*summary(presets(sizes, options.numbers)), *advice(sizes, options.pods, options.numbers)]
    return deliver({options.output: kind_text(kind, sizes.source)}, options.force, told)


def summary(groups: Sequence[Sequence[Preset]]) -> list[str]:
    """Lines of a table: what a user will see, and what it means."""
    all_presets = [preset for group in groups for preset in group]
    preselected = not any(preset.size.default for preset in all_presets)
    rows = [("Pod configuration", "Its id", "In the container's limits", "What it means")]
    rows.append((WITHOUT_GPUS, WITHOUT_GPUS_ID, "", "<- preselected" if preselected else ""))
    for preset in all_presets:
        limit = f"{preset.size.key}: {preset.number}"
        meaning = preset.request.describe()
        meaning += "   <- preselected" if preset.size.default and preset.preselected else ""
        rows.append((preset_name(preset), preset_id(preset), limit, meaning))
    return ["What users will see when they create a Workspace of this kind:", "", *columns(rows)]


def _check(options: argparse.Namespace) -> None:
    if not _is_name(options.name):
        raise UsageError(f"{ALLOWED_NAME}: {options.name[:80]!r}")
    if not SHORTEST_NAME <= len(options.title.strip()) <= LONGEST_NAME or not options.title.isprintable():
        raise UsageError(f"{ALLOWED_TITLE}: {options.title[:80]!r}")
    for name, smallest, such_as in (("cpu", 0, "2 or 500m"), ("memory", SMALLEST_MEMORY, "8Gi")):
        value = getattr(options, name)
        if value is not None and not _is_amount(value, smallest):
            least = " of at least 1Mi" if smallest else ""
            raise UsageError(
                f"--{name} must be an amount{least} in Kubernetes notation, such as {such_as}: {value[:40]!r}"
            )


def _is_amount(text: str, smallest: int) -> bool:
    try:
        numerator, denominator = parse_quantity(text)
    except ValueError:
        return False
    return len(text) <= LONGEST_QUANTITY and 0 < numerator >= smallest * denominator
