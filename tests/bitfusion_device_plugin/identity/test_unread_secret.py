"""Keeping a Secret without a right to read one: what is known, and what becomes of other people's writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_cluster.api.errors import Conflict, Forbidden
from bitfusion_device_plugin.identity.handed_out import HandedOut, HandedOutMap, handed_out
from bitfusion_device_plugin.identity.namespace_secret import NamespaceSecret
from bitfusion_device_plugin.identity.records import SECRET_TYPE, Identity, SecretRecord
from bitfusion_device_plugin.identity.secret_owner import KNOWN_S, SecretOwner
from bitfusion_device_plugin.identity.unread_secret import ProfileSecret, UnreadSecret
from tests.bitfusion_cluster.fake_api import FakeApi
from tests.bitfusion_cluster.faults import status

SECRETS, CONFIG_MAPS = "/api/v1/secrets", "/api/v1/configmaps"
OF_A = "/api/v1/namespaces/a/secrets"
NAME, MANAGER = "bitfusion-client", "bitfusion-identity"
NOW = 1_800_000_000.0


def identity(number: int) -> Identity:
    files = {"servers.conf": "servers", "client.yaml": f"token {number}", "ca.crt": "PEM"}
    return Identity(files, f"id{number}", NOW + number)


class Place:
    """An API server that lets nobody read Secrets but in namespaces with a Role."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.api.misbehave(status(403, "Forbidden", "no"), "get", "/api/v1/namespaces/a/secrets", times=1000)
        self.secrets = self.again()

    def again(self) -> ProfileSecret:
        """Another term, which knows nothing."""
        client = self.api.client()
        noted = HandedOutMap(client, "kubeflow", MANAGER)
        owner = SecretOwner(client, MANAGER)
        by_role = NamespaceSecret(client, MANAGER, owner)
        return ProfileSecret(by_role, UnreadSecret(client, MANAGER, owner, noted))

    def stored(self) -> dict[str, Any]:
        return self.api.object(SECRETS, "a", NAME) or {}

    def seen(self, secrets: ProfileSecret | None = None) -> SecretRecord:
        found = (secrets or self.secrets).read("a")
        assert found is not None
        return found


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place()
    yield found
    found.api.close()


def test_what_was_written_is_known_without_reading_it_also_to_the_next_leader(place: Place) -> None:
    assert place.secrets.read("a") is None
    place.secrets.create("a", identity(1), "wanted")
    assert place.stored()["type"] == SECRET_TYPE
    for secrets in (place.secrets, place.again()):
        found = place.seen(secrets)
        assert (found.is_ours, found.is_intact, found.wanted) == (True, True, "wanted")
        assert (found.token_id, found.renew_at) == ("id1", NOW + 1)
    assert place.again().names() == ("a",)
    verbs = {one.verb for one in place.api.requests if one.path.startswith(OF_A)}
    assert verbs == {"get", "post", "put"}, "get was refused each time"


def test_a_look_stores_nothing(place: Place) -> None:
    place.secrets.create("a", identity(1), "wanted")
    before = place.stored()
    place.seen()
    place.seen(place.again())
    assert place.stored() == before


def test_what_somebody_changed_is_ours_and_not_intact_until_it_is_written_again(place: Place) -> None:
    place.secrets.create("a", identity(1), "wanted")
    place.api.put(SECRETS, {**place.stored(), "data": {"client.yaml": "eA=="}})
    seen = place.seen()
    assert (seen.is_ours, seen.is_intact) == (True, False)
    place.secrets.update("a", seen, identity(2), "wanted")
    assert place.seen().token_id == "id2"
    assert set(place.stored()["data"]) == {"servers.conf", "client.yaml", "ca.crt"}


def test_a_secret_that_changes_after_the_look_is_not_overwritten(place: Place) -> None:
    place.secrets.create("a", identity(1), "wanted")
    seen = place.seen()
    place.api.put(SECRETS, {**place.stored(), "data": {"client.yaml": "eA=="}})
    with pytest.raises(Conflict):
        place.secrets.update("a", seen, identity(2), "wanted")
    with pytest.raises(Conflict):
        place.secrets.delete("a", seen)


def test_somebody_elses_secret_is_told_by_its_type(place: Place) -> None:
    place.api.put(
        SECRETS, {"metadata": {"name": NAME, "namespace": "a"}, "type": "Opaque", "data": {"x": "eA=="}}
    )
    assert place.seen().is_ours is False


def test_a_lost_note_costs_a_token_and_no_access(place: Place) -> None:
    """A crash between Secret and note, or a ConfigMap that somebody has deleted."""
    place.secrets.create("a", identity(1), "wanted")
    place.api.remove(CONFIG_MAPS, "kubeflow", MANAGER)
    later = place.again()
    seen = place.seen(later)
    assert (seen.is_ours, seen.is_intact, seen.wanted, seen.token_id) == (True, False, "", "")
    later.update("a", seen, identity(2), "wanted")
    assert place.seen(place.again()).token_id == "id2"


def test_what_is_taken_back_is_empty_and_belongs_to_an_owner_that_does_not_exist(place: Place) -> None:
    place.secrets.create("a", identity(1), "wanted")
    place.secrets.delete("a", place.seen())
    stored = place.stored()
    assert stored.get("data", {}) == {}
    (owner,) = stored["metadata"]["ownerReferences"]
    assert set(owner["uid"]) == {"0", "-"}
    place.secrets.forget("a")
    assert (place.secrets.names(), place.again().names()) == ((), ())
    # served again before the garbage collector came: it has no owner any more
    place.secrets.update("a", place.seen(), identity(2), "wanted")
    assert not place.stored()["metadata"]["ownerReferences"]


def test_where_no_owner_may_be_named_it_is_emptied(place: Place) -> None:
    place.secrets.create("a", identity(1), "wanted")
    seen = place.seen()
    place.api.misbehave(status(403, "Forbidden", "cannot set an ownerRef"), "put", OF_A)
    place.secrets.delete("a", seen)
    assert place.stored().get("data", {}) == {}
    assert not place.stored()["metadata"]["ownerReferences"]


def test_a_namespace_with_a_role_of_its_own_is_kept_by_that(place: Place) -> None:
    assert place.secrets.read("b") is None
    place.secrets.create("b", identity(1), "wanted")
    found = place.secrets.read("b")
    assert found is not None
    assert found.is_intact
    place.secrets.update("b", found, identity(2), "wanted")
    found = place.secrets.read("b")
    assert found is not None
    place.secrets.delete("b", found)
    assert place.api.object(SECRETS, "b", NAME) is None
    assert place.secrets.names() == ()


def test_without_the_components_rights_the_refusal_is_told_as_a_missing_role(place: Place) -> None:
    place.api.misbehave(status(403, "Forbidden", "no"), "put", OF_A)
    with pytest.raises(Forbidden):
        place.secrets.read("a")


@given(
    st.none()
    | st.text(max_size=30)
    | st.integers()
    | st.sampled_from(["{}", "[]", '{"version": 1}', "[" * 5000])
)
def test_whatever_stands_in_the_config_map_is_no_crash(value: object) -> None:
    assert handed_out(value) is None


@pytest.mark.parametrize("token_id", ["--gpus=2", "a b", "x" * 65])
def test_what_cannot_be_the_id_of_a_token_never_becomes_a_word_of_the_command(token_id: str) -> None:
    assert handed_out(f'{{"version": "7", "wanted": "w", "token_id": "{token_id}"}}') is None


def test_a_note_comes_back_as_it_was() -> None:
    api = FakeApi()
    try:
        what = HandedOut("7", "w", "id1", NOW)
        HandedOutMap(api.client(), "kubeflow", MANAGER).put("a", what)
        HandedOutMap(api.client(), "kubeflow", MANAGER).put("b", HandedOut("8", "w"))
        later = HandedOutMap(api.client(), "kubeflow", MANAGER)
        assert (later.get("a"), later.get("b"), later.get("c")) == (what, HandedOut("8", "w"), None)
    finally:
        api.close()


def test_what_is_written_belongs_to_the_controllers_role(place: Place) -> None:
    role = {"metadata": {"name": MANAGER, "uid": "of-the-role"}}
    place.api.put("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    place.secrets.create("a", identity(1), "wanted")
    (owner,) = place.stored()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ClusterRole", MANAGER, "of-the-role")
    place.secrets.update("a", place.seen(), identity(2), "wanted")
    assert place.stored()["metadata"]["ownerReferences"] == [owner]


def test_an_owner_that_was_deleted_and_made_again_is_known_after_a_minute(place: Place) -> None:
    """One that is no more would have every Secret collected at once."""
    now = [0.0]
    owner = SecretOwner(place.api.client(), MANAGER, lambda: now[0])
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    for uid in ("first", "second"):
        place.api.put(roles, {"metadata": {"name": MANAGER, "uid": uid}})
        for _ in range(3):
            assert [each["uid"] for each in owner.references()] == [uid]
        place.api.remove(roles, "", MANAGER)
        now[0] += KNOWN_S
    assert owner.references() == []
    assert len(place.api.requests) == 3
