"""The reconciler: what is written in which order, what is retried, what is sent once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import Conflict, NoAnswer, TooManyRequests
from bitfusion_cluster.api.events import Said
from bitfusion_cluster.leading.election import Candidate
from bitfusion_cluster.leading.term import NotLeading
from bitfusion_cluster.monitoring.metrics import WatchMetrics
from bitfusion_cluster.notebooks.notebook_record import NotebookRecord, notebook_record
from bitfusion_cluster.watching.cache import Cache, Key
from bitfusion_cluster.watching.work_queue import WorkQueue
from notebook_controller_patch.reconcile import refused_pods
from notebook_controller_patch.reconcile.context import ReconcileContext
from notebook_controller_patch.reconcile.decisions import Action, PatchTemplate, RetryPod
from notebook_controller_patch.reconcile.metrics import ReconcileMetrics
from notebook_controller_patch.reconcile.quota_waits import QuotaRecord
from notebook_controller_patch.reconcile.reconciler import Caches, Reconciler
from notebook_controller_patch.reconcile.records import (
    OptedOutNamespace,
    PodRecord,
    StatefulSetRecord,
    statefulset_record,
)
from notebook_controller_patch.reconcile.statefulset_cache import StatefulSetCache
from notebook_controller_patch.reconcile.writer import Writer
from tests.notebook_controller_patch.reconcile.objects import CLIENT, Object, admitted, notebook, statefulset

KEY = ("ann", "nb")
HALF = {"bitfusion.io/gpu-50": "1"}


class RecordedWriter(Writer):
    """Remembers what it should do; `failure` is raised by each action."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.pods_read = 0
        self.asked: list[str] = []  # names of pods, and of StatefulSets that were named
        self.paused: list[float] = []
        self.failure: Exception | None = None
        self.refusals: list[Mapping[str, Any]] = []
        self.returns: list[Mapping[str, Any]] = []

    def stop(self) -> None:
        pass

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)

    def read_pod(self, statefulset: StatefulSetRecord) -> PodRecord | None:
        self.pods_read += 1
        self.asked.append(statefulset.pod_name)
        return None

    def read_refusals(self, statefulset: StatefulSetRecord) -> list[Mapping[str, Any]]:
        self.asked.append(statefulset.name)
        return self.refusals

    def read_all_refusals(self) -> list[Mapping[str, Any]]:
        if self.failure is not None:
            raise self.failure
        return self.refusals

    def read_all_returns(self) -> list[Mapping[str, Any]]:
        return self.returns

    def perform(self, action: Action, notebook: NotebookRecord) -> None:
        if self.failure is not None:
            raise self.failure
        self.done.append(action.reason if isinstance(action, Said) else type(action).__name__)
        if isinstance(action, PatchTemplate | RetryPod):
            self.asked.append(action.name)


class OneTurn(WorkQueue):
    """Hands out one key a turn, then acts as if it were closed."""

    turns = 0

    def get(self, seconds: float | None = None) -> Key | None:
        if self.turns == 0:
            return None
        self.turns -= 1
        return super().get(0)


class Setting:
    """A reconciler of one notebook."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.notebooks: Cache[NotebookRecord] = Cache()
        self.statefulsets = StatefulSetCache()
        self.queue = OneTurn(first_delay=1000)
        self.writer = RecordedWriter()
        context = ReconcileContext(
            api=cast(KubernetesApi, None),
            candidate=Candidate("kubeflow", "lease", "one"),
            rules=lambda: DEFAULT_RULES,
            metrics=ReconcileMetrics(self.registry),
            watch_metrics=WatchMetrics(self.registry),
        )
        self.opted_out: Cache[OptedOutNamespace] = Cache()
        self.quotas: Cache[QuotaRecord] = Cache()
        caches = Caches(self.notebooks, self.statefulsets, self.opted_out, self.quotas)
        self.reconciler = Reconciler(context, caches, self.queue, self.writer)

    def know(self, of: Object, sts: Object | None = None) -> None:
        record = notebook_record(of)
        assert record is not None
        self.notebooks.put(record)
        sts_record = statefulset_record(sts) if sts is not None else None
        if sts_record is not None:
            self.statefulsets.put(sts_record)

    def work_once(self) -> None:
        """As a worker does for one key."""
        self.queue.turns = 1
        self.queue.add(KEY)
        self.reconciler.work()

    def runs(self, result: str) -> float:
        return self.registry.get_sample_value("bitfusion_reconcile_runs_total", {"result": result}) or 0

    def pending(self) -> float | None:
        return self.registry.get_sample_value("bitfusion_reconcile_pending_notebooks")


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_events_come_first_then_the_notebook_then_the_template(setting: Setting) -> None:
    of = notebook(limits=HALF)
    setting.know(of, statefulset(of, replicas=0))
    setting.reconciler.reconcile(KEY)
    assert setting.writer.done == ["PatchNotebook", "PatchTemplate"]


def test_a_namespace_that_has_opted_out_is_left_alone(setting: Setting) -> None:
    setting.opted_out.put(OptedOutNamespace("ann"))
    of = notebook(limits=HALF)
    setting.know(of, statefulset(of, replicas=0))
    assert setting.reconciler.reconcile(KEY) == []
    setting.know(notebook(limits={"bitfusion.io/gpu-500": "1"}))
    assert setting.reconciler.reconcile(KEY) == []
    assert setting.writer.done == []
    setting.opted_out.remove(("", "ann"))
    setting.reconciler.reconcile(KEY)
    assert setting.writer.done == ["BitfusionRequestRefused"]


def test_the_pod_is_read_only_where_it_decides(setting: Setting) -> None:
    of = admitted()
    setting.know(of, statefulset(of, annotations=CLIENT))
    setting.reconciler.reconcile(KEY)
    assert setting.writer.pods_read == 0
    setting.know(of, statefulset(of, ready=False))
    setting.reconciler.reconcile(KEY)
    assert setting.writer.pods_read == 1


def test_a_refusal_is_sent_once_until_it_changes(setting: Setting) -> None:
    for size, sent in (("500", 1), ("500", 1), ("501", 2), ("500", 3)):
        setting.know(notebook(limits={f"bitfusion.io/gpu-{size}": "1"}))
        setting.reconciler.reconcile(KEY)
        assert setting.writer.done == ["BitfusionRequestRefused"] * sent


def test_a_refusal_that_could_not_be_sent_is_sent_again(setting: Setting) -> None:
    setting.know(notebook(limits={"bitfusion.io/gpu-500": "1"}))
    setting.writer.failure = NoAnswer()
    with pytest.raises(NoAnswer):
        setting.reconciler.reconcile(KEY)
    setting.writer.failure = None
    setting.reconciler.reconcile(KEY)
    assert setting.writer.done == ["BitfusionRequestRefused"]


def test_a_corrected_notebook_may_be_refused_again(setting: Setting) -> None:
    for limits in ({"bitfusion.io/gpu-500": "1"}, {}, {"bitfusion.io/gpu-500": "1"}):
        setting.know(notebook(limits=limits))
        setting.reconciler.reconcile(KEY)
    assert setting.writer.done == ["BitfusionRequestRefused"] * 2


@pytest.mark.parametrize(
    ("failure", "result"),
    [
        (Conflict(409, "Conflict", ""), "conflict"),
        (NoAnswer(), "error"),
        (TooManyRequests(429, "", "", 5.0), "error"),
        (ZeroDivisionError(), "error"),
    ],
)
def test_what_failed_is_tried_again_later(setting: Setting, failure: Exception, result: str) -> None:
    setting.know(notebook(limits=HALF))
    setting.writer.failure = failure
    setting.work_once()
    assert setting.runs(result) == 1
    assert setting.queue.depth() == 1
    assert setting.writer.paused == ([5.0] if isinstance(failure, TooManyRequests) else [])


def test_a_notebook_is_not_forgotten_when_the_lease_was_renewed_late(setting: Setting) -> None:
    setting.know(notebook(limits=HALF))
    setting.writer.failure = NotLeading()
    setting.work_once()
    assert setting.queue.depth() == 1
    assert setting.runs("error") == 0


def test_what_went_well_is_not_tried_again(setting: Setting) -> None:
    setting.know(notebook(limits=HALF))
    setting.work_once()
    assert setting.runs("done") == 1
    assert setting.queue.depth() == 0


def test_writes_that_another_program_undoes_are_throttled(setting: Setting) -> None:
    setting.know(notebook(limits=HALF))  # and never as it was patched
    for _ in range(25):
        setting.work_once()
    assert setting.writer.done == ["PatchNotebook"] * 20
    assert setting.queue.depth() == 1


def test_pending_notebooks_are_counted(setting: Setting) -> None:
    setting.know(notebook(annotations={"bitfusion.io/pending": "x"}))
    setting.reconciler.reconcile(KEY)
    assert setting.pending() == 1
    setting.notebooks.remove(KEY)
    assert setting.reconciler.reconcile(KEY) == []
    assert setting.pending() == 0


NOT_ASKED = {"message": 'failed calling webhook "pods.bitfusion.io": failed to call webhook: refused'}


@pytest.fixture
def podless(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """A notebook that should have a pod and has none, for long enough."""
    monkeypatch.setattr(refused_pods, "FIRST_LOOK_S", 0.0)
    of = admitted()
    setting.know(of, without_pod(of))
    return setting


def without_pod(of: Object, **spec: Any) -> Object:
    sts = statefulset(of, ready=False, annotations=CLIENT)
    sts["spec"].update(spec)
    del sts["status"]["replicas"], sts["status"]["updatedReplicas"]
    return sts


def test_a_pod_that_was_refused_for_the_injectors_absence_is_told_and_tried_again(podless: Setting) -> None:
    podless.writer.refusals = [NOT_ASKED]
    podless.reconciler.reconcile(KEY)
    assert podless.writer.done == ["BitfusionInjectorAway", "RetryPod"]
    assert podless.queue.depth() == 1  # to be looked at again
    of = admitted()
    podless.know(of, statefulset(of, ready=False, annotations=CLIENT))
    podless.reconciler.reconcile(KEY)
    podless.reconciler.reconcile(KEY)
    assert podless.writer.done[2:] == ["BitfusionInjectorBack"]


def test_a_return_that_could_not_be_told_is_told_later(podless: Setting) -> None:
    podless.writer.refusals = [NOT_ASKED]
    podless.reconciler.reconcile(KEY)
    of = admitted()
    podless.know(of, statefulset(of, ready=False, annotations=CLIENT))
    podless.writer.failure = NoAnswer()
    with pytest.raises(NoAnswer):
        podless.reconciler.reconcile(KEY)
    podless.writer.failure = None
    podless.reconciler.reconcile(KEY)
    assert podless.writer.done[2:] == ["BitfusionInjectorBack"]


def refused_of_late(name: str) -> dict[str, Any]:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**NOT_ASKED, "involvedObject": {"namespace": KEY[0], "name": name}, "lastTimestamp": now}


def test_a_pod_that_was_refused_and_made_while_nobody_led_is_told(podless: Setting) -> None:
    podless.writer.refusals = [refused_of_late(KEY[1])]
    podless.reconciler.learn()
    of = admitted()
    podless.know(of, statefulset(of, annotations=CLIENT))
    podless.reconciler.reconcile(KEY)
    podless.reconciler.reconcile(KEY)
    assert podless.writer.done == ["BitfusionInjectorBack"]


def test_one_that_was_refused_while_nobody_led_is_tried_at_once(podless: Setting) -> None:
    gone = "a-notebook-that-is-gone"  # nobody waits until that one has a pod
    podless.writer.refusals = [refused_of_late(gone), refused_of_late(KEY[1])]
    podless.reconciler.learn()
    podless.reconciler.reconcile(KEY)
    assert podless.writer.done == ["BitfusionInjectorAway", "RetryPod"]


def test_one_that_was_refused_and_asks_no_more_is_told_nothing(podless: Setting) -> None:
    podless.writer.refusals = [refused_of_late(KEY[1])]
    podless.reconciler.learn()
    of = notebook()
    podless.know(of, without_pod(of))
    podless.reconciler.reconcile(KEY)
    assert "BitfusionInjectorBack" not in podless.writer.done


def test_a_term_begins_also_where_events_cannot_be_read(
    podless: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    for podless.writer.failure in (NoAnswer(), NotLeading()):
        podless.reconciler.learn()
    assert "events of refused pods not read" in caplog.text


def test_a_pod_that_others_refuse_is_left_to_them(podless: Setting) -> None:
    podless.writer.refusals = [{"message": "exceeded quota"}]
    assert podless.reconciler.reconcile(KEY) == []
    assert podless.queue.depth() == 1


def generated(sts: Object) -> Object:
    """Called as the API server makes a name of ``nb-``, as Open Data Hub has it for long names."""
    sts["metadata"]["name"] = "nb-x7k2p"
    return sts


def test_a_statefulset_that_is_not_called_as_its_notebook_is_looked_after_all_the_same(
    podless: Setting,
) -> None:
    writer, of = podless.writer, admitted()
    podless.statefulsets.remove(KEY)
    podless.know(of, generated(without_pod(of)))
    writer.refusals = [{**refused_of_late("nb-x7k2p"), "message": NOT_ASKED["message"]}]
    podless.reconciler.learn()
    podless.reconciler.reconcile(KEY)
    assert writer.done == ["BitfusionInjectorAway", "RetryPod"]
    assert writer.asked == ["nb-x7k2p", "nb-x7k2p"]
    podless.know(of, generated(statefulset(of, ready=False)))  # its pod was made of an empty template
    podless.reconciler.reconcile(KEY)
    assert writer.asked[2:] == ["nb-x7k2p-0", "nb-x7k2p"]
    assert writer.done[2:] == ["PatchTemplate", "BitfusionInjectorBack"]


EXCEEDED = {
    "message": 'create Pod mine-0 in StatefulSet mine failed error: pods "mine-0" is forbidden: '
    "exceeded quota: gpus, requested: requests.bitfusion.io/gpu=50, used: requests.bitfusion.io/gpu=150, "
    "limited: requests.bitfusion.io/gpu=150",
    "lastTimestamp": "2026-11-25T03:00:01Z",
}


def test_a_pod_over_the_quota_is_told_once_for_each_try_and_tried_again_when_there_is_room(
    podless: Setting,
) -> None:
    quotas, writer = podless.quotas, podless.writer
    quotas.replace({})
    quotas.put(QuotaRecord(KEY[0], "gpus", 150, 150))
    writer.refusals = [EXCEEDED]
    podless.reconciler.reconcile(KEY)
    podless.reconciler.reconcile(KEY)
    assert writer.done == ["BitfusionQuotaExceeded"]
    writer.refusals = [{**EXCEEDED, "lastTimestamp": "2026-11-25T03:00:09Z"}]
    podless.reconciler.reconcile(KEY)
    assert writer.done[1:] == ["BitfusionQuotaExceeded"], "Kubeflow has told it anew, too"
    quotas.put(QuotaRecord(KEY[0], "gpus", 150, 100))
    podless.reconciler.quota_changed(None, quotas.get(KEY[0], "gpus"))
    podless.work_once()
    assert writer.done[2:] == ["RetryPod"]
    of = admitted()
    podless.know(of, statefulset(of, ready=False, annotations=CLIENT))
    podless.reconciler.reconcile(KEY)
    assert writer.done[3:] == []


def test_words_that_could_not_be_sent_are_sent_later(podless: Setting) -> None:
    podless.writer.refusals = [EXCEEDED]
    podless.writer.failure = NoAnswer()
    with pytest.raises(NoAnswer):
        podless.reconciler.reconcile(KEY)
    podless.writer.failure = None
    podless.reconciler.reconcile(KEY)
    assert podless.writer.done == ["BitfusionQuotaExceeded"]


def test_nobody_asks_why_a_stopped_notebook_has_no_pod(podless: Setting) -> None:
    podless.writer.refusals = [NOT_ASKED]
    of = admitted()
    podless.know(of, without_pod(of, replicas=0))
    assert podless.reconciler.reconcile(KEY) == []
    assert podless.queue.depth() == 0


def test_nobody_asks_why_a_notebook_without_gpus_has_no_pod(podless: Setting) -> None:
    podless.writer.refusals = [NOT_ASKED]
    of = notebook()
    podless.know(of, without_pod(of))
    assert "RetryPod" not in [type(action).__name__ for action in podless.reconciler.reconcile(KEY)]
    assert podless.queue.depth() == 0
