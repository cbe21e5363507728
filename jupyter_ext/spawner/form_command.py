"""`kubeflow-bitfusion form`: sizes and images for Kubeflow's notebook form."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from bitfusion_client.errors import UsageError
from bitfusion_client.kubernetes.client_images import (
    ANY,
    CLIENT_LISTS,
    ImageRule,
    default_rules,
    parse_image_rules,
)
from bitfusion_client.kubernetes.names import GROUP
from jupyter_ext.spawner import kustomize
from jupyter_ext.spawner.command_output import STDOUT, add_command, columns, deliver, print_file
from jupyter_ext.spawner.form_config import NUMBERS, FormGpus, form_gpus, gpus_part, replace_gpus
from jupyter_ext.spawner.form_images import add_image
from jupyter_ext.spawner.gpu_pod_rules import add_pods_option, advice, served_example
from jupyter_ext.spawner.hook_bundle import hook_file
from jupyter_ext.spawner.preset_options import check_image
from jupyter_ext.spawner.sizes import SizeList, parse_sizes
from jupyter_ext.spawner.written_files import without_mark
from jupyter_ext.spawner.yaml_document import Document, parse_document, read_document
from jupyter_ext.spawner.yaml_edit import Edited

DESCRIPTION = """\
GPU sizes for Kubeflow's notebook form. Reads a short list of sizes and writes the `gpus` part of
spawner_ui_config.yaml, your whole file with only that part replaced (--config), or a folder for kustomize
(--kustomize). With --image an image is added to the file's list, unless it is there. With --hook also, or
only, the hook by which the form writes Bitfusion's annotations itself, where no admission webhook may be
installed."""

EXAMPLES = """\
examples:
  kubeflow-bitfusion form --example > sizes.yaml
  kubeflow-bitfusion form sizes.yaml
  kubeflow-bitfusion form --example --pods pods.yaml > sizes.yaml
  kubeflow-bitfusion form sizes.yaml --pods pods.yaml
  kubeflow-bitfusion form sizes.yaml --config spawner_ui_config.yaml --output new.yaml
  kubeflow-bitfusion form --image registry.example.com/team/notebook:1.0 --config spawner_ui_config.yaml
  kubeflow-bitfusion form sizes.yaml --config spawner_ui_config.yaml --kubeflow 1.10 --kustomize bitfusion
  kubeflow-bitfusion form --hook --images images.yaml --output bitfusion_form_hook.py
  kubeflow-bitfusion form sizes.yaml --apply
  kubeflow-bitfusion form --give-back"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add this command to the parser of `kubeflow-bitfusion`, which adds what it does in a cluster."""
    parser = add_command(commands, run, "form", "Kubeflow's notebook form", DESCRIPTION, EXAMPLES)
    parser.add_argument("sizes", nargs="?", metavar="sizes.yaml", help="your list of sizes")
    parser.add_argument("--example", action="store_true", help="print a list to start from, and stop")
    parser.add_argument("--config", metavar="FILE", help="your spawner_ui_config.yaml as it is now")
    parser.add_argument(
        "--image", metavar="IMAGE", help="a notebook image with the Bitfusion kernel, for the list in FILE"
    )
    add_pods_option(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--output", metavar="FILE", default=STDOUT, help="where to write the file (default: -, stdout)"
    )
    where.add_argument("--kustomize", metavar="FOLDER", help="write a folder for kustomize instead")
    parser.add_argument(
        "--kubeflow",
        metavar="VERSION",
        type=_version,
        help=f"for --kustomize: your Kubeflow, {kustomize.VERSIONS[0]} to {kustomize.VERSIONS[-1]}",
    )
    parser.add_argument(
        "--base",
        metavar="FOLDER",
        help="for --kustomize up to Kubeflow 1.7: path of Kubeflow's manifests of the form, relative to the "
        f"new folder (default: {kustomize.DEFAULT_BASE})",
    )
    parser.add_argument("--hook", action="store_true", help="the hook for the form's backend")
    parser.add_argument(
        "--images", metavar="FILE", help="for --hook: your rules for which Bitfusion client an image gets"
    )
    parser.add_argument(
        "--clients",
        choices=CLIENT_LISTS,
        default=ANY,
        help="for --hook: which clients the rules may name; vmware: those that VMware's injector has",
    )
    parser.add_argument("--force", action="store_true", help="replace files that were edited by hand")
    return parser


def run(options: argparse.Namespace) -> int:
    """Returns 0; raises BitfusionError, OSError. Nothing is written unless all can be."""
    if options.example:
        print_file(served_example(options.pods))
        return 0
    _check(options)
    config = hook = None
    told: list[str] = []
    if options.sizes or options.image is not None:
        config, told = _config(options)
    if options.hook:
        hook = hook_file(_rules(options.images, options.clients))
    if options.kustomize:
        base = options.base or kustomize.DEFAULT_BASE
        files = {
            os.path.join(options.kustomize, name): text
            for name, text in kustomize.folder(options.kubeflow, base, config, hook).items()
        }
    else:
        files = {options.output: config if config is not None else hook or ""}
    return deliver(files, options.force, told)


def _config(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The form's file as it will be, or its `gpus` alone, and what is told of it."""
    existing = _existing(options.config) if options.config else None
    changes: list[Edited] = []
    told: list[str] = []
    if options.sizes:
        sizes = parse_sizes(read_document(options.sizes))
        form = form_gpus(sizes, existing)
        told = [*summary(sizes, form), *advice(sizes, options.pods, NUMBERS)]
        if existing is None:
            return gpus_part(form), told
        changes.append(replace_gpus(existing, form))
        existing = parse_document(changes[-1].text, existing.source)
    if options.image is not None and existing is not None:
        image = add_image(existing, options.image)
        changes.append(image.edited)
        told = [*image.told, *([""] if told else []), *told]
    aliases = [alias for change in changes for alias in change.aliases]
    if aliases:
        told += ["", f"Written in full, so that nothing else in the file changes: {', '.join(aliases)}."]
    return changes[-1].text, told


def summary(sizes: SizeList, form: FormGpus) -> list[str]:
    """Lines of a table: what a user will see, and what it means."""
    requests = {size.key: size.request for size in sizes.sizes}
    rows = [("In the form", "Key in the notebook's limits", "What it means")]
    for vendor in form.vendors:
        key, label = str(vendor["limitsKey"]), str(vendor["uiName"])
        request = requests.get(key)
        meaning = request.describe() if request else "as before"
        if key == form.vendor:
            meaning += f"   <- preselected, number {form.num}"
        rows.append((label, key, meaning))
    lines = ["What users will see under GPUs, beside a number of 1, 2, 4 or 8 that multiplies it:", ""]
    lines += columns(rows)
    if not any(not str(vendor["limitsKey"]).startswith(GROUP) for vendor in form.vendors):
        lines += ["", "No other vendors: to keep yours, give --config, or other_vendors in the list."]
    if form.read_only:
        lines += ["", "readOnly is true in your file: users cannot choose, and all get the preselected size."]
    if form.removed:
        lines += ["", "No longer offered: " + ", ".join(form.removed)]
        lines += ["Notebooks that use it keep it; the form's list then shows them without GPUs."]
    return lines


def _check(options: argparse.Namespace) -> None:
    of_form = options.sizes or options.image is not None
    if not of_form and not options.hook:
        raise UsageError("give a list of sizes, --image or --hook; --example prints a list to start from")
    if options.config and not of_form:
        raise UsageError("--config needs a list of sizes, or --image")
    if options.pods is not None and not options.sizes:
        raise UsageError("--pods needs a list of sizes to check")
    if options.image is not None:
        check_image(options.image)
        if not options.config:
            raise UsageError("--image needs --config FILE, which contains the form's list of images")
    if options.images and not options.hook:
        raise UsageError("--images is only for --hook; the admission webhook has its own list")
    if options.kustomize:
        if not options.kubeflow:
            raise UsageError("--kustomize needs --kubeflow VERSION: the manifests differ")
        if options.sizes and not options.config:
            raise UsageError(
                "--kustomize needs --config FILE: the form's ConfigMap holds the whole spawner_ui_config.yaml"
            )
        if options.base and not kustomize.is_overlay(options.kubeflow):
            raise UsageError(
                "--base is for Kubeflow up to 1.7; later versions get a component, which needs no base"
            )
    elif options.kubeflow or options.base:
        raise UsageError("--kubeflow and --base are for --kustomize")
    elif options.hook and of_form:
        raise UsageError(
            "--hook together with sizes or --image makes two files: choose a folder with --kustomize"
        )


def _version(text: str) -> str:
    version = ".".join(text.removeprefix("v").split(".")[:2])
    if version not in kustomize.VERSIONS:
        known = f"{kustomize.VERSIONS[0]} to {kustomize.VERSIONS[-1]}"
        raise argparse.ArgumentTypeError(f"must be {known}: {text!r}")
    return version


def _existing(path: str) -> Document:
    document = read_document(path)
    return parse_document(without_mark(document.text), document.source)


def _rules(path: str | None, clients: str) -> Sequence[ImageRule]:
    if path is None:
        return default_rules(clients)
    document = read_document(path)
    return parse_image_rules(document.data, document.source, clients)
