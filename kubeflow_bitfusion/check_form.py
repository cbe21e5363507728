"""Whether the notebook form offers what the list of sizes says, and whether each size can be had."""

from __future__ import annotations

from collections.abc import Iterator

from bitfusion_client.errors import BitfusionError
from bitfusion_client.gpu_pods.size_rules import check_sizes
from bitfusion_client.kubernetes.raw_objects import mapping, text
from bitfusion_client.one_line import one_line
from bitfusion_cluster.doctor.engine import engine_of
from bitfusion_cluster.doctor.finding import LONGEST, Finding, fail, named, ok, warn
from bitfusion_cluster.doctor.places import sizes as sizes_path
from bitfusion_cluster.doctor.seen import Seen
from jupyter_ext.spawner.form_config import offered_keys
from jupyter_ext.spawner.kustomize import CONFIG_FILE
from jupyter_ext.spawner.sizes import SizeList, parse_sizes
from jupyter_ext.spawner.yaml_document import parse_document
from kubeflow_bitfusion.form_in_cluster import NoForm, find_form

APPLY = "kubeflow-bitfusion form sizes.yaml --apply --namespace {}"


def check_form(seen: Seen) -> Iterator[Finding]:
    """The form, against the list of sizes that the installation has. Raises Unseen."""
    found = seen.one(sizes_path(seen.namespace))
    listed: SizeList | None = None
    try:
        document = parse_document(text(mapping(mapping(found).get("data")).get("sizes.yaml")), "sizes.yaml")
        listed = parse_sizes(document) if document.data is not None else None
    except BitfusionError as error:
        todo = (
            f"correct ConfigMap bitfusion-notebook-sizes in namespace {seen.namespace} in your installation"
        )
        yield fail("sizes", one_line(error.user_message, LONGEST), todo)
        return
    if listed is not None:
        yield from _served(seen, listed)
    try:
        form = find_form(seen.one, seen.namespace)
    except NoForm as error:
        yield ok("form", f"{one_line(error.headline, LONGEST)} Sizes are chosen elsewhere")
        return
    apply = APPLY.format(seen.namespace)
    try:
        offered = offered_keys(parse_document(form.text, CONFIG_FILE))
    except BitfusionError as error:
        yield fail("form", one_line(error.user_message, LONGEST), f"correct ConfigMap {form.name}")
        return
    if not offered:
        todo = f"{apply}; or let the Job do it (manifests/components/form-job); GitOps: form --config"
        yield fail("form", f"offers no Bitfusion size (ConfigMap {form.name})", todo)
        return
    if listed is None:
        yield ok(
            "form", f"offers {named(list(offered.values()), 6)}; JupyterLab's list is derived from the pool"
        )
        return
    wanted = {size.key: size.label for size in listed.sizes}
    lacking = [label for key, label in wanted.items() if offered.get(key) != label]
    more = [label for key, label in offered.items() if wanted.get(key) != label]
    if lacking or more:
        words = [f"does not offer {named(lacking)}"] * bool(lacking) + [f"offers {named(more)}"] * bool(more)
        yield warn(
            "form", f"differs from sizes.yaml: it {' and '.join(words)}", f"apply the list again: {apply}"
        )
    else:
        yield ok("form", f"offers {named(list(offered.values()), 6)}, as sizes.yaml has them")


def _served(seen: Seen, listed: SizeList) -> Iterator[Finding]:
    engine = engine_of(seen)
    if not engine.has_pods or engine.has_pool or not engine.rules:
        yield ok("sizes", named([size.label for size in listed.sizes], 6))
        return
    unserved = [size.label for size in listed.sizes if check_sizes([size.request], engine.rules)]
    if unserved:
        there = "; ".join(dict.fromkeys(rule.describe() for rule in engine.rules))
        yield fail(
            "sizes",
            f"no rule of pods.yaml serves {named(unserved)}: users who choose it get an error in the first "
            "cell",
            f"add a rule (examples/gpu-pods), or remove the size from sizes.yaml; the rules serve {there}",
        )
    else:
        yield ok("sizes", f"{named([size.label for size in listed.sizes], 6)}: each has a rule")
