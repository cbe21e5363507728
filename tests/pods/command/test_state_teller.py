"""What a kernel does, in an annotation of its GPU pod: told at its pace, whatever the API does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bitfusion_client.kernel_state import states
from bitfusion_client.kernel_state.activity import UNKNOWN, KernelActivity
from bitfusion_client.pod.pod_contract import ANNOTATION_STATE
from bitfusion_pods.api.account import Account
from bitfusion_pods.api.client import ApiError, ApiUnreachable
from bitfusion_pods.command.state_teller import StateTeller, patch
from tests.cluster.cluster import Cluster
from tests.pods.command.notebook import EDIT, Notebook, notebook_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

RUNNING = {"version": 1, "state": "running", "since": 5.0, "idle_since": None, "notebook": "digits.ipynb"}


class Answers:
    """An API that says these, one after the other; then it takes all."""

    def __init__(self, *answers: Exception) -> None:
        self.asked: list[float] = []
        self._answers = list(answers)

    def merge(self, way: str, body: dict[str, Any]) -> dict[str, Any]:
        assert way == "/api/v1/namespaces/ns/pods/gpu-pod"
        self.asked.append(time.monotonic())
        if self._answers:
            raise self._answers.pop(0)
        return body


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 2_000_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made.monotonic)
    return made


def teller(folder: Path) -> StateTeller:
    return StateTeller(str(folder / states.FILE_NAME), Account("", 0, ""), "ns", "gpu-pod")


def look(told: StateTeller, api: Answers) -> bool:
    return told._look(cast(Any, api))


def test_it_says_state_and_times_and_not_which_document() -> None:
    told = patch(KernelActivity("idle", 7.0, 5.0, "salaries.ipynb"))
    text = told["metadata"]["annotations"][ANNOTATION_STATE]
    assert json.loads(text) == {"state": "idle", "since": 7.0, "idle_since": 5.0}
    assert patch(UNKNOWN) == {"metadata": {"annotations": {ANNOTATION_STATE: None}}}


def test_however_often_it_changes_it_is_told_every_five_seconds(tmp_path: Path, clock: Clock) -> None:
    told, api = teller(tmp_path), Answers()
    for step in range(600):
        clock.now = 1000.0 + step / 10
        states.write(str(tmp_path), {**RUNNING, "since": step})
        assert look(told, api)
    assert 10 <= len(api.asked) <= 13
    assert min(after - before for before, after in zip(api.asked, api.asked[1:], strict=False)) >= 5


def test_what_does_not_change_is_told_once(tmp_path: Path, clock: Clock) -> None:
    told, api = teller(tmp_path), Answers()
    for step in range(100):
        clock.now = 1000.0 + step
        look(told, api)
        if step == 10:
            states.write(str(tmp_path), RUNNING)
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (ApiUnreachable("no answer within 10 s"), True),
        (ApiError(500), True),
        (ApiError(429), True),
        (ApiError(409, "Conflict"), True),
        (ZeroDivisionError("a defect"), True),
        (ApiError(403, "Forbidden"), False),
        (ApiError(404, "NotFound"), False),
    ],
)
def test_trouble_is_passed_over_and_tried_again_later(
    tmp_path: Path, clock: Clock, answer: Exception, goes_on: bool
) -> None:
    told, api = teller(tmp_path), Answers(answer)
    states.write(str(tmp_path), RUNNING)
    assert look(told, api) is goes_on
    if goes_on:
        for step in range(8):
            clock.now = 1001.0 + step
            look(told, api)
        assert api.asked[1:] == [1005.0]


@pytest.fixture
def notebook(cluster: Cluster, tmp_path: Path) -> Iterator[Notebook]:
    with notebook_in(cluster, tmp_path) as made:
        yield made


def with_state(notebook: Notebook, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    given = notebook.environment
    more = {states.FILE_VARIABLE: str(path / states.FILE_NAME)}
    monkeypatch.setattr(notebook, "environment", lambda **each: given(**each) | more)


def test_the_pod_says_what_its_kernel_does(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_state(notebook, monkeypatch, tmp_path)
    states.write(str(tmp_path), RUNNING)
    command = notebook.start("run", "-n", "1", "--", "sleep", "600")
    name = notebook.one_gpu_pod()

    def state() -> object:
        text = notebook.pod_now(name)["metadata"]["annotations"].get(ANNOTATION_STATE)
        return text and json.loads(text)["state"]

    wait_until(lambda: state() == "running", "it is said that it runs")
    states.write(str(tmp_path), {**RUNNING, "state": "idle", "since": time.time() - 725})
    wait_until(lambda: state() == "idle", "it is said that it is idle")
    assert ", idle 12 min " in notebook.run("list_gpus").said.decode()
    command.terminate()
    assert command.finish() == 143, command.told


def test_who_may_not_say_it_computes_all_the_same(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {**EDIT[0], "verbs": [verb for verb in EDIT[0]["verbs"] if verb not in ("patch", "update")]}
    with notebook_in(cluster, tmp_path, rules=[first, *EDIT[1:]]) as notebook:
        with_state(notebook, monkeypatch, tmp_path)
        states.write(str(tmp_path), RUNNING)
        done = notebook.run("run", "-n", "1", "--", "sh", "-c", "sleep 2; echo mine; exit 3")
        assert (done.returncode, done.said) == (3, b"mine\n")
        assert "403" not in done.told
