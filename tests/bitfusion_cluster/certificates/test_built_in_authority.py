"""The built-in authority as two replicas live it: first start, renewals, what others do to its objects."""

from __future__ import annotations

import base64
import logging
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import Conflict, ServerError
from bitfusion_cluster.certificates.authority import Pair, new_authority
from bitfusion_cluster.certificates.authority_secret import Authorities, write_authorities
from bitfusion_cluster.certificates.built_in_authority import (
    TRUST_SETTLES,
    AuthoritySettings,
    BuiltInAuthority,
    NotTrusted,
)
from bitfusion_cluster.certificates.serving import ServingCertificate
from tests.bitfusion_cluster.certificates.stored_objects import StoredObjects

START = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
SECRET = "/api/v1/namespaces/kubeflow/secrets/the-ca"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/the-webhooks"
NAME = "bitfusion-notebook-controller.kubeflow.svc"


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def add(self, **time: float) -> None:
        self.now += timedelta(**time)


class Shown(ServingCertificate):
    """Remembers what it shows."""

    pair: Pair | None = None

    def use(self, pair: Pair) -> None:
        super().use(pair)
        self.pair = pair


class Replica:
    def __init__(self, objects: StoredObjects, clock: Clock, leads: bool) -> None:
        self.leads = leads
        self.shown = Shown()
        self.authority = BuiltInAuthority(
            cast(KubernetesApi, objects),
            self.shown,
            AuthoritySettings(
                name="the-controller",
                namespace="kubeflow",
                secret="the-ca",
                webhook_configuration="the-webhooks",
                names=(NAME,),
                labels={"app.kubernetes.io/part-of": "kubeflow-bitfusion"},
            ),
            is_leader=lambda: self.leads,
            now=clock,
        )
        self.step = self.authority.step


def configuration() -> dict[str, Any]:
    hooks = [{"name": f"{name}.bitfusion.io", "clientConfig": {"service": {"name": "x"}}} for name in "ab"]
    return {"metadata": {"name": "the-webhooks"}, "webhooks": hooks}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def objects() -> StoredObjects:
    stored = StoredObjects()
    stored.put(WEBHOOKS, configuration())
    return stored


@pytest.fixture
def leader(objects: StoredObjects, clock: Clock) -> Replica:
    return Replica(objects, clock, True)


@pytest.fixture
def follower(objects: StoredObjects, clock: Clock) -> Replica:
    return Replica(objects, clock, False)


def bundles(objects: StoredObjects) -> list[bytes]:
    hooks = objects.objects[WEBHOOKS]["webhooks"]
    return [base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks]


def trusted(objects: StoredObjects, replica: Replica, clock: Clock, known: list[bytes] | None = None) -> bool:
    """Whether an apiserver accepts what the replica shows, by the bundles of now or those it knows."""
    assert replica.shown.pair is not None
    for one in known or bundles(objects):
        if not one:
            return False
        verifier = PolicyBuilder().store(Store(x509.load_pem_x509_certificates(one))).time(clock())
        try:
            verifier.build_server_verifier(x509.DNSName(NAME)).verify(
                x509.load_pem_x509_certificate(replica.shown.pair.certificate), []
            )
        except x509.verification.VerificationError:
            return False
    return True


def test_the_first_start_of_two_replicas(
    objects: StoredObjects, clock: Clock, leader: Replica, follower: Replica
) -> None:
    follower.step()
    assert follower.shown.loaded
    assert not follower.authority.published
    assert bundles(objects) == [b"", b""]
    leader.step()
    follower.step()
    for replica in (leader, follower):
        assert trusted(objects, replica, clock)
        assert replica.authority.published
    secret = objects.objects[SECRET]
    assert secret["type"] == "kubernetes.io/tls"
    assert secret["metadata"]["labels"] == {"app.kubernetes.io/part-of": "kubeflow-bitfusion"}
    assert secret["metadata"]["ownerReferences"] == objects.owner_references(secret["metadata"]["namespace"])
    assert [request for request in objects.requests if not request.startswith("GET")] == [
        "POST kubeflow/secrets",
        "PATCH mutatingwebhookconfigurations/the-webhooks",
    ]


def test_who_creates_the_secret_second_takes_the_first_ones(
    objects: StoredObjects, clock: Clock, leader: Replica, follower: Replica
) -> None:
    def somebody_is_faster(method: str, path: str) -> None:
        if method == "POST":
            objects.before = None
            leader.step()

    objects.before = somebody_is_faster
    follower.step()
    assert trusted(objects, follower, clock)
    assert trusted(objects, leader, clock)


def test_in_peace_only_the_leader_asks_and_nothing_is_written(
    objects: StoredObjects, clock: Clock, leader: Replica, follower: Replica
) -> None:
    for replica in (leader, follower):
        replica.step()
    objects.requests.clear()
    for _ in range(14):
        clock.add(seconds=4)
        leader.step()
        follower.step()
    assert objects.requests == ["GET mutatingwebhookconfigurations/the-webhooks"] * 14


def test_an_emptied_bundle_is_written_again_at_the_next_look(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    leader.step()
    objects.put(WEBHOOKS, configuration())
    clock.add(seconds=4)
    leader.step()
    assert trusted(objects, leader, clock)


def test_a_bundle_of_one_webhook_alone_is_written(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    leader.step()
    changed = objects.objects[WEBHOOKS]
    changed["webhooks"][1]["clientConfig"]["caBundle"] = base64.b64encode(b"rubbish").decode()
    objects.put(WEBHOOKS, changed)
    leader.step()
    assert trusted(objects, leader, clock)


def test_webhooks_that_changed_places_meanwhile_are_looked_at_again(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    def turn_around(method: str, path: str) -> None:
        if method == "PATCH":
            objects.before = None
            changed = objects.objects[WEBHOOKS]
            changed["webhooks"].reverse()
            objects.put(WEBHOOKS, changed)

    objects.before = turn_around
    with pytest.raises(Conflict):
        leader.step()
    assert bundles(objects) == [b"", b""]
    leader.step()
    assert trusted(objects, leader, clock)


def test_leaves_are_renewed_after_two_thirds_of_their_life(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    leader.step()
    first = leader.shown.pair
    clock.add(days=59)
    leader.step()
    assert leader.shown.pair == first
    clock.add(days=2)
    leader.step()
    assert leader.shown.pair != first
    assert trusted(objects, leader, clock)


def test_the_authority_is_renewed_and_no_replica_is_ever_distrusted(
    objects: StoredObjects, clock: Clock, leader: Replica, follower: Replica
) -> None:
    leader.step()
    follower.step()
    old = bundles(objects)[0]
    clock.add(days=3650 * 2 / 3 - 1)
    for replica in (leader, follower):
        replica.step()  # their leaves were over long ago
    seen = {old}
    for _ in range(1000):
        clock.add(minutes=5, seconds=7)
        before = bundles(objects)
        for replica in (leader, follower):
            replica.step()
        seen.update(bundles(objects))
        for replica in (leader, follower):
            # by an apiserver that knows the newest bundle, and by one that does not yet
            assert trusted(objects, replica, clock)
            assert trusted(objects, replica, clock, before)
    both = bundles(objects)[0]
    assert both.endswith(old)
    assert both.count(b"BEGIN CERTIFICATE") == 2
    assert seen == {old, both}
    # the old one stays until it ends
    clock.add(days=3650 / 3)
    for replica in (leader, follower, leader):
        replica.step()
    assert bundles(objects)[0] == both[: -len(old)]
    assert trusted(objects, follower, clock)


def test_a_leaf_of_a_new_authority_is_shown_only_when_it_has_been_trusted_for_a_while(
    objects: StoredObjects, clock: Clock, leader: Replica, follower: Replica
) -> None:
    leader.step()
    follower.step()
    old = follower.shown.pair
    clock.add(days=3650 * 2 / 3 + 1)
    follower.step()  # first its own leaf, long over
    before = follower.shown.pair
    assert before != old
    clock.add(seconds=61)
    leader.step()
    follower.step()
    assert follower.shown.pair == before
    clock.add(seconds=TRUST_SETTLES.total_seconds() - 1)
    follower.step()
    assert follower.shown.pair == before
    clock.add(seconds=2)
    follower.step()
    assert follower.shown.pair != before
    assert trusted(objects, follower, clock)


def test_a_replica_whose_authority_is_renewed_as_it_starts_is_ready_with_the_old_one(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    objects.put(SECRET, {"data": write_authorities(Authorities(new_authority("old", START)))})
    clock.add(days=3000)
    leader.leads = False
    leader.step()
    assert not leader.authority.published
    leader.leads = True
    leader.step()
    assert leader.authority.published
    assert trusted(objects, leader, clock)


def test_an_authority_that_ended_while_nobody_ran_is_replaced_at_once(
    objects: StoredObjects, clock: Clock, leader: Replica, follower: Replica
) -> None:
    leader.step()
    clock.add(days=4000)
    late = Replica(objects, clock, False)
    with pytest.raises(NotTrusted, match="its certificate ended on"):
        late.step()
    leader.step()
    clock.add(seconds=61)
    late.step()
    assert trusted(objects, late, clock)


def test_a_secret_that_was_removed_is_put_back_unchanged(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    leader.step()
    before = objects.objects.pop(SECRET)["data"]
    clock.add(seconds=61)
    leader.step()
    assert objects.objects[SECRET]["data"] == before


def test_an_authority_that_an_admin_put_into_the_secret_is_taken_over(
    objects: StoredObjects, clock: Clock, leader: Replica, follower: Replica
) -> None:
    leader.step()
    follower.step()
    own = new_authority("of the admin", START)
    objects.put(SECRET, {"data": write_authorities(Authorities(own))})
    for _ in range(40):
        clock.add(seconds=4)
        leader.step()
        follower.step()
        assert trusted(objects, leader, clock)
        assert trusted(objects, follower, clock)
    assert bundles(objects)[0] == own.certificate


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "tls.crt is missing"),
        ({"tls.crt": "AA=="}, "tls.key is missing"),
        ({"tls.crt": "AA==", "tls.key": "%"}, "tls.key is not base64"),
        ({"tls.crt": "AA==", "tls.key": "AA=="}, "it holds no certificate in PEM format"),
    ],
)
def test_a_secret_that_holds_no_authority_is_told_with_what_to_do(
    objects: StoredObjects, leader: Replica, data: dict[str, str] | None, words: str
) -> None:
    objects.put(SECRET, {"data": data})
    with pytest.raises(NotTrusted) as caught:
        leader.step()
    assert str(caught.value) == (
        f"Secret the-ca in namespace kubeflow holds no usable certificate authority ({words}); "
        "delete it, and a new one is created"
    )


def test_a_secret_that_is_broken_while_a_replica_runs_does_not_keep_it_from_healing(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    leader.step()
    objects.put(SECRET, {"data": {}})
    objects.put(WEBHOOKS, configuration())
    clock.add(seconds=61)
    with pytest.raises(NotTrusted, match=r"tls\.crt is missing"):
        leader.step()
    assert trusted(objects, leader, clock)
    assert objects.objects[SECRET]["data"] == {}


def test_a_broken_predecessor_is_left_out(objects: StoredObjects, clock: Clock, leader: Replica) -> None:
    data = write_authorities(Authorities(new_authority("ca", START)))
    objects.put(SECRET, {"data": {**data, "previous.crt": "AA=="}})
    leader.step()
    assert trusted(objects, leader, clock)
    assert bundles(objects)[0].count(b"BEGIN") == 1


def test_a_missing_webhook_configuration_is_told_and_found_when_it_comes(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    del objects.objects[WEBHOOKS]
    with pytest.raises(NotTrusted) as caught:
        leader.step()
    assert str(caught.value) == (
        "MutatingWebhookConfiguration the-webhooks does not exist; apply it, or name another with "
        "--webhook-configuration"
    )
    assert leader.shown.loaded
    objects.put(WEBHOOKS, configuration())
    leader.step()
    assert leader.authority.published
    # removed for good, as an uninstallation begins: whoever was ready stays so
    del objects.objects[WEBHOOKS]
    with pytest.raises(NotTrusted):
        leader.step()
    assert leader.authority.published


def given_to_cert_manager(objects: StoredObjects, annotation: str, bundle: str = "Y2VydA==") -> None:
    found = objects.objects[WEBHOOKS]
    hooks = [
        {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in found["webhooks"]
    ]
    metadata = {"name": "the-webhooks", "annotations": {annotation: "kubeflow/x"}}
    objects.put(WEBHOOKS, {"metadata": metadata, "webhooks": hooks})


@pytest.mark.parametrize(
    "annotation",
    [
        "cert-manager.io/inject-ca-from",
        "cert-manager.io/inject-ca-from-secret",
        "cert-manager.io/inject-apiserver-ca",
    ],
)
def test_a_leader_does_not_write_what_has_become_cert_managers(
    objects: StoredObjects, clock: Clock, leader: Replica, annotation: str
) -> None:
    leader.step()
    given_to_cert_manager(objects, annotation)
    with pytest.raises(NotTrusted) as told:
        leader.step()
    assert str(told.value) == (
        "caBundle of MutatingWebhookConfiguration the-webhooks belongs to cert-manager (annotation "
        f"{annotation}) and is not written here; give this replica cert-manager's certificate with "
        "--certificate-folder, or remove the annotation"
    )
    assert bundles(objects) == [b"cert", b"cert"]
    # It was ready and serves on, until the roll-out replaces it.
    assert leader.authority.published


def test_a_leader_whose_look_was_just_before_it_became_cert_managers_is_refused(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    def meanwhile(method: str, path: str) -> None:
        if method == "PATCH" and path == WEBHOOKS:
            objects.before = None
            given_to_cert_manager(objects, "cert-manager.io/inject-ca-from")

    objects.before = meanwhile
    with pytest.raises(Conflict):
        leader.step()
    assert bundles(objects) == [b"cert", b"cert"]


def test_a_bundle_that_is_no_longer_cert_managers_is_written_again(
    objects: StoredObjects, clock: Clock, leader: Replica
) -> None:
    given_to_cert_manager(objects, "cert-manager.io/inject-ca-from")
    with pytest.raises(NotTrusted):
        leader.step()
    assert not leader.authority.published
    objects.put(WEBHOOKS, configuration())
    leader.step()
    assert trusted(objects, leader, clock)
    assert leader.authority.published


def test_trouble_is_logged_once_and_does_not_end_the_loop(
    objects: StoredObjects, leader: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    class FewTurns:
        turns = 5

        def is_set(self) -> bool:
            return self.turns == 0

        def wait(self, seconds: float) -> bool:
            assert 0 < seconds < 40
            self.turns -= 1
            if self.turns == 2:
                objects.before = None
            return False

    def trouble(method: str, path: str) -> None:
        raise ServerError(500, "InternalError", "etcd is away")

    objects.before = trouble
    with caplog.at_level(logging.WARNING):
        leader.authority.run(cast(Any, FewTurns()))
    assert [record.getMessage() for record in caplog.records] == ["500 InternalError: etcd is away"]
    assert leader.authority.published
