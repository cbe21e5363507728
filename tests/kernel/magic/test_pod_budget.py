"""What `%bitfusion` commands say of the budget of a pod."""

from __future__ import annotations

import re

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_client.pod.this_pod import ThisPod
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.gpu.pod_wait import PodWait
from bitfusion_kernel.magic import commands, pod_budget, status_text
from bitfusion_kernel.pod.account import Standing
from bitfusion_kernel.pod.budget import Budget, OverBudget
from bitfusion_kernel.pod.facts import Pod
from bitfusion_kernel.pod.turns import Entry
from tests.kernel.magic.kernel_view import FakeKernel

FILES = ThisPod("digits-0", "team-a", "digits", "digits", "-n 1", "stand-in", "1", "100")
POD = Pod(FILES, Budget(GpuRequest(1), 100), "/bitfusion")


def entry(number: int, name: str, share: float, *, holds: bool = True, left: bool = False) -> Entry:
    return Entry(number, name, GpuRequest(1, share), left, holds, 0.0)


def in_pod(*entries: Entry) -> FakeKernel:
    kernel = FakeKernel()
    kernel.pod_budget = Standing(POD, entries)
    kernel.takes_what_is_left = True
    return kernel


def said(line: str, kernel: FakeKernel) -> str:
    answer = commands.answer(line, kernel)
    assert isinstance(answer, commands.Text)
    return answer.text


def test_status_shows_pod_budget_what_is_left_who_holds_and_who_waits() -> None:
    kernel = in_pod(entry(1, "a.ipynb", 0.75), entry(2, "b.ipynb", 0.5, holds=False))
    lines = status_text.render(kernel, 0.0, 0.0).splitlines()
    assert lines[1:4] == [
        "Request   what is left of 1 GPU",
        "Pod       team-a/digits-0, container digits",
        "Budget    1 GPU",
    ]
    assert lines[4] == "Left      1 GPU × 25 %"
    assert lines[5].startswith("Held by   a.ipynb (1 GPU × 75 %, since ")
    assert lines[6].startswith("Waits     b.ipynb (1 GPU × 50 %, since ")


def test_status_says_when_others_are_not_counted() -> None:
    kernel = in_pod()
    kernel.acquisition = Acquisition(1, GpuRequest(), 0.0)
    kernel.acquisition.pod_wait = PodWait(takes_what_is_left=True, not_counted="/tmp: Read-only file system")
    note = "Note      The other kernels of this pod are not counted: /tmp: Read-only file system"
    assert note in status_text.render(kernel, 0.0, 0.0).splitlines()


def test_status_with_a_wrong_budget_says_what_is_wrong() -> None:
    class Wrong(FakeKernel):
        @property
        def pod_budget(self) -> Standing | None:
            raise WrongSetting("the pod's budget", "x", "is not a valid pod size")

        @pod_budget.setter
        def pod_budget(self, _: object) -> None:
            pass

    assert "Kernel" in status_text.render(Wrong(), 0.0, 0.0)


@pytest.mark.parametrize(
    ("entries", "left"),
    [((), "1 GPU"), ((entry(1, "a.ipynb", 0.5),), "1 GPU × 50 %"), ((entry(1, "a.ipynb", 1.0),), "nothing")],
)
def test_the_size_that_nobody_chose_is_what_is_left(entries: tuple[Entry, ...], left: str) -> None:
    kernel = in_pod(*entries)
    asked = f"what is left of this pod's budget (of 1 GPU now {left})"
    assert said("request", kernel) == f"The next start asks for {asked}."
    assert said("request --reset", kernel) == f"The next cell asks for {asked}, as its settings say."
    kernel.takes_what_is_left = False
    assert said("request", kernel) == "The next start asks for 1 GPU."


def test_a_size_that_is_larger_than_the_budget_is_refused_when_it_is_asked_for() -> None:
    kernel = in_pod()
    with pytest.raises(OverBudget) as error:
        commands.answer("request -n 2", kernel)
    assert error.value.user_message.splitlines()[:3] == [
        "This pod's budget is smaller than that.",
        "Asked for: 2 GPUs",
        "Answer: the budget of this pod is 1 GPU, as chosen when the notebook was made",
    ]
    assert isinstance(commands.answer("request -n 2 -p 0.5", kernel), commands.AskClient)


def test_the_pools_table_has_the_pods_below_it() -> None:
    kernel = in_pod(entry(1, "<a>.ipynb", 0.75), entry(2, "b.ipynb", 0.5, holds=False, left=True))
    answer = commands.answer("pool", kernel)
    assert isinstance(answer, commands.RunClient)
    assert answer.render is not None
    bundle = answer.render(
        "- server 0 [127.0.0.1:56001]: running 0 tasks\n   |- GPU 0: free memory 8080 MiB / 16160 MiB\n"
    )
    lines = bundle["text/plain"].splitlines()
    assert lines[0].startswith("server ")
    assert lines[-4] == "Budget of this pod: 1 GPU · left: 1 GPU × 25 %"
    assert [re.split(" {2,}", line)[:2] for line in lines[-3:]] == [
        ["Notebook of this pod", "Holds"],
        ["<a>.ipynb", "1 GPU × 75 %"],
        ["b.ipynb", "waits for what is left"],
    ]
    html = bundle["text/html"]
    assert "<b>Budget of this pod: 1 GPU · left: 1 GPU × 25 %</b>" in html
    assert "<td>&lt;a&gt;.ipynb</td><td>1 GPU × 75 %</td>" in html
    assert "<td>waits for what is left</td>" in html


def test_with_a_client_whose_list_is_not_known_the_pods_budget_is_shown_all_the_same() -> None:
    bundle = pod_budget.below({"text/plain": "no GPUs"}, Standing(POD, ()), 0.0)
    assert bundle == {"text/plain": "no GPUs\n\nBudget of this pod: 1 GPU · left: 1 GPU"}
