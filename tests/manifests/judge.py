"""Policy and webhook as judges of one Notebook, on the test cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_cluster.webhooks.review import read_review
from notebook_controller_patch.admission.notebook import admit_notebook
from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.manifests.built import NOTEBOOKS, POLICY, Object
from tests.manifests.installed import folder
from tests.manifests.sizes import GPU, notebook
from tests.support.waiting import wait_until

DENIED = f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request: "


class Judge:
    """What policy and webhook say of a Notebook in one namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = cluster.new_namespace({"app.kubernetes.io/part-of": "kubeflow-profile"})
        self.path = NOTEBOOKS.format(namespace=self.namespace)

    def policy(self, body: Object) -> str | None:
        """The policy's words as the form gets them, None if it has nothing against it."""
        refused = refusal(self.cluster, self.path, body)
        if refused is None:
            return None
        assert (refused.status, refused.reason) == (422, "Invalid")
        start, _, words = refused.message.partition(DENIED)
        assert start == f'notebooks.kubeflow.org "{body["metadata"]["name"]}" is forbidden: ', refused.message
        return words.strip()

    def webhook(self, body: Object, old: Object | None = None) -> str | None:
        """The webhook's words, None if it lets the Notebook in."""
        request = {
            "uid": "1",
            "operation": "UPDATE" if old else "CREATE",
            "kind": {"group": "kubeflow.org", "version": "v1", "kind": "Notebook"},
            "namespace": self.namespace,
            "object": body,
            "oldObject": old,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        verdict = admit_notebook(read_review(review), DEFAULT_RULES)
        return None if verdict.allowed else verdict.message

    def agree(self, body: Object) -> bool:
        return (self.policy(body) is None) == (self.webhook(body) is None)


@contextmanager
def policy_in_force(cluster: Cluster) -> Iterator[Judge]:
    """The overlay is applied, and the apiserver knows it."""
    overlay = folder("validating-policy")
    cluster.kubectl("apply", "-k", overlay)
    try:
        found = Judge(cluster)
        wrong = notebook("wrong", {f"{GPU}amount": "0"})
        wait_until(lambda: found.policy(wrong), "the policy is in force", 20)
        yield found
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-k", overlay)


def refusal(cluster: Cluster, path: str, body: Object) -> Refused | None:
    """What the apiserver says to a dry run of its creation, None if it lets it in."""
    try:
        cluster.client.create(path, body, dryRun="All")
    except Refused as refused:
        return refused
    return None
