"""`kubeflow-bitfusion profiles`: from ``sizes.yaml`` to the profiles of JupyterHub's KubeSpawner."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from jupyter_ext.spawner.command_output import add_command, columns, deliver
from jupyter_ext.spawner.gpu_pod_rules import advice
from jupyter_ext.spawner.kubespawner_profiles import helm_values, hub_configuration, profile_list
from jupyter_ext.spawner.preset_options import add_preset_options, check_preset_options
from jupyter_ext.spawner.presets import WITHOUT_GPUS, Preset, presets, says_number
from jupyter_ext.spawner.sizes import parse_sizes
from jupyter_ext.spawner.yaml_document import read_document

DESCRIPTION = """\
GPU sizes for JupyterHub on Kubernetes. Reads a short list of sizes and writes KubeSpawner's list of profiles,
as values of the chart Zero to JupyterHub, or as a file for jupyterhub_config.py (--python)."""

EXAMPLES = """\
examples:
  kubeflow-bitfusion profiles sizes.yaml --image registry.example.com/team/notebook:1.0
  kubeflow-bitfusion profiles sizes.yaml --image registry.example.com/team/notebook:1.0 --output profiles.yaml
  kubeflow-bitfusion profiles sizes.yaml --image team/notebook:1.0 --numbers 1,2 --any-number --python"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the parser of `kubeflow-bitfusion`."""
    parser = add_command(commands, run, "profiles", "JupyterHub's KubeSpawner", DESCRIPTION, EXAMPLES)
    add_preset_options(parser)
    parser.add_argument(
        "--any-number", action="store_true", help="users may also enter another number, up to 999"
    )
    parser.add_argument(
        "--python",
        action="store_true",
        help="write a file for load_subconfig in jupyterhub_config.py instead",
    )


def run(options: argparse.Namespace) -> int:
    """Returns 0; raises BitfusionError, OSError. Nothing is written unless all of it can be."""
    check_preset_options(options)
    sizes = parse_sizes(read_document(options.sizes))
    profiles = profile_list(sizes, options.image, options.numbers, options.any_number)
    write = hub_configuration if options.python else helm_values
    told = [
        *summary(presets(sizes, options.numbers), options.any_number),
        *advice(sizes, options.pods, options.numbers),
    ]
    return deliver({options.output: write(profiles, sizes.source)}, options.force, told)


def summary(groups: Sequence[Sequence[Preset]], any_number: bool) -> list[str]:
    """Lines of a table: what a user will see, and what it means."""
    rows = [("Profile", "Number", "Key in the container's limits", "One of it")]
    preselected = not any(group[0].size.default for group in groups)
    rows.append((WITHOUT_GPUS, "", "", "<- preselected" if preselected else ""))
    for group in groups:
        size, free = group[0].size, any_number and not says_number(group[0].size)
        numbers = [str(preset.number) for preset in group] + ["another"] * free
        meaning = group[0].request.describe()
        if size.default:
            chosen = next(preset.number for preset in group if preset.preselected)
            meaning += f"   <- preselected, number {chosen}"
        rows.append((size.label, ", ".join(numbers), size.key, meaning))
    return ["What users will see when they start a server:", "", *columns(rows)]
