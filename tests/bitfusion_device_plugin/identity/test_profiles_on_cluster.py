"""Every profile is served by its label: on a real API server, with the manifests' rights and policy."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping

import pytest

from bitfusion_device_plugin.identity.records import SECRET_TYPE
from bitfusion_device_plugin.identity.served import is_served
from tests.bitfusion_device_plugin.identity.running_identity import (
    NAME,
    SECRET,
    RunningIdentity,
    running_identity,
    token_id,
)
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.support.waiting import wait_until

LABEL = ("tests.bitfusion.io/profile", "served-here")  # other tests' profiles are none of this one's
PROFILE = dict([LABEL])
DO_NOT = {"bitfusion.io/identity": "false"}
DENIED = f"ValidatingAdmissionPolicy '{NAME}-account' with binding '{NAME}-account' denied"


@pytest.fixture(scope="module")
def identity(cluster: Cluster) -> Iterator[RunningIdentity]:
    with running_identity(cluster, "--most-gpus=2", profiles="=".join(LABEL)) as running:
        yield running


@pytest.fixture
def profile(identity: RunningIdentity) -> str:
    return identity.cluster.new_namespace(PROFILE, "profile")


def relabel(identity: RunningIdentity, namespace: str, labels: Mapping[str, str | None]) -> None:
    identity.cluster.client.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": dict(labels)}})


def until_gone(identity: RunningIdentity, namespace: str) -> None:
    """The Secret, and with it the token at the pool."""
    wait_until(lambda: identity.secret(namespace) is None, lambda: identity.process.log.read_text(), 30)
    wait_until(lambda: f"cluster/{namespace}" not in identity.names_in_force(), limit_s=30)


def test_a_profile_is_served_without_a_command_for_it_and_keeps_its_token_over_a_restart(
    identity: RunningIdentity, profile: str
) -> None:
    secret = identity.until_secret(profile)
    assert secret["type"] == SECRET_TYPE
    assert "Limits: gpus 2." in identity.until_event(profile, "Ready")
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{profile}/rolebindings"
    assert identity.cluster.client.get(roles)["items"] == []
    identity.process.stop()
    identity.process.start(limit_s=30)
    wait_until(lambda: identity.metric('bitfusion_identity_namespaces{state="ready"}') >= 1, "looked at", 30)
    after = identity.until_secret(profile)
    assert after["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]


def test_who_opts_out_is_not_served_and_who_is_taken_out_loses_what_was_made(
    identity: RunningIdentity, profile: str
) -> None:
    new = identity.cluster.new_namespace
    never = new({**PROFILE, **DO_NOT}), new({**PROFILE, "bitfusion.io/admission": "ignore"}), new()
    by_itself = new({"bitfusion.io/identity": "true"})
    first = token_id(identity.until_secret(profile))
    identity.until_secret(by_itself)
    relabel(identity, by_itself, {"bitfusion.io/identity": None})
    relabel(identity, profile, DO_NOT)
    until_gone(identity, profile)
    until_gone(identity, by_itself)
    assert [identity.secret(each) for each in never] == [None] * 3
    relabel(identity, profile, {"bitfusion.io/identity": None})
    identity.until_secret(profile, but=first)
    relabel(identity, profile, dict.fromkeys(PROFILE))
    until_gone(identity, profile)


def test_who_opted_out_while_the_controller_was_away_is_found_by_what_was_noted(
    identity: RunningIdentity, profile: str
) -> None:
    identity.until_secret(profile)
    identity.process.stop()
    relabel(identity, profile, DO_NOT)
    identity.process.start(limit_s=30)
    until_gone(identity, profile)
    path = f"/api/v1/namespaces/{identity.namespace}/configmaps/{NAME}"
    wait_until(lambda: profile not in identity.cluster.client.get(path).get("data", {}), "forgotten")


def test_what_somebody_writes_in_a_profile(identity: RunningIdentity, profile: str) -> None:
    """An edited Secret is written again, one of somebody else's never, a wrong limit is told."""
    client = identity.cluster.client
    foreign = client.create("/api/v1/namespaces", {"metadata": {"name": f"{profile}-foreign"}})
    theirs = f"/api/v1/namespaces/{profile}-foreign/secrets"
    made = client.create(theirs, {"metadata": {"name": SECRET}, "stringData": {"client.yaml": "mine"}})
    relabel(identity, foreign["metadata"]["name"], PROFILE)
    cure = f"kubectl delete secret bitfusion-client --namespace {profile}-foreign"
    assert cure in identity.until_event(f"{profile}-foreign", "ForeignSecret")
    before = identity.until_secret(profile)
    path = f"/api/v1/namespaces/{profile}"
    client.merge(f"{path}/secrets/{SECRET}", {"data": {"client.yaml": "eA=="}})
    client.merge(path, {"metadata": {"annotations": {"bitfusion.io/limit-gpus": "many"}}})  # it is looked at
    after = identity.until_secret(profile, but=token_id(before))
    assert after["data"]["client.yaml"] != "eA=="
    told = identity.until_event(profile, "WrongLimits")
    assert told == 'bitfusion.io/limit-gpus="many" must be a whole number from 1 to 100000'
    found = client.get(f"{theirs}/{SECRET}")
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_namespace_with_a_role_of_before_stays_served_also_when_the_role_goes(
    identity: RunningIdentity,
) -> None:
    namespace = identity.cluster.new_namespace(prefix="before")
    identity.opt_in(namespace)
    first = token_id(identity.until_secret(namespace))
    identity.cluster.kubectl("delete", "role,rolebinding", NAME, "--namespace", namespace)
    limit = {"metadata": {"labels": PROFILE, "annotations": {"bitfusion.io/limit-gpus": "1"}}}
    identity.cluster.client.merge(f"/api/v1/namespaces/{namespace}", limit)
    identity.until_secret(namespace, but=first)
    assert identity.events(namespace, "RoleMissing") == []


# --- what somebody with the account's token can do ---------------------------------------------------------


@pytest.fixture(scope="module")
def thief(identity: RunningIdentity) -> ApiClient:
    cluster = identity.cluster
    found = cluster.client_as(cluster.service_account_token(identity.namespace, NAME))
    probe = {"metadata": {"name": "policy-probe"}, "type": "Opaque"}

    def in_force() -> bool:
        try:
            found.create(f"/api/v1/namespaces/{identity.namespace}/secrets", probe, dryRun="All")
        except Refused as refusal:
            return DENIED in str(refusal)
        return False

    wait_until(in_force, "the policy is in force", 20)
    return found


def test_the_policys_expressions_fit_the_types_that_the_server_knows(
    identity: RunningIdentity, thief: ApiClient
) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{NAME}-account"
    found = wait_until(lambda: identity.cluster.client.get(path).get("status", {}).get("observedGeneration"))
    assert found
    assert identity.cluster.client.get(path)["status"].get("typeChecking", {}) == {}


SAID = (None, "true", "false", "other")
ADMISSION = (None, "ignore", "other")
HAS_LABEL = (None, LABEL[1], "another")


def test_the_policy_serves_the_namespaces_that_the_program_serves(
    identity: RunningIdentity, thief: ApiClient
) -> None:
    """The same rule in two languages, over all combinations of labels."""
    wrong = []
    namespace = identity.cluster.client.create("/api/v1/namespaces", {"metadata": {"name": "every-label"}})
    assert namespace["metadata"]["name"] == "every-label"
    identity.process.stop()  # it would write here, too
    try:
        for said, admission, label in itertools.product(SAID, ADMISSION, HAS_LABEL):
            labels = {"bitfusion.io/identity": said, "bitfusion.io/admission": admission, LABEL[0]: label}
            relabel(identity, "every-label", labels)
            expected = is_served({key: value for key, value in labels.items() if value is not None}, LABEL)
            if not settles(thief, expected):
                wrong.append(labels)
    finally:
        identity.process.start(limit_s=30)
    assert wrong == []


def settles(thief: ApiClient, served: bool) -> bool:
    """Whether the policy comes to this judgement: its view of the namespace follows within moments."""
    try:
        return wait_until(lambda: judged(thief) == served)
    except AssertionError:
        return False


def judged(thief: ApiClient) -> bool:
    try:
        thief.create("/api/v1/namespaces/every-label/secrets", body(), dryRun="All")
    except Refused as refusal:
        if "only in namespaces that are served" not in str(refusal):
            raise
        return False
    return True


def body(**changes: object) -> Object:
    labels = {"app.kubernetes.io/managed-by": NAME}
    return {"metadata": {"name": SECRET, "labels": labels}, "type": SECRET_TYPE, **changes}


TOKEN_OF = {"annotations": {"kubernetes.io/service-account.name": "default"}}
READ = ("get", "list", "watch", "delete", "deletecollection", "patch")


def test_no_secret_can_be_read_and_none_but_its_own_written(
    identity: RunningIdentity, thief: ApiClient, profile: str
) -> None:
    identity.until_secret(profile)
    elsewhere = identity.cluster.new_namespace(prefix="elsewhere")
    client = identity.cluster.client
    client.create(f"/api/v1/namespaces/{elsewhere}/secrets", body(type="Opaque", data={"x": "eA=="}))
    ours, theirs = (f"/api/v1/namespaces/{each}/secrets" for each in (profile, elsewhere))
    for path in (ours, theirs, "/api/v1/namespaces/kube-system/secrets"):
        for asked in (path, f"{path}/{SECRET}", f"{path}?watch=true"):
            refused(thief, "GET", asked, "cannot (get|list|watch) resource")
        refused(thief, "DELETE", path, "cannot deletecollection")
        # a deletion that waits for a finalizer would answer with the object, as a dry run, too
        for query in ("", "?propagationPolicy=Foreground", "?propagationPolicy=Foreground&dryRun=All"):
            refused(thief, "DELETE", f"{path}/{SECRET}{query}", "cannot delete resource")
    metadata = {"name": SECRET, **TOKEN_OF}
    for path in (ours, theirs, "/api/v1/namespaces/kube-system/secrets"):
        for kind in ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "Opaque"):
            refused(thief, "POST", path, DENIED, {"metadata": metadata, "type": kind})
        refused(thief, "POST", path, DENIED, {**body(), "metadata": {"name": "another"}})
    refused(thief, "POST", theirs, "only in namespaces that are served", body())
    refused(thief, "PUT", f"{theirs}/{SECRET}", DENIED, body(type="Opaque", data={"x": "eQ=="}))
    refused(thief, "PUT", f"{theirs}/another", "cannot update resource", body())


def test_somebody_elses_secret_in_a_served_namespace_cannot_be_replaced(
    identity: RunningIdentity, thief: ApiClient
) -> None:
    namespace = identity.cluster.new_namespace(prefix="theirs")
    path = f"/api/v1/namespaces/{namespace}/secrets"
    identity.cluster.client.create(path, {"metadata": {"name": SECRET}, "type": "Opaque"})
    relabel(identity, namespace, PROFILE)
    identity.until_event(namespace, "ForeignSecret")
    refused(thief, "PUT", f"{path}/{SECRET}", "change only Secrets that it created", body(type="Opaque"))
    refused(thief, "PUT", f"{path}/{SECRET}", "type: Invalid value: .*: field is immutable", body())


def refused(thief: ApiClient, method: str, path: str, why: str, sent: Object | None = None) -> None:
    with pytest.raises(Refused, match=why):
        thief.request(method, path, sent)


# --- many --------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(180)
def test_fifty_profiles_and_ten_later_are_each_served(identity: RunningIdentity) -> None:
    """It prints after how many seconds."""
    client, made = identity.cluster.client, {}

    def make(name: str, labels: Mapping[str, str]) -> None:
        metadata = {"name": name, "labels": dict(labels)}
        made[name] = time.monotonic()
        client.create("/api/v1/namespaces", {"metadata": metadata})

    def served(names: list[str]) -> dict[str, float]:
        """Seconds from the namespace to its Secret, by name."""
        found: dict[str, float] = {}

        def all_served() -> bool:
            secrets = client.get("/api/v1/secrets", fieldSelector=f"metadata.name={SECRET}")["items"]
            for name in {each["metadata"]["namespace"] for each in secrets}.intersection(names):
                found.setdefault(name, time.monotonic() - made[name])
            return len(found) == len(names)

        wait_until(all_served, lambda: f"{len(found)} of {len(names)}", 60)
        return found

    many = [f"many-{number}" for number in range(50)]
    for name in many:
        make(name, PROFILE)
    out = [f"many-out-{number}" for number in range(5)]
    for name in out:
        make(name, {**PROFILE, **DO_NOT})
    first = served(many)
    print(f"50 profiles at once: the slowest {max(first.values()):.1f} s, {len(first)} served")
    later = [f"later-{number}" for number in range(10)]
    for name in later:
        make(name, PROFILE)
    second = served(later)
    print(f"10 made later: the slowest {max(second.values()):.1f} s")
    assert [identity.secret(name) for name in out] == [None] * len(out)


def test_with_the_manifests_the_tokens_of_all_profiles_and_the_notes_go(
    identity: RunningIdentity, profile: str
) -> None:
    """The last one of this file: nothing is served after it."""
    opted_in = identity.cluster.new_namespace(prefix="by-role")
    identity.opt_in(opted_in)
    for namespace in (profile, opted_in):
        identity.until_secret(namespace)
    identity.process.stop()
    delete = ("delete", "--wait=false", "--namespace", identity.namespace)
    identity.cluster.kubectl(*delete, f"serviceaccount/{NAME}", f"clusterrole/{NAME}")
    wait_until(lambda: [identity.secret(each) for each in (profile, opted_in)] == [None] * 2, limit_s=60)
    notes = f"/api/v1/namespaces/{identity.namespace}/configmaps/{NAME}"
    wait_until(lambda: not identity.cluster.client.exists(notes), notes, 60)
