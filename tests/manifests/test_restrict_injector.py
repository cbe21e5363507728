"""What somebody with the injector's token can write: its Lease and its Secret, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bitfusion_cluster.api.events import WARNING, Said, about, event_object
from bitfusion_cluster.api.paths import events_path
from bitfusion_cluster.webhooks.self_check import UNREACHABLE
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.our_controller import with_components
from tests.manifests.built import INJECTOR, one
from tests.notebook_controller_patch import controller_process
from tests.notebook_controller_patch.installation import Installation
from tests.support.waiting import wait_until

POLICY = "bitfusion-injector-account"
DENIED = f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied"
TLS = "kubernetes.io/tls"
PAIR = {"tls.crt": "eA==", "tls.key": "eA=="}


class Thief:
    """Somebody with the injector's token, in its own namespace."""

    def __init__(self, installation: Installation, client: ApiClient) -> None:
        self.installation = installation
        self.client = client
        namespace = installation.namespace
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.secrets = f"/api/v1/namespaces/{namespace}/secrets"

    def lease(self, name: str) -> Object:
        return self.client.create(self.leases, {"metadata": {"name": name}, "spec": {}})

    def secret(self, name: str, kind: str = TLS) -> Object:
        return self.client.create(self.secrets, {"metadata": {"name": name}, "type": kind, "data": PAIR})


@pytest.fixture(scope="module")
def thief(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Thief]:
    module = controller_process.INJECTOR
    with Installation(
        cluster, tmp_path_factory.mktemp("injector"), name=INJECTOR, module=module
    ) as installation:
        objects = with_components(cluster, "kubeflow", "restrict-account")
        policy = one(objects, "ValidatingAdmissionPolicy", POLICY)
        condition = policy["spec"]["matchConditions"][0]
        condition["expression"] = condition["expression"].replace(":kubeflow:", f":{installation.namespace}:")
        binding = one(objects, "ValidatingAdmissionPolicyBinding", POLICY)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [policy, binding]})
        cluster.kubectl("apply", "-f", "-", input=text)
        try:
            token = cluster.service_account_token(installation.namespace, INJECTOR)
            found = Thief(installation, cluster.client_as(token))

            def in_force() -> bool:
                try:
                    found.lease("another")
                except Refused as refused:
                    return DENIED in str(refused)
                cluster.client.delete(f"{found.leases}/another")
                return False

            wait_until(in_force, "the policy is in force", 20)
            yield found
        finally:
            cluster.kubectl("delete", "-f", "-", "--ignore-not-found", input=text)


def test_its_own_lease_and_secret_can_be_written(thief: Thief) -> None:
    thief.lease(INJECTOR)
    thief.client.merge(f"{thief.leases}/{INJECTOR}", {"spec": {"holderIdentity": "thief"}})
    thief.secret(f"{INJECTOR}-ca")
    thief.client.merge(f"{thief.secrets}/{INJECTOR}-ca", {"data": {"previous.crt": "eA=="}})


def test_the_self_check_stores_nothing_and_is_told_about_its_own_service(thief: Thief) -> None:
    thief.client.create(thief.leases, {"metadata": {"name": f"{INJECTOR}-self-check"}}, dryRun="All")
    namespace = thief.installation.namespace
    said = Said(WARNING, UNREACHABLE, "It is not reached.")

    def tell(service: str) -> None:
        event = event_object(about("v1", "Service", namespace, service, ""), said, INJECTOR, "tests")
        thief.client.create(events_path(namespace), event)

    tell(INJECTOR)
    with pytest.raises(Refused, match="may write Events only about its own Service"):
        tell("another")


def test_no_other_can(thief: Thief) -> None:
    with pytest.raises(Refused, match="may write only the Lease bitfusion-injector"):
        thief.lease("another")
    told = "may write only the Secret bitfusion-injector-ca, of type kubernetes.io/tls"
    with pytest.raises(Refused, match=told):
        thief.secret("another")
    with pytest.raises(Refused, match=told):
        thief.secret(f"{INJECTOR}-ca-2", "Opaque")


def test_an_installed_injector_serves_under_the_policy(thief: Thief, cluster: Cluster) -> None:
    for path in (f"{thief.leases}/{INJECTOR}", f"{thief.secrets}/{INJECTOR}-ca"):
        if cluster.client.exists(path):
            cluster.client.delete(path)
    replica = thief.installation.started()
    assert replica.end()[0] == 0
