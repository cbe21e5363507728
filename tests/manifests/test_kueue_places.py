"""The component by which a profile's contributors see the places of their GPU pods in Kueue's queues."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.rights import may
from tests.manifests.built import MANIFESTS, Objects, build, build_own, one
from tests.support.waiting import wait_until

ROLES = MANIFESTS / "components" / "kueue-places" / "roles.yaml"
AGGREGATE = "rbac.authorization.kubeflow.org/aggregate-to-kubeflow-"


def difference(more: Objects, less: Objects) -> list[tuple[str, str]]:
    return [(item["kind"], item["metadata"]["name"]) for item in more if item not in less]


@pytest.mark.parametrize("overlay", ["kubeflow", "cert-manager"])
def test_it_adds_one_role_to_an_overlay(cluster: Cluster, overlay: str) -> None:
    with_it = build_own(cluster, [f"overlays/{overlay}"], ["kueue-places"])
    plain = build(cluster, overlay)
    assert difference(with_it, plain) == [("ClusterRole", "kubeflow-bitfusion-kueue-view")]
    assert not difference(plain, with_it)
    role = one(with_it, "ClusterRole", "kubeflow-bitfusion-kueue-view")
    assert {key for key in role["metadata"]["labels"] if key.startswith(AGGREGATE)} == {f"{AGGREGATE}view"}


def test_those_who_edit_and_view_a_profile_may_read_and_no_more(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--filename", str(ROLES))
    try:
        # As Kubeflow has them: its kubeflow-edit takes in its kubeflow-view.
        for name, labels in (("view", {f"{AGGREGATE}edit": "true"}), ("edit", {})):
            cluster.client.create(
                "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                {
                    "metadata": {"name": f"kubeflow-{name}", "labels": labels},
                    "aggregationRule": {
                        "clusterRoleSelectors": [{"matchLabels": {f"{AGGREGATE}{name}": "true"}}]
                    },
                    "rules": [],
                },
            )
        namespace = cluster.new_namespace()
        for name in ("view", "edit"):
            cluster.kubectl("create", "-n", namespace, "serviceaccount", f"default-{name}")
            cluster.kubectl(
                *("create", "-n", namespace, "rolebinding", name, f"--clusterrole=kubeflow-{name}"),
                f"--serviceaccount={namespace}:default-{name}",
            )
        places = ("visibility.kueue.x-k8s.io", "localqueues", "pendingworkloads")
        workloads = ("kueue.x-k8s.io", "workloads", "")
        for name in ("view", "edit"):
            account = f"system:serviceaccount:{namespace}:default-{name}"
            wait_until(partial(_may, cluster, account, "get", *places), f"{name} is aggregated", 20)
            assert _may(cluster, account, "list", *workloads)
            for verb, what in product(("create", "patch", "update", "delete"), (places, workloads)):
                assert not _may(cluster, account, verb, *what)
    finally:
        for name in ("kubeflow-view", "kubeflow-edit", "kubeflow-bitfusion-kueue-view"):
            cluster.kubectl("delete", "--ignore-not-found", "clusterrole", name)


def _may(cluster: Cluster, user: str, verb: str, group: str, resource: str, subresource: str) -> bool:
    asked = {
        "namespace": user.split(":")[2], "verb": verb, "group": group, "version": "*",
        "resource": resource, "subresource": subresource, "name": "team",
    }  # fmt: skip
    return may(cluster.client, user, **asked)
