"""The policies that hold our accounts to what they need: there, and bound."""

from __future__ import annotations

from collections.abc import Iterator

from bitfusion_client.kubernetes.raw_objects import labels_of, mapping, metadata_of, text
from bitfusion_cluster.api.paths import deployment_path
from bitfusion_cluster.api.server_version import VERSION_PATH, parsed_version
from bitfusion_cluster.doctor.finding import Finding, fail, named, ok, warn
from bitfusion_cluster.doctor.places import CONTROLLER, INJECTOR, OURS, PART_OF, POLICIES, POLICY_BINDINGS
from bitfusion_cluster.doctor.seen import Seen

SINCE = (1, 30)
ACCOUNTS = {CONTROLLER: "bitfusion-controller-account", INJECTOR: "bitfusion-injector-account"}


def check_policies(seen: Seen) -> Iterator[Finding]:
    """What there is, and what a newer Kubernetes could have."""
    version = parsed_version(dict(seen.one(VERSION_PATH) or {}))
    if version is not None and version < SINCE:
        yield ok("policies", f"none: Kubernetes has them since {SINCE[0]}.{SINCE[1]}")
        return
    policies = [each for each in seen.items(POLICIES) if labels_of(each).get(PART_OF) == OURS]
    bound = {text(mapping(each.get("spec")).get("policyName")) for each in seen.items(POLICY_BINDINGS)}
    names = sorted(text(metadata_of(each).get("name")) for each in policies)
    unbound = [name for name in names if name not in bound]
    if unbound:
        todo = "apply the installation again, or the component that they belong to"
        yield fail("policies", f"not bound, so they have no effect: {named(unbound)}", todo)
    missing = [
        policy
        for program, policy in ACCOUNTS.items()
        if policy not in names and seen.one(deployment_path(seen.namespace, program)) is not None
    ]
    if missing:
        yield warn(
            "policies",
            f"missing: {named(missing)}; whoever has a token of these accounts may write more than the "
            "programs need",
            "add manifests/components/restrict-account (chart: it is on by default)",
        )
    if names and not unbound and not missing:
        yield ok("policies", f"{named(names, 6)}: bound")
