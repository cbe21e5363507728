"""A GPU pod and its Secret: made one after the other, and none is left where the second is not taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs

import pytest

from bitfusion_client.command.log_output import LogOutput
from bitfusion_client.errors import PodRefused, WaitTimedOut
from bitfusion_client.gpu_pods.settings import DEFAULT_SETTINGS
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods.api.account import Account
from bitfusion_pods.api.client import Api, ApiError, ApiUnreachable
from bitfusion_pods.command import making, waiting
from bitfusion_pods.command.making import Making
from bitfusion_pods.command.notebook_pod import NotebookPod
from bitfusion_pods.command.runs import Runs
from bitfusion_pods.command.telling import Telling
from bitfusion_pods.command.waiting import Waiting
from bitfusion_pods.command.where import Where
from bitfusion_pods.places.stages import PATIENCE, Patience
from bitfusion_pods.pod.cannot_copy import FilesElsewhere
from tests.pods.pod.notebook_pods import UID, claim, notebook, template

PODS, SECRETS = "/api/v1/namespaces/team-a/pods", "/api/v1/namespaces/team-a/secrets"
FILES: dict[str, bytes | str] = {"agent.zip": b"PK", "tls.key": "key"}
EXISTS = ApiError(409, "AlreadyExists", "it already exists")
CONFLICT = ApiError(
    409,
    "Conflict",
    'Operation cannot be fulfilled on resourcequotas "q": the object has been modified; please apply your '
    "changes to the latest version and try again",
)

Object = dict[str, Any]


class Server:
    """Pods and Secrets of a namespace. A pod runs once its Secret is there, which goes with it.

    Attributes:
        answers: What is answered to the creation of each in turn instead; None: as usual.
        lost: Whether what is answered so was done all the same.
        nodes: Those that may be read.
        scheduler: Why no pod gets a node; empty: each does.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.secrets: dict[str, Object] = {}
        self.answers: dict[str, list[BaseException | None]] = {PODS: [], SECRETS: []}
        self.lost = False
        self.nodes: dict[str, Object] = {}
        self.scheduler = ""
        self.made: list[str] = []

    def create(self, way: str, body: Mapping[str, Any]) -> Object:
        answers = self.answers[way]
        answer = answers.pop(0) if answers else None
        name = body["metadata"]["name"]
        if answer is None or self.lost:
            kept = self.pods if way == PODS else self.secrets
            assert name not in kept
            metadata = {**body["metadata"], "uid": f"uid-{len(self.made)}", "resourceVersion": "1"}
            kept[name] = {**body, "metadata": metadata, "status": {"phase": "Pending"}}
            self.made.append(way)
        if answer is not None:
            raise answer
        return kept[name]

    def get(self, way: str) -> Object:
        path, _, query = way.partition("?")
        if path == PODS:
            label, _, value = parse_qs(query)["labelSelector"][0].partition("=")
            labels = [(pod, pod["metadata"]["labels"]) for pod in self.pods.values()]
            return {"items": [pod for pod, has in labels if value in ("", has[label])]}
        kept = self.nodes if path.startswith("/api/v1/nodes/") else self.pods
        found = kept.get(path.rpartition("/")[2])
        if found is None:
            raise ApiError(404, "NotFound", "not found")
        return found

    find, find_readable, _unless = Api.find, Api.find_readable, Api._unless

    def delete(self, way: str) -> None:
        pod = self.pods.pop(way.rpartition("/")[2], None)
        for name, secret in list(self.secrets.items()):
            (owner,) = secret["metadata"]["ownerReferences"]
            if pod is not None and owner["uid"] == pod["metadata"]["uid"]:
                del self.secrets[name]

    def watch(self, way: str, version: str) -> Iterator[Object | None]:
        name = way.rpartition("%3D")[2]
        pod = self.pods[name]
        if self.scheduler:
            condition = {"type": "PodScheduled", "status": "False", "message": self.scheduler}
            pod["status"] = {"phase": "Pending", "conditions": [condition]}
        elif name in self.secrets:
            state = {"name": "program", "state": {"running": {"startedAt": "2026-11-26T00:00:00Z"}}}
            pod["status"] = {"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": [state]}
        yield {"type": "MODIFIED", "object": pod}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(waiting, "PAUSE", 0.0)
    return Server()


Make = Callable[..., Making]


@pytest.fixture
def making_at() -> Iterator[Make]:
    """Makes one for a server; in the end its pod is deleted, as `bitfusion run` does."""
    made: list[Making] = []

    def make(server: Server, timeout: float | None = None, **owner: Any) -> Making:
        made.append(new_making(server, timeout, **owner))
        return made[-1]

    yield make
    for each in made:
        each.delete()


def new_making(
    server: Server,
    timeout: float | None,
    container: str = "digits",
    budget: GpuRequest | None = None,
    uid: str = UID,
    mode: str = "ReadWriteMany",
) -> Making:
    names = "team-a", "digits-0", "digits", container
    where = Where(Account("h", 1, ""), DEFAULT_SETTINGS, *names, budget, "/x")
    pod, spec = notebook(), template()
    for each in (pod, spec):  # whose containers are alike
        each["spec"]["containers"].append({**each["spec"]["containers"][0], "name": "second"})
    pod["metadata"]["uid"] = uid
    owner = NotebookPod(pod, container, spec, {"digits-home": claim(mode)})
    wait = Waiting(GpuRequest(1, timeout=timeout), Telling(LogOutput(), {}))
    return Making(server, where, owner, FILES, Runs(f"test-{os.getpid()}"), wait)  # type: ignore[arg-type]


def test_the_secret_is_made_for_the_pod_just_made(server: Server, making_at: Make) -> None:
    run = making_at(server)
    assert run.start().address == "10.0.0.7"
    assert server.made == [PODS, SECRETS]
    (secret,) = server.secrets.values()
    assert secret["metadata"]["name"] == run.name
    (owner,) = secret["metadata"]["ownerReferences"]
    assert owner["uid"] == server.pods[run.name]["metadata"]["uid"]
    assert run.delete() == ""
    assert not server.pods
    assert not server.secrets


def test_after_a_lost_answer_the_secret_is_made_for_the_pod_that_there_is(
    server: Server, making_at: Make
) -> None:
    server.answers[PODS], server.lost = [EXISTS], True
    run = making_at(server)
    run.start()
    (secret,) = server.secrets.values()
    (owner,) = secret["metadata"]["ownerReferences"]
    assert owner["uid"] == server.pods[run.name]["metadata"]["uid"] == "uid-0"


@pytest.mark.parametrize("answer", [CONFLICT, EXISTS])
def test_a_conflict_is_no_pod_that_there_is(
    server: Server, making_at: Make, answer: ApiError, capfd: pytest.CaptureFixture[str]
) -> None:
    server.answers[PODS] = [answer]
    run = making_at(server)
    run.start()
    assert server.made == [PODS, SECRETS]
    assert "why: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            ApiError(
                403,
                "Forbidden",
                'secrets is forbidden: User "system:serviceaccount:team-a:default-viewer" cannot create '
                'resource "secrets" in API group "" in the namespace "team-a"',
            ),
            "this notebook may not create secrets in the namespace team-a",
        ),
        (
            ApiError(
                403,
                "Forbidden",
                'secrets "x" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=2, '
                "limited: secrets=2",
            ),
            "quota q: 2 of 2 secrets are in use, 1 more requested",
        ),
        (
            ApiError(
                422, "Invalid", 'Secret "x" is invalid: data: Too long: may not be more than 1048576 bytes'
            ),
            "the cluster refuses the pod's Secret: ",
        ),
        (
            ApiError(413, "RequestEntityTooLarge", "limit is 3145728"),
            "the cluster refuses the pod's Secret: ",
        ),
    ],
)
def test_a_secret_that_is_refused_is_told_and_leaves_no_pod(
    server: Server, making_at: Make, answer: ApiError, words: str
) -> None:
    server.answers[SECRETS] = [answer]
    run = making_at(server)
    with pytest.raises(PodRefused) as caught:
        run.start()
    assert words in caught.value.user_message
    assert "What to do: " in caught.value.user_message
    assert server.made == [PODS]
    assert run.delete() == ""  # as `bitfusion run` does whatever has come
    assert not server.pods


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        EXISTS,
        ApiError(500, "InternalError", "etcd"),
        ApiError(429, "", ""),
        ApiUnreachable("no answer within 10 s"),
    ],
)
def test_what_may_pass_is_tried_again_with_another_pod(
    server: Server, making_at: Make, answer: Exception, lost: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    server.answers[SECRETS], server.lost = [answer], lost
    run = making_at(server)
    run.start()
    assert list(server.pods) == list(server.secrets) == [run.name]
    assert server.made == ([PODS, SECRETS] if lost else [PODS]) + [PODS, SECRETS]
    assert "why: " in capfd.readouterr().err


def test_what_does_not_pass_ends_with_the_wait_and_leaves_no_pod(server: Server, making_at: Make) -> None:
    server.answers[SECRETS] = [ApiError(500, "InternalError", "etcd")] * 10_000
    run = making_at(server, timeout=0.2)
    with pytest.raises(WaitTimedOut) as caught:
        run.start()
    assert "the cluster's API is busy (500): etcd" in caught.value.user_message
    assert run.delete() == ""
    assert not server.pods


def test_no_second_pod_is_made_beside_one_that_does_not_go(
    server: Server, making_at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "GONE_WITHIN", 0.1)
    server.answers[SECRETS] = [ApiUnreachable("away")]
    gone = server.delete
    tries: list[str] = []

    def delete(way: str) -> None:
        tries.append(way)
        if len(tries) < 3:
            raise ApiUnreachable("away")
        gone(way)

    monkeypatch.setattr(server, "delete", delete)
    run = making_at(server)
    run.start()
    assert list(server.pods) == [run.name]
    assert len(set(tries)) == 1


def test_a_pod_whose_command_was_killed_before_its_secret_is_deleted_by_the_next(
    server: Server, making_at: Make
) -> None:
    class Killed(BaseException):
        """As by SIGKILL."""

    server.answers[SECRETS] = [Killed()]
    killed = making_at(server)
    with pytest.raises(Killed):
        killed.start()
    assert list(server.pods) == [killed.name]
    assert not server.secrets
    killed._runs.forget(killed.name)  # what its process has held ends with it
    run = making_at(server)
    run.start()
    assert list(server.pods) == [run.name]


@pytest.mark.parametrize("name", ["get", "watch"])
def test_an_api_server_that_restarts_ends_no_wait(
    server: Server,
    making_at: Make,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    answer, away = getattr(server, name), [True] * 3

    def asked(*words: str) -> object:
        if away:
            away.pop()
            raise ApiUnreachable("it is busy (429): storage is (re)initializing")
        return answer(*words)

    run = making_at(server)
    monkeypatch.setattr(server, name, asked)
    assert run.start().address == "10.0.0.7"
    assert "the cluster's API cannot be reached: it is busy (429)" in capfd.readouterr().err


def test_who_ended_it_is_told_though_the_scheduler_wrote_its_own_conditions_over_that(
    server: Server, making_at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kueue and a scheduler were seen to do: condition, another status, deletion."""

    def versions(way: str, version: str) -> Iterator[Object | None]:
        pod = server.pods[way.rpartition("%3D")[2]]
        kueue = {
            "type": "TerminationTarget",
            "status": "True",
            "reason": "NotAdmitted",
            "message": "Not admitted",
        }
        scheduler = {"type": "PodScheduled", "status": "True"}
        for conditions in ([kueue], [scheduler]):
            yield {
                "type": "MODIFIED",
                "object": {**pod, "status": {"phase": "Pending", "conditions": conditions}},
            }
        going = {**pod["metadata"], "deletionTimestamp": "2026-11-26T00:00:00Z"}
        yield {
            "type": "MODIFIED",
            "object": {"metadata": going, "status": {"phase": "Pending", "conditions": [scheduler]}},
        }

    run = making_at(server)
    monkeypatch.setattr(server, "watch", versions)
    with pytest.raises(PodRefused, match="Kueue ended the pod: Not admitted"):
        run.start()


def test_one_that_does_not_come_back_ends_it_in_its_time(
    server: Server, making_at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = making_at(server, timeout=0.5)
    away = Mock(side_effect=ApiUnreachable("it is busy (503): etcd"))
    with monkeypatch.context() as patched:
        patched.setattr(server, "watch", away)
        patched.setattr(server, "find", away)
        with pytest.raises(WaitTimedOut) as caught:
            run.start()
    assert "it is busy (503): etcd" in caught.value.user_message


@pytest.mark.parametrize(
    ("container", "user", "holds"), [("digits", 0, True), ("digits", 1000, True), ("second", 0, False)]
)
def test_a_budget_is_its_containers_whichever_user_computes(
    server: Server,
    making_at: Make,
    monkeypatch: pytest.MonkeyPatch,
    container: str,
    user: int,
    holds: bool,
) -> None:
    whole = GpuRequest(1)
    making_at(server, container="digits", budget=whole).start()
    monkeypatch.setattr(os, "geteuid", lambda: user)
    run = making_at(server, timeout=0.5, container=container, budget=whole)
    if holds:
        with pytest.raises(WaitTimedOut, match="a GPU pod of this notebook's kernels and programs holds"):
            run.start()
    else:
        run.start()


CPU_QUOTA = ApiError(
    403,
    "Forbidden",
    'pods "x" is forbidden: exceeded quota: q, requested: requests.cpu=4, used: requests.cpu=14, limited: '
    "requests.cpu=16",
)


def test_a_quota_that_another_notebooks_gpu_pod_holds_is_waited_for(server: Server, making_at: Make) -> None:
    server.answers[PODS] = [CPU_QUOTA]
    alone = making_at(server)
    with pytest.raises(PodRefused, match="quota q: 14 of 16 "):
        alone.start()
    making_at(server, uid="another-notebook").start()
    server.answers[PODS] = [CPU_QUOTA]
    making_at(server).start()
    assert len(server.pods) == 2


def test_who_may_not_look_for_a_moment_does_not_know_the_pod_gone(
    server: Server, making_at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = making_at(server)
    run.start()
    monkeypatch.setattr(making, "GONE_WITHIN", 0.1)
    with monkeypatch.context() as patched:
        forbidden = ApiError(403, "Forbidden", "the roles are being read")
        patched.setattr(server, "get", Mock(side_effect=forbidden))
        patched.setattr(server, "delete", Mock())
        assert run.death() is None
        assert "the roles are being read" in run.delete()
    assert run.delete() == ""


def test_who_may_not_look_at_a_quotas_holders_is_told_so(
    server: Server, making_at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, get = making_at(server), server.get
    refused = ApiError(403, "Forbidden", 'pods is forbidden: User "ann" cannot list resource "pods"')
    server.answers[PODS] = [CPU_QUOTA]
    monkeypatch.setattr(server, "get", Mock(side_effect=[get(f"{PODS}?labelSelector=x"), refused]))
    with pytest.raises(PodRefused, match="this notebook may not list pods"):
        run.start()


WEBHOOK = ApiError(
    500,
    "InternalError",
    'Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: EOF',
)


@pytest.mark.parametrize("way", [PODS, SECRETS])
def test_a_webhook_that_stays_away_is_an_error_before_the_wait_is_over(
    server: Server, making_at: Make, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    server.answers[way] = [WEBHOOK] * 3
    making_at(server).start()
    monkeypatch.setattr(making, "PASSES_WITHIN", 0.1)
    server.answers[way] = [WEBHOOK] * 10_000
    run = making_at(server, timeout=30)
    with pytest.raises(PodRefused) as caught:
        run.start()
    assert "the admission webhook mpod.kb.io does not answer" in caught.value.user_message
    assert "What to do: ask your administrator about the program that serves mpod.kb.io" in (
        caught.value.user_message
    )


# -- a home that only the notebook's node can mount ----------------------------------------------------

ONLY_NODE = "0/2 nodes are available: 1 {}, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. {}"
NO_HELP = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
TAKEN = (
    "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
    "1 Preemption is not helpful for scheduling."
)
NONE_THERE = ONLY_NODE.format("Insufficient nvidia.com/gpu", NO_HELP)
OTHER_NODES = (
    f"0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. {NO_HELP}"  # by a rule
)


def node(**capacity: str) -> Object:
    return {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "8", **capacity}}}


WITHOUT, WITH, AWAY = node(), node(**{"nvidia.com/gpu": "2"}), node(**{"nvidia.com/gpu": "0"})


@pytest.fixture
def bound_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    assert making.BOUND.unfit < PATIENCE.unfit
    monkeypatch.setattr(making, "BOUND", Patience(unfit=0.1))


@pytest.mark.usefixtures("bound_patience")
@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            NONE_THERE,
            "only on node n1, where the notebook runs, and that node cannot take a GPU pod (1 of 2 nodes",
        ),
        (OTHER_NODES, "cannot take a GPU pod (2 of 2 nodes do not match where it may run)"),
    ],
)
def test_files_on_a_node_without_gpus_are_refused_with_the_ways_out(
    server: Server, making_at: Make, said: str, told: str
) -> None:
    server.scheduler = said
    with pytest.raises(FilesElsewhere) as caught:
        making_at(server, mode="ReadWriteOnce").start()
    for part in (told, "claim digits-home", "ReadWriteMany", "on a GPU node", "rwo_anywhere"):
        assert part in caught.value.user_message


@pytest.mark.usefixtures("bound_patience")
@pytest.mark.parametrize(
    ("mode", "known", "said"),
    [
        ("ReadWriteOnce", None, ONLY_NODE.format("Insufficient nvidia.com/gpu", TAKEN)),
        ("ReadWriteOnce", WITH, ONLY_NODE.format("Insufficient nvidia.com/gpu", TAKEN)),
        ("ReadWriteMany", WITHOUT, f"0/2 nodes are available: 2 Insufficient nvidia.com/gpu. {NO_HELP}"),
    ],
)
def test_gpus_that_are_only_taken_and_files_for_all_nodes_are_waited_for(
    server: Server, making_at: Make, mode: str, known: Object | None, said: str
) -> None:
    server.scheduler, server.nodes = said, {} if known is None else {"n1": known}
    with pytest.raises(WaitTimedOut):
        making_at(server, timeout=0.4, mode=mode).start()


def test_where_nodes_may_be_read_no_pod_is_made_for_files_on_one_without_gpus(
    server: Server, making_at: Make
) -> None:
    server.nodes = {"n1": WITHOUT}
    with pytest.raises(FilesElsewhere, match="and that node has no GPU"):
        making_at(server, mode="ReadWriteOnce").start()
    assert server.made == []


@pytest.mark.parametrize(
    ("mode", "known"), [("ReadWriteMany", WITHOUT), *[("ReadWriteOnce", each) for each in (WITH, AWAY, {})]]
)
def test_files_that_a_node_with_gpus_can_mount_get_their_pod(
    server: Server, making_at: Make, mode: str, known: Object
) -> None:
    """Also while its device plugin is restarted."""
    server.nodes = {"n1": known}
    assert making_at(server, mode=mode).start().address == "10.0.0.7"
