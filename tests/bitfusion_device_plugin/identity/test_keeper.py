"""Keeping Secrets right through everything that fails: the API server, the pool, other people's writes."""

from __future__ import annotations

import base64
import copy
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_cluster.leading.term import NotLeading
from bitfusion_cluster.watching.cache import Cache
from bitfusion_cluster.watching.work_queue import WorkQueue
from bitfusion_device_plugin.identity.decisions import Step
from bitfusion_device_plugin.identity.keeper import EVERYTHING, SETTLE_S, Keeper, KeeperContext
from bitfusion_device_plugin.identity.limits import LimitRules, Limits
from bitfusion_device_plugin.identity.metrics import IdentityMetrics
from bitfusion_device_plugin.identity.quotas import NamespaceQuotas, QuotaRecord
from bitfusion_device_plugin.identity.records import Identity, NamespaceRecord
from bitfusion_device_plugin.identity.served import Profiles
from bitfusion_device_plugin.identity.sources import NoIdentity
from tests.bitfusion_cluster.fake_api import FakeApi
from tests.bitfusion_cluster.faults import status
from tests.support.waiting import wait_until

SECRETS, EVENTS = "/api/v1/secrets", "/api/v1/events"
SECRET = "/api/v1/namespaces/a/secrets"
NAME = "bitfusion-client"
NOW = 1_800_000_000.0
NO_RIGHT = (
    'secrets "bitfusion-client" is forbidden: User "system:serviceaccount:kubeflow:bitfusion-identity" '
    'cannot get resource "secrets" in API group "" in the namespace "a"'
)


class Pool:
    """A source that counts, and fails when it is told to."""

    def __init__(self) -> None:
        self.files = "files 1"
        self.asked: list[tuple[str, Limits, str]] = []
        self.revoked: list[str] = []
        self.known: dict[str, frozenset[str]] | None = {}
        self.fails: Exception | None = None
        self.now = NOW
        self.most_units = 1000.0
        self.has_limits = True

    def fingerprint(self) -> str:
        return self.files

    def identity(self, namespace: str, limits: Limits, keep: str) -> Identity:
        self._fail()
        self.asked.append((namespace, limits, keep))
        number = len(self.asked)
        files = {"servers.conf": self.files, "client.yaml": f"token {number}", "ca.crt": "PEM"}
        lowered = {"units": self.most_units} if limits.get("units", 0) > self.most_units else {}
        return Identity(files, f"id{number}", self.now + 200, self.now + 300, lowered)

    def revoke(self, namespace: str) -> int:
        self._fail()
        self.revoked.append(namespace)
        return 1

    def in_force(self) -> Mapping[str, frozenset[str]] | None:
        self._fail()
        return self.known

    def _fail(self) -> None:
        if self.fails is not None:
            raise self.fails


class Room:
    """A keeper with namespace ``a`` opted in."""

    def __init__(self, api: FakeApi, profiles: Profiles | None = None) -> None:
        self.api = api
        self.pool = Pool()
        self.leading = True
        self.registry = CollectorRegistry()
        self.namespaces: Cache[NamespaceRecord] = Cache()
        self.quotas = NamespaceQuotas(lambda namespace: None)
        self.queue = WorkQueue(first_delay=1000.0, longest_delay=1000.0)
        self.keeper = Keeper(
            KeeperContext(
                api.client(),
                "bitfusion-identity",
                "kubeflow",
                self.pool,
                LimitRules(most=(("gpus", 4.0),)),
                IdentityMetrics(self.registry),
                "replica",
                lambda: self.leading,
                lambda: self.pool.now,
                profiles,
            ),
            self.namespaces,
            self.quotas,
            self.queue,
        )
        self.opt_in()

    def opt_in(self, *limits: tuple[str, str]) -> None:
        self.namespaces.put(NamespaceRecord("a", "uid-a", False, limits))

    def allow(self, units: int, name: str = "gpus") -> None:
        """The administrator sets a quota."""
        self.quotas.cache.put(QuotaRecord("a", name, units))

    def opt_out(self) -> None:
        self.namespaces.remove(("", "a"))

    def work(self) -> None:
        self.keeper.work_on(("", "a"))

    def token(self) -> str:
        """What the Secret's client.yaml says; empty without one."""
        secret = self.api.object(SECRETS, "a", NAME)
        return "" if secret is None else base64.b64decode(secret["data"]["client.yaml"]).decode()

    def events(self) -> list[tuple[str, str]]:
        return [(one["reason"], one["message"]) for one in self.api.objects(EVENTS)]

    def state(self, name: str) -> float | None:
        return self.registry.get_sample_value("bitfusion_identity_namespaces", {"state": name})


@pytest.fixture
def room() -> Iterator[Room]:
    api = FakeApi()
    yield Room(api)
    api.close()


def test_a_secret_is_made_and_then_left_alone_until_it_is_due(room: Room) -> None:
    assert room.keeper.keep("a").step is Step.CREATE
    assert room.keeper.keep("a").step is Step.NOTHING
    assert (room.token(), room.state("ready")) == ("token 1", 1)
    assert room.pool.asked == [("a", {"gpus": 4.0}, "")]
    renewal = room.registry.get_sample_value("bitfusion_identity_next_renewal_timestamp_seconds")
    assert renewal == NOW + 200
    room.pool.now += 200
    assert room.keeper.keep("a").step is Step.UPDATE
    assert (room.token(), room.pool.asked[-1][2]) == ("token 2", "id1")


def test_it_is_looked_at_again_when_it_is_due(room: Room) -> None:
    room.work()
    assert room.queue.depth() == 1
    assert room.queue.get(0) is None
    room.pool.now += 1000  # due since long: at once
    room.work()
    room.pool.now += 1000
    room.keeper.work_on(("", "a"))
    assert room.token() == "token 3"


@pytest.mark.parametrize("code", [403, 500, 409])
def test_what_was_issued_and_could_not_be_written_is_written_later(room: Room, code: int) -> None:
    room.api.misbehave(status(code, "Why", "no"), "post", SECRET, times=2)
    for _ in range(3):
        room.work()
    assert (room.token(), len(room.pool.asked)) == ("token 1", 1)


def test_what_is_written_later_is_what_is_wanted_then(room: Room) -> None:
    room.api.misbehave(status(500), "post", SECRET)
    room.work()
    room.opt_in(("bitfusion.io/limit-gpus", "1"))
    room.work()
    assert (room.token(), room.pool.asked[-1][1]) == ("token 2", {"gpus": 1.0})


def test_a_missing_role_is_told_once_with_its_cure_and_no_token_is_asked_for(room: Room) -> None:
    room.api.misbehave(status(403, "Forbidden", NO_RIGHT), "get", SECRET, times=3)
    for _ in range(3):
        room.work()
    ((reason, message),) = room.events()
    assert reason == "BitfusionIdentityRoleMissing"
    assert message.endswith("run: kubectl apply --namespace a -k manifests/namespace/kubeflow")
    assert (room.pool.asked, room.state("no_role")) == ([], 1)
    assert room.api.count("post", path="/api/v1/namespaces/a/events") == 1


@pytest.mark.parametrize(
    "why",
    [
        'secrets "bitfusion-client" is forbidden: exceeded quota: small, requested: count/secrets=1',
        'admission webhook "validation.gatekeeper.sh" denied the request: [labels] team is missing',
        "ValidatingAdmissionPolicy 'no-secrets' with binding 'no-secrets' denied request: not on Fridays",
        'secrets "bitfusion-client" is forbidden: unable to create new content in namespace a because it is '
        "being terminated",
    ],
)
def test_what_refuses_a_secret_is_not_taken_for_a_missing_role(room: Room, why: str) -> None:
    room.api.misbehave(status(403, "Forbidden", why), "post", SECRET)
    room.work()
    assert room.events() == [
        ("BitfusionIdentityRefused", f"Secret bitfusion-client cannot be written here: {why}")
    ]
    assert room.state("failed") == 1


def test_a_pool_that_is_away_leaves_secrets_as_they_are(room: Room) -> None:
    room.work()
    room.pool.now += 200
    room.pool.fails = NoIdentity("pool service at pool:56001 cannot be reached: connection refused")
    room.work()
    assert (room.token(), room.state("no_token")) == ("token 1", 1)
    assert (
        "BitfusionIdentityNotIssued",
        "No token of the Bitfusion pool could be obtained; the controller tries again: pool service at "
        "pool:56001 cannot be reached: connection refused",
    ) in room.events()
    room.keeper.work_on(EVERYTHING)  # cannot be listed either, which harms nobody
    room.pool.fails = None
    room.work()
    assert (room.token(), room.state("ready")) == ("token 2", 1)


def test_a_token_that_the_pool_does_not_know_any_more_is_replaced(room: Room) -> None:
    room.work()
    room.pool.known = {"a": frozenset({"id1"})}
    room.keeper.look_at_everything()
    room.work()
    assert room.token() == "token 1"
    room.pool.known = {}
    room.keeper.look_at_everything()
    room.work()
    room.work()  # the new one is known without asking again
    assert room.token() == "token 2"


def test_a_token_issued_while_the_pool_is_asked_for_all_is_known_although_the_answer_has_it_not(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = dict[str, frozenset[str]]()

    def in_force() -> Mapping[str, frozenset[str]]:
        room.work()  # another thread's
        return answer

    monkeypatch.setattr(room.pool, "in_force", in_force)
    room.keeper.look_at_everything()
    monkeypatch.undo()
    room.work()
    assert room.token() == "token 1"
    room.keeper.look_at_everything()  # now the pool says that it does not know it
    room.work()
    assert room.token() == "token 2"


def test_who_opted_out_while_nobody_looked_is_found_by_the_tokens(room: Room) -> None:
    room.work()
    room.opt_out()
    room.pool.known = {"a": frozenset({"id1"}), "gone": frozenset({"id9"})}
    room.keeper.look_at_everything()
    found = {room.queue.get(0), room.queue.get(0)}
    assert found == {("", "a"), ("", "gone")}
    for key in found:
        assert key is not None
        room.keeper.work_on(key)
    assert room.api.object(SECRETS, "a", NAME) is None
    assert sorted(room.pool.revoked) == ["a", "gone"]


def test_what_was_handed_out_unread_is_taken_back_although_neither_pool_nor_label_tells_of_it(
    room: Room,
) -> None:
    """Also of profiles whose label is no longer the setting's, after a restart."""
    room.api.misbehave(status(403, "Forbidden", NO_RIGHT), "get", SECRET, times=100)
    profiles = ("team", "a")
    before = Room(room.api, profiles)
    before.work()
    assert before.token() == "token 1"
    after = Room(room.api, profiles)
    after.opt_out()
    after.pool.known = None  # as where files are handed out
    after.keeper.look_at_everything()
    assert after.queue.get(0) == ("", "a")
    after.work()
    secret = room.api.object(SECRETS, "a", NAME)
    assert secret is not None
    assert "data" not in secret, "what is left is the garbage collector's"
    after.keeper.look_at_everything()
    assert after.queue.get(0) is None, "and forgotten"


def test_a_policy_that_refuses_is_told(room: Room) -> None:
    why = "ValidatingAdmissionPolicy 'bitfusion-identity-account' denied request: only in namespaces"
    room.api.misbehave(status(422, "Invalid", why), "post", SECRET)
    room.work()
    assert room.events() == [
        ("BitfusionIdentityRefused", f"Secret bitfusion-client cannot be written here: {why}")
    ]


def test_an_opt_out_without_a_role_or_with_a_pool_that_is_away_is_finished_later(room: Room) -> None:
    room.work()
    room.opt_out()
    room.pool.fails = NoIdentity("away")
    room.work()
    assert room.api.object(SECRETS, "a", NAME) is None
    room.pool.fails = None
    room.api.misbehave(status(403, "Forbidden", NO_RIGHT), "get", SECRET)
    room.work()
    assert room.pool.revoked == ["a"]
    assert room.state("ready") == 0


def test_a_namespace_that_ends_keeps_its_token_for_its_pods_last_words_until_it_is_gone(room: Room) -> None:
    room.work()
    room.pool.now += 1000  # its renewal is due since long
    room.namespaces.put(NamespaceRecord("a", "uid-a", True, ()))
    before = room.api.count(path=SECRET)
    room.work()
    assert (room.pool.revoked, len(room.pool.asked)) == ([], 1)
    assert room.api.count(path=SECRET) == before, "its Secret goes with it"
    assert room.queue.get(0.3) is None, "nothing is due in a namespace that ends"
    room.opt_out()
    room.work()
    assert room.pool.revoked == ["a"]


def test_a_secret_that_somebody_edited_is_written_again_as_a_whole(room: Room) -> None:
    room.work()
    secret: dict[str, Any] = room.api.object(SECRETS, "a", NAME) or {}
    secret["data"].update({"client.yaml": "eA==", "more": "eA=="})
    room.api.put(SECRETS, secret)
    room.work()
    after = room.api.object(SECRETS, "a", NAME)
    assert after is not None
    assert (room.token(), sorted(after["data"])) == ("token 2", ["ca.crt", "client.yaml", "servers.conf"])


@pytest.mark.parametrize("written", ["--gpus=2", "id\0", "id 1"])
def test_what_somebody_wrote_for_the_tokens_id_never_becomes_a_word_of_the_command(
    room: Room, written: str
) -> None:
    room.work()
    secret: dict[str, Any] = room.api.object(SECRETS, "a", NAME) or {}
    secret["metadata"]["annotations"]["bitfusion.io/identity-token"] = written
    room.api.put(SECRETS, secret)
    room.work()
    after = room.api.object(SECRETS, "a", NAME)
    assert after is not None
    assert after["metadata"]["annotations"]["bitfusion.io/identity-token"] == "id2"
    assert room.pool.asked[1:] == [("a", {"gpus": 4.0}, "")]


def test_a_secret_that_changes_meanwhile_is_not_overwritten(room: Room) -> None:
    room.work()
    room.pool.files = "files 2"

    def adopted(handler: Any) -> None:
        """Somebody makes it theirs right after our look."""
        seen: dict[str, Any] = room.api.object(SECRETS, "a", NAME) or {}
        theirs = copy.deepcopy(seen)
        theirs["metadata"]["labels"] = {}
        room.api.put(SECRETS, theirs)
        handler.answer(200, seen)

    room.api.misbehave(adopted, "get", SECRET)
    room.work()
    room.work()
    assert room.token() == "token 1"
    assert room.events()[-1][0] == "BitfusionIdentityForeignSecret"


def test_who_does_not_lead_any_more_issues_and_writes_nothing(room: Room) -> None:
    room.leading = False
    with pytest.raises(NotLeading):
        room.keeper.keep("a")
    room.opt_out()
    with pytest.raises(NotLeading):
        room.keeper.keep("a")
    room.work()  # the loop lives on
    assert (room.pool.asked, room.pool.revoked, room.token()) == ([], [], "")


def test_a_bug_ends_no_thread(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.pool.fails = RuntimeError("bug")
    thread = threading.Thread(target=room.keeper.work)
    thread.start()
    room.queue.add(("", "a"))
    wait_until(lambda: "identity not kept" in caplog.text, "the bug is told")
    room.pool.fails = None
    room.queue.add(("", "a"))
    wait_until(lambda: room.token() == "token 1", "a token")
    room.queue.close()
    thread.join()


def test_only_the_one_secret_is_ever_asked_for_and_none_is_listed(room: Room) -> None:
    room.work()
    room.pool.now += 200
    room.work()
    room.opt_out()
    room.work()
    asked = [(one.verb, one.path) for one in room.api.requests if "/secrets" in one.path]
    assert {path for verb, path in asked if verb != "post"} == {f"{SECRET}/{NAME}"}
    assert {verb for verb, _ in asked} == {"get", "post", "patch", "delete"}


def test_a_wrong_limit_is_told_and_the_most_holds(room: Room) -> None:
    room.opt_in(("bitfusion.io/limit-gpus", "99"))
    room.work()
    assert room.pool.asked[-1][1] == {"gpus": 4.0}
    assert room.events()[0] == (
        "BitfusionIdentityWrongLimits",
        "bitfusion.io/limit-gpus is 99, and at most 4 is allowed",
    )


def test_a_quota_is_the_tokens_limit_and_a_changed_one_reaches_it(room: Room) -> None:
    room.allow(150)
    room.work()
    assert room.pool.asked[-1] == ("a", {"gpus": 4.0, "units": 150.0}, "")
    assert "Limits: gpus 4, units 150." in room.events()[-1][1]
    room.work()
    assert len(room.pool.asked) == 1
    room.allow(0)
    room.work()
    assert room.pool.asked[-1] == ("a", {"gpus": 4.0, "units": 0.0}, "id1")
    assert room.token() == "token 2"
    room.quotas.cache.remove(("a", "gpus"))
    room.work()
    assert room.pool.asked[-1][1] == {"gpus": 4.0}


def test_a_quota_above_what_the_issuer_gives_is_lowered_told_and_renewed_all_the_same(room: Room) -> None:
    room.pool.most_units = 200.0
    room.allow(300)
    room.work()
    assert room.events() == [
        (
            "BitfusionIdentityLimitsLowered",
            "This namespace may have units 300 of the Bitfusion pool, but the pool's issuer gives at "
            "most units 200, which applies. For more, the pool's administrator must create an issuer "
            "with --may-issue-units 300 and delete Secret bitfusion-client here, which is created again "
            "within ten minutes.",
        ),
        (
            "BitfusionIdentityReady",
            "Secret bitfusion-client gives this namespace access to the Bitfusion pool. Limits: gpus 4, "
            "units 200.",
        ),
    ]
    assert room.state("ready") == 1
    room.pool.now += 200
    room.work()
    assert (room.token(), len(room.events())) == ("token 2", 2)
    # what the Event advises
    room.pool.most_units = 300.0
    room.api.remove(SECRETS, "a", NAME)
    room.keeper.work_on(EVERYTHING)
    room.work()
    assert "Limits: gpus 4, units 300." in room.events()[-1][1]


def test_a_quota_that_is_changed_all_the_time_ends_no_secret_that_pods_still_have(room: Room) -> None:
    """The pool keeps three secrets of a name: the first is still in force after two changes."""
    room.work()
    for units in (100, 200, 300, 400):
        room.allow(units)
        room.work()
    assert [limits.get("units") for _, limits, _ in room.pool.asked] == [None, 100.0, 200.0]
    room.pool.now += SETTLE_S
    room.work()
    assert room.pool.asked[-1][1]["units"] == 400.0
    assert room.token() == "token 4"


def test_what_is_put_off_is_done_once_the_time_has_come(room: Room) -> None:
    room.work()
    for units in (100, 200):
        room.allow(units)
        room.work()
    room.pool.now += SETTLE_S - 0.2
    room.allow(300)
    room.work()
    assert room.token() == "token 3"
    assert room.queue.get(5) == ("", "a")


def test_files_that_are_handed_out_have_no_limits_and_none_are_claimed(room: Room) -> None:
    room.pool.has_limits = False
    room.allow(150)
    room.opt_in(("bitfusion.io/limit-gpus", "99"))
    room.work()
    assert room.pool.asked == [("a", {}, "")]
    ((reason, message),) = room.events()
    assert (reason, message.endswith("Limits: none.")) == ("BitfusionIdentityReady", True)
    room.allow(0)
    room.work()
    assert len(room.pool.asked) == 1, "a quota changes nothing of the files"
