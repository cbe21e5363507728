"""`kubeflow-bitfusion form --apply` and `--give-back`: the form's file in a cluster, changed.

The Job of `manifests/components/form-job` runs the first, so that nobody has to. What the file becomes is
`jupyter_ext.spawner.form_change`; here is where it lies, and that two writers do not undo each other.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitfusion_client.errors import BitfusionError, UsageError
from bitfusion_client.kubernetes.names import GROUP
from bitfusion_client.kubernetes.raw_objects import (
    annotations_of,
    containers_of,
    mapping,
    mappings,
    pod_spec_of,
    text,
)
from jupyter_ext.spawner import form_command
from jupyter_ext.spawner.command_output import STDOUT
from jupyter_ext.spawner.form_change import Before, Changed, give_back, put_in, read_before
from jupyter_ext.spawner.form_config import NUMBERS
from jupyter_ext.spawner.gpu_pod_rules import advice
from jupyter_ext.spawner.kustomize import CONFIG_FILE, CONFIG_MAP, CONTAINER, DEPLOYMENT, NAMESPACE
from jupyter_ext.spawner.preset_options import check_image
from jupyter_ext.spawner.sizes import SizeList, parse_sizes
from jupyter_ext.spawner.yaml_document import read_document
from kubeflow_bitfusion.cluster_options import add_kubeconfig, namespace_name

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject
    from bitfusion_cluster.api.client import KubernetesApi

KEPT = "bitfusion.io/form-before"
"""The annotation of the form's ConfigMap that has what was there before."""
IMAGE_VARIABLE = "BITFUSION_FORM_IMAGE"
VOLUME = "config-volume"
TRIES = 5
UNMOUNTED = "The form mounts this file with subPath and reads it only at its start: restart the form with"


class NoForm(BitfusionError):
    """There is no notebook form of Kubeflow."""

    def __init__(self, namespace: str, what: str) -> None:
        super().__init__(next_step="name the namespace of Kubeflow's jupyter-web-app with --namespace")
        self.args = (namespace, what)
        self.headline = f"There is no Kubeflow notebook form in namespace {namespace}: it has no {what}."


class AlwaysChanged(BitfusionError):
    """Somebody else writes the form's ConfigMap all the time."""

    headline = f"The form's ConfigMap was changed by others {TRIES} times in a row; nothing was written."
    next_step = (
        "find out who writes it (a GitOps tool?) and give it the file: kubeflow-bitfusion form --config"
    )


@dataclass(frozen=True, slots=True)
class FormFile:
    """The form's file as a cluster has it.

    Attributes:
        path: Of its ConfigMap in the API.
        name: Of its ConfigMap.
        version: The ConfigMap's ``resourceVersion``.
        text: The file.
        before: What an earlier call has kept.
        kept: Whether anything is kept.
        read_once: Whether the form reads it at its start only.
    """

    path: str
    name: str
    version: str
    text: str
    before: Before | None
    kept: bool
    read_once: bool


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of `kubeflow-bitfusion form`; without them that command runs as it is."""
    group = parser.add_argument_group("in a cluster")
    what = group.add_mutually_exclusive_group()
    what.add_argument(
        "--apply", action="store_true", help="put sizes and image into the form of a running Kubeflow"
    )
    what.add_argument(
        "--give-back", action="store_true", help="remove them again and restore what was there before"
    )
    group.add_argument(
        "--namespace",
        metavar="NAME",
        type=namespace_name,
        default=NAMESPACE,
        help=f"where the form is (default: {NAMESPACE})",
    )
    add_kubeconfig(group)
    group.add_argument("--if-there", action="store_true", help="do not fail if the cluster has no such form")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Returns 0; raises BitfusionError, OSError. Nothing is written unless all can be."""
    if not options.apply and not options.give_back:
        if options.if_there or options.kubeconfig:
            raise UsageError("--kubeconfig and --if-there are for --apply and --give-back")
        return form_command.run(options)
    _check(options)
    sizes = _sizes(options.sizes) if options.apply else None
    image = (options.image or os.environ.get(IMAGE_VARIABLE, "")) if options.apply else ""
    if image:
        check_image(image)
    told = advice(sizes, options.pods, NUMBERS) if sizes is not None else []

    def change(form: FormFile) -> Changed:
        if options.give_back:
            return Changed(give_back(form.text, form.before, CONFIG_FILE), None)
        return put_in(form.text, form.before, sizes, image, CONFIG_FILE)

    from bitfusion_cluster.api.client import connect
    from bitfusion_cluster.api.errors import NoAnswer

    api = connect(options.kubeconfig)
    try:
        form, changed, written = _change(api, options.namespace, change)
    except NoForm as error:
        if not options.if_there:
            raise
        print(f"{error.headline} Nothing was done.")
        return 0
    except NoAnswer as error:
        error.next_step = "check the API server and the network to it, and run the command again."
        raise
    finally:
        api.close()
    lines = _words(options, form, changed, written)
    if sizes is not None and changed.gpus is not None:
        lines += ["", *form_command.summary(sizes, changed.gpus), *told]
    print("\n".join(lines))
    return 0


def find_form(read: Callable[[str], RawObject | None], namespace: str) -> FormFile:
    """The form's file. Raises NoForm, and what `read` raises.

    Args:
        read: Gives the object at a path of the API; None where there is none.
        namespace: Of the form.
    """
    from bitfusion_cluster.api.paths import config_map_path, deployment_path

    deployment = read(deployment_path(namespace, DEPLOYMENT))
    if deployment is None:
        raise NoForm(namespace, f"Deployment {DEPLOYMENT}")
    spec = pod_spec_of(deployment)
    maps = {
        text(each.get("name")): text(mapping(each.get("configMap")).get("name"))
        for each in mappings(spec.get("volumes"))
    }
    others = (volume for volume in maps if maps[volume].startswith(CONFIG_MAP))
    volume = VOLUME if maps.get(VOLUME) else next(others, "")
    name = maps.get(volume, "")
    if not name:
        raise NoForm(namespace, f"volume {VOLUME} in its Deployment {DEPLOYMENT}")
    path = config_map_path(namespace, name)
    found = read(path)
    if found is None:
        raise NoForm(namespace, f"ConfigMap {name}")
    file = mapping(found.get("data")).get(CONFIG_FILE)
    if not isinstance(file, str):
        raise NoForm(namespace, f"{CONFIG_FILE} in its ConfigMap {name}")
    mounts = [
        each
        for container in containers_of(spec)
        if container.get("name") == CONTAINER
        for each in mappings(container.get("volumeMounts"))
    ]
    once = any(each.get("name") == volume and each.get("subPath") for each in mounts)
    kept = annotations_of(found).get(KEPT)
    version = text(mapping(found.get("metadata")).get("resourceVersion"))
    return FormFile(path, name, version, file, read_before(kept), kept is not None, once)


def _change(
    api: KubernetesApi, namespace: str, change: Callable[[FormFile], Changed]
) -> tuple[FormFile, Changed, bool]:
    """Change the form's file; whether anything had to be written. Another one's write is looked at again."""
    from bitfusion_cluster.api.errors import Conflict, NotFound

    def read(path: str) -> RawObject | None:
        try:
            return api.get(path)
        except NotFound:
            return None

    for _ in range(TRIES):
        form = find_form(read, namespace)
        changed = change(form)
        if changed.text == form.text and (changed.before is not None or not form.kept):
            return form, changed, False
        kept = None if changed.before is None else changed.before.to_text()
        body = {
            "metadata": {"resourceVersion": form.version, "annotations": {KEPT: kept}},
            "data": {CONFIG_FILE: changed.text},
        }
        try:
            api.merge(form.path, body)
        except Conflict:
            continue
        return form, changed, True
    raise AlwaysChanged


def _sizes(path: str | None) -> SizeList | None:
    """None for no file, and for one that is empty or has comments only: no sizes are offered."""
    if path is None:
        return None
    document = read_document(path)
    return None if document.data is None else parse_sizes(document)


def _words(options: argparse.Namespace, form: FormFile, changed: Changed, written: bool) -> list[str]:
    where = f"ConfigMap {form.name} in namespace {options.namespace}"
    if options.give_back and form.before is None and GROUP in form.text:
        lines = [
            f"The notebook form stays as it is ({where}): nothing notes that --apply put in the Bitfusion "
            "entries. If they are not from your own file, remove them:",
            f"  kubectl -n {options.namespace} edit configmap {form.name}",
        ]
    elif options.give_back:
        done = f"The notebook form has been restored ({where})."
        lines = [
            done if written else f"The notebook form has no Bitfusion entries ({where}): nothing was done."
        ]
    elif changed.before is None:
        lines = [f"No sizes and no new image: the notebook form stays as Kubeflow has it ({where})."]
    else:
        done = "now has them and shows them within two minutes" if written else "already has them"
        lines = [f"The notebook form {done} ({where})."]
    lines += changed.told
    if written and form.read_once:
        lines += [UNMOUNTED, f"  kubectl -n {options.namespace} rollout restart deployment {DEPLOYMENT}"]
    return lines


def _check(options: argparse.Namespace) -> None:
    given = {
        "--config": options.config,
        "--kustomize": options.kustomize,
        "--kubeflow": options.kubeflow,
        "--base": options.base,
        "--hook": options.hook,
        "--example": options.example,
        "--output": options.output != STDOUT,
    }
    wrong = [name for name, value in given.items() if value]
    which = "--apply" if options.apply else "--give-back"
    if wrong:
        raise UsageError(f"{wrong[0]} cannot be combined with {which}, which writes to the cluster")
    if options.give_back and (options.sizes or options.image or options.pods):
        raise UsageError("--give-back takes neither a list of sizes, nor --image, nor --pods")
    if options.apply and options.pods is not None and not options.sizes:
        raise UsageError("--pods needs a list of sizes to check")
