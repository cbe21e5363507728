"""A GPU pod at the API: made when it is its turn, followed until it runs, deleted, seen gone."""

from __future__ import annotations

import os
import time

from bitfusion_client.errors import ClusterUnusable, PodLost, PodRefused
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.gpu_pods import budget
from bitfusion_client.gpu_pods.size_rules import rule_for
from bitfusion_client.kubernetes.raw_objects import annotations_of, mapping, mappings, metadata_of, text
from bitfusion_client.pod import pod_contract
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods.api.client import ApiError, ApiUnreachable, path, pods
from bitfusion_pods.command.following import Following
from bitfusion_pods.command.waiting import UNASKED
from bitfusion_pods.places import refusals, stages
from bitfusion_pods.places.deaths import death_of, held_by_lost_node, remembering
from bitfusion_pods.places.gpu_nodes import has_gpus
from bitfusion_pods.places.statuses import is_going
from bitfusion_pods.pod.cannot_copy import FilesElsewhere
from bitfusion_pods.pod.gpu_pod import gpu_pod
from bitfusion_pods.pod.held import OVER, held_gpus
from bitfusion_pods.pod.image import twin_of
from bitfusion_pods.pod.secret import agent_secret
from bitfusion_pods.pod.volumes import NO_GPU

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from bitfusion_client.gpu_pods.size_rules import FilledRule
    from bitfusion_pods.api.client import Api
    from bitfusion_pods.command.notebook_pod import NotebookPod
    from bitfusion_pods.command.runs import Runs
    from bitfusion_pods.command.waiting import Waiting
    from bitfusion_pods.command.where import Where

PASSES_WITHIN = 60.0
"""Seconds for what keeps the API server from taking a pod, such as a webhook that is restarted."""
MOST_RETRIES = 3
"""Times that a pod is made anew which its node has refused, because it frees devices late."""
GONE_WITHIN, LOST_WITHIN = 10.0, 5.0
"""Seconds for a deleted pod to be gone, and for one that does not answer: its node may be lost, and the next
cell's kernel begins only then."""
LONGEST_NAME, CUT_NAME = 50, 41
"""Characters of the notebook's pod in the names of its GPU pods, which have 63 at most; of a longer one so
many stand before the beginning of its uid."""

_INVALID, _TWICE = 422, ("Duplicate value", "must be unique")

BOUND = stages.Patience(unfit=3.0)
"""With a pod that may run on the notebook's node only: no other one, and no new one, is waited for."""

LARGER_SIZE = "request at most that, or stop the notebook and start one with a larger size in the form."


@dataclass(frozen=True, slots=True)
class Running:
    """A pod that runs: where its agent listens, on which node, its program's image."""

    address: str
    node: str
    image: str


class Making:
    """That of one run.

    Args:
        api: For the cluster.
        where: This pod, the notebook's.
        notebook: The same, as the API has it.
        files: The agent and its keys, by their keys in the pod's Secret.
        runs: Those of this container.
        waiting: For what is asked for.

    Raises:
        BitfusionError: The cluster has no such size.
    """

    def __init__(
        self,
        api: Api,
        where: Where,
        notebook: NotebookPod,
        files: Mapping[str, bytes | str],
        runs: Runs,
        waiting: Waiting,
    ) -> None:
        self._api = api
        self._where = where
        self._notebook = notebook
        self._request = waiting.request
        self._files = files
        self._runs = runs
        self._waiting = waiting
        self.rule = rule_for(self._request, where.settings.rules)
        """The admin's, for this size."""
        self._holder = f"{notebook.container}/{os.geteuid()}"
        self._last: dict[str, Any] = {}
        self._template_only = False
        self._cure = ""  # of the last refusal, where that is tried again for so long only
        self.name = ""
        """Of the pod that there is, or may be; empty: there is none."""
        self.is_lost = False
        """Whether it does not answer, and nobody knows why."""
        self.is_deleted = False
        """Whether somebody has deleted it, as `death` has seen it."""

    def start(self) -> Running:
        """Make the pod and wait until its program's container runs.

        Raises:
            BitfusionError: There will be none; what was made is there until `delete`.
        """
        stage = None
        bound = self._files_elsewhere(NO_GPU)
        if bound is not None and self._is_without_gpus():
            raise bound
        patience = stages.PATIENCE if bound is None else BOUND
        for _ in range(1 + MOST_RETRIES):
            if stage is not None:
                self.delete()
                self._waiting.pause(stage.words)
            self._make()
            following = Following(self._api, self._last, self.rule.resources, self._waiting, patience)
            stage = following.until_it_runs()
            self._last = following.pod or self._last
            if stage.kind == stages.RUNS:
                return self._running()
            if stage.kind != stages.RETRY:
                break
        assert stage is not None
        if stage.reason == stages.UNFIT:
            bound = self._files_elsewhere(f"cannot take a GPU pod ({stage.words.partition(': ')[2]})")
            if bound is not None:
                raise bound
        raise PodRefused(self._request, stage.words, stage.next_step)

    def _files_elsewhere(self, node_lacks: str) -> FilesElsewhere | None:
        """What to tell if the notebook's node lacks this; None unless its files bind the pod to that node."""
        where, notebook = self._where, self._notebook
        try:
            _pod(where, notebook, self._request, self.rule, _name(where, notebook.uid), node_lacks=node_lacks)
        except FilesElsewhere as error:
            return error
        return None

    def _is_without_gpus(self) -> bool:
        """Whether the API says so of the notebook's node: most accounts may not ask."""
        node = text(mapping(self._notebook.pod.get("spec")).get("nodeName"))
        try:
            return has_gpus(self._api.find(path("api", "v1", "nodes", node)), self.rule.resources) is False
        except (ApiError, ApiUnreachable, ClusterUnusable):
            return False

    def death(self, api: Api | None = None) -> PodLost | None:
        """Why the pod is over, as the API says; None if it is not, or nobody can be asked.

        `api`: a thread's own.
        """
        try:
            found = (api or self._api).find(self._path)
        except (ApiError, ApiUnreachable, ClusterUnusable):
            return None
        self._last = remembering(found or {}, self._last) or self._last
        self.is_deleted = found is None or is_going(found)
        death = death_of(self._last, time.time(), gone=found is None)
        return None if death is None else PodLost(self._request, death.words, death.next_step)

    @property
    def has_twin(self) -> bool:
        """Whether the pod has another image than the notebook, for GPUs."""
        found = mappings(mapping(self._notebook.pod.get("spec")).get("containers"))
        own = [text(each.get("image")) for each in found if each.get("name") == self._notebook.container]
        return any(twin_of(self._notebook.pod, image, self._where.settings) for image in own)

    @property
    def last_words(self) -> str:
        """The termination message of the program's container, as `death` has seen it."""
        for status in mappings(mapping(self._last.get("status")).get("containerStatuses")):
            ended = mapping(mapping(status.get("state")).get("terminated"))
            if ended:
                return text(ended.get("message"))
        return ""

    @property
    def node(self) -> str:
        """On which the pod is, or was."""
        return text(mapping(self._last.get("spec")).get("nodeName"))

    def delete(self) -> str:
        """Delete the pod and wait until it is gone; why that is not sure, empty if it is.

        Called with signals held. Where the API does not answer the pod ends all the same, as its agent has no
        client any more; it is deleted by the next run, or with the notebook.
        """
        name, why = self.name, "it still exists"
        within = LOST_WITHIN if self.is_lost else GONE_WITHIN
        end, pause, asked = time.monotonic() + within, 0.05, False
        while name and time.monotonic() < end:
            try:
                if not asked:
                    self._api.delete(self._path)
                    asked = True
                found = self._api.find(self._path)
                if found is None:
                    self._runs.forget(name)
                    self.name = name = ""
            except (ApiError, ApiUnreachable, ClusterUnusable) as error:
                why = str(error)
            if name:
                time.sleep(pause)
                pause = min(0.5, pause * 1.5)
        return why if name else ""

    @property
    def _path(self) -> str:
        return pods(self._where.namespace, self.name)

    # -- made ----------------------------------------------------------------------------------------

    def _make(self) -> None:
        """In its turn: `_last` is the new pod then."""
        stuck_since: float | None = None
        while True:
            self._cure = ""
            why = self.delete()  # what was made before an answer was lost or a Secret was not taken
            try:
                if not why:
                    with self._runs.turn():
                        why = self._look_at_others() or self._create() or self._create_secret()
                    if not why:
                        return
            except ApiError as error:  # to a look; what is made reads its own refusals
                why = self._refused(refusals.refusal_of(error.status, error.reason, error.message))
            except ApiUnreachable as error:
                why = UNASKED.format(error)
            stuck_since = (stuck_since or time.monotonic()) if self._cure else None
            if stuck_since is not None and time.monotonic() - stuck_since >= PASSES_WITHIN:
                raise PodRefused(self._request, why, self._cure)
            self._waiting.pause(why)

    def _look_at_others(self) -> str:
        """Why it is too much what other GPU pods of this notebook hold; empty: it is not.

        Those whose process is gone are deleted.
        """
        selector = f"{pod_contract.LABEL_GPU_POD_OF}={self._notebook.uid}"
        found = self._api.get(pods(self._where.namespace, labelSelector=selector))
        living = []
        for pod in mappings(found.get("items")):
            if self._is_left(pod):
                self._api.delete(pods(self._where.namespace, text(metadata_of(pod).get("name"))))
            else:
                living.append(pod)
        ours = [pod for pod in living if self._is_of_this_container(pod)]
        held, whole = held_gpus(ours, self._notebook.uid).held, self._where.budget
        if whole is None or budget.fits(whole, held, self._request):
            return ""
        if not budget.fits(whole, [], self._request):
            chosen = f"the budget of this notebook is {whole.describe()}, as chosen when it was made"
            raise PodRefused(self._request, chosen, LARGER_SIZE)
        for pod in ours:
            if metadata_of(pod).get("deletionTimestamp"):
                return _still_there(pod, whole)
        count, hold = ("a GPU pod", "holds") if len(held) == 1 else (f"{len(held)} GPU pods", "hold")
        return f"{count} of this notebook's kernels and programs {hold} its budget, {whole.describe()}"

    def _is_of_this_container(self, pod: Any) -> bool:
        """Whether it counts in this container's budget; one that does not say whose it is does in each."""
        holder = text(annotations_of(pod).get(pod_contract.ANNOTATION_HOLDER))
        return holder.rpartition("/")[0] in ("", self._notebook.container)

    def _is_left(self, pod: Any) -> bool:
        """Whether a process of this container has made it that is gone."""
        if annotations_of(pod).get(pod_contract.ANNOTATION_HOLDER) != self._holder:
            return False
        going = metadata_of(pod).get("deletionTimestamp")
        return not going and not self._runs.lives(text(metadata_of(pod).get("name")))

    def _create(self) -> str:
        """Make it; why it has to wait, or empty."""
        where, notebook = self._where, self._notebook
        name = _name(where, notebook.uid)
        made = _pod(where, notebook, self._request, self.rule, name, self._template_only)
        made["metadata"]["annotations"][pod_contract.ANNOTATION_HOLDER] = self._holder
        self.name = self._waiting.telling.pod = name
        self._runs.claim(name)
        try:
            self._last = self._api.create(pods(where.namespace), made)
        except ApiError as error:
            if error.reason == refusals.ALREADY_EXISTS:  # made by a first try, whose answer was lost
                there = self._api.find(self._path)
                if there is not None:
                    self._last = there
                    return ""
            self._runs.forget(name)
            self.name = ""
            if not self._template_only and is_added_twice(error, notebook):
                self._template_only = True
                return self._create()
            told = error.status, error.reason, error.message
            refusal = refusals.refusal_of(
                *told, self.rule.resources, error.status == 403 and self._gpu_pods_hold()
            )
            return self._refused(refusal)
        return ""

    def _refused(self, refusal: refusals.Refusal) -> str:
        """Why it is tried again. Raises PodRefused where that is of no use."""
        if refusal.kind == refusals.ERROR:
            raise PodRefused(self._request, refusal.words, refusal.next_step) from None
        self._cure = refusal.next_step
        return refusal.words

    def _gpu_pods_hold(self) -> bool:
        """Whether GPU pods of whichever notebook in this namespace hold its quotas, and will give back."""
        way = pods(
            self._where.namespace,
            labelSelector=pod_contract.LABEL_GPU_POD_OF,
            fieldSelector=",".join(f"status.phase!={phase}" for phase in OVER),
            limit=1,
        )
        return bool(mappings(self._api.get(way).get("items")))

    def _create_secret(self) -> str:
        """Make what the pod mounts; why it was not taken for now, or empty.

        After the pod, whose uid names it as the owner; the pod starts as soon as it is there. A command that
        is killed between the two leaves a pod that waits for it: the next command deletes that as one whose
        process is gone, and Kubernetes as one whose owner, the notebook's pod, is.
        """
        where, notebook = self._where, self._notebook.pod
        made = agent_secret(self._last, notebook, where.settings.to_text(), self._files)
        try:
            self._api.create(path("api", "v1", "namespaces", where.namespace, "secrets"), made)
        except ApiError as error:
            # also of one that exists: whosever it is, the next attempt has another name
            told = error.status, error.reason, error.message
            return self._refused(refusals.refusal_of(*told, kind=refusals.SECRET))
        return ""

    def _running(self) -> Running:
        status = mapping(self._last.get("status"))
        spec = mapping(self._last.get("spec"))
        images = {each.get("name"): text(each.get("image")) for each in mappings(spec.get("containers"))}
        image = images.get(pod_contract.PROGRAM_CONTAINER, "")
        return Running(text(status.get("podIP")), text(spec.get("nodeName")), image)


def _still_there(pod: Any, whole: GpuRequest) -> str:
    """Of one that was deleted."""
    name, node = text(metadata_of(pod).get("name")), text(mapping(pod.get("spec")).get("nodeName"))
    why = f"{node} does not answer" if held_by_lost_node(pod, time.time()) else "it is being deleted"
    return f"the pod {name} on node {node} still holds this notebook's budget, {whole.describe()}: {why}"


def is_added_twice(error: ApiError, notebook: NotebookPod) -> bool:
    """Whether a webhook adds to a GPU pod, too, what it had added to the notebook's."""
    if notebook.template is None or error.status != _INVALID:
        return False
    return any(words in error.message for words in _TWICE)


def dry_pod(
    where: Where, notebook: NotebookPod, template_only: bool = False
) -> tuple[GpuRequest, dict[str, Any]]:
    """The pod for one GPU of the notebook's size, for the API to judge, and what it asks for.

    Raises BitfusionError where there could be none.
    """
    whole = where.budget or GpuRequest()
    request = GpuRequest(1, whole.partial, whole.memory_mib)
    rule = rule_for(request, where.settings.rules)
    return request, _pod(where, notebook, request, rule, _name(where, notebook.uid), template_only)


def _name(where: Where, uid: str) -> str:
    """Of a GPU pod. JupyterHub's policies know by it whose it is, also where names of servers begin alike."""
    own = where.name
    if len(own) > LONGEST_NAME:
        own = f"{own[:CUT_NAME].replace('.', '-')}-{uid[:8]}"
    return f"{own}-gpu-{os.urandom(3).hex()}"


def _pod(
    where: Where,
    notebook: NotebookPod,
    request: GpuRequest,
    rule: FilledRule,
    name: str,
    template_only: bool = False,
    node_lacks: str = "",
) -> dict[str, Any]:
    return gpu_pod(
        notebook=notebook.pod,
        template=notebook.template,
        container=notebook.container,
        claims=notebook.claims,
        filled_rule=rule,
        request=request,
        settings=where.settings,
        name=name,
        queue=where.settings.queue_of(where.namespace),
        node_lacks=node_lacks,
        template_only=template_only,
    )
