"""A page has a kernel do something: the words that its proxy gets, its answer, the state after it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_ext.server.errors import ApiError, NoAnswer, NotBitfusion, NotFound, Refused
from jupyter_ext.server.kernel_actions import KernelActions
from jupyter_ext.server.kernel_question import ask_kernel
from jupyter_ext.server.overview import Document, Documents
from tests.jupyter_ext.server.stand_in_proxy import STATE, stand_in_proxy

Json = dict[str, Any]


async def documents() -> Documents:
    return {"abc": Document("work/x.ipynb", "x.ipynb")}


def act(files: dict[str, str], kernel_id: str, action: str, body: Json, done: list[bool]) -> Json:
    actions = KernelActions(lambda: files, os.environ, documents, lambda: done.append(True))
    return asyncio.run(actions.act(kernel_id, action, body))


@pytest.mark.parametrize(
    ("action", "body", "question", "told"),
    [
        ("acquire", {}, {"words": "acquire"}, "Requesting the GPU."),
        ("release", {}, {"words": "release -y"}, "1 GPU given back."),
        ("cancel", {}, {"words": "cancel"}, "This kernel waits for nothing."),
        ("keep", {}, {"do": "keep"}, "It is kept for another 30 min."),
        ("request", {"gpus": 2, "now": True}, {"words": "request -n 2 -p 1 --now -y"}, "Asking for 2 GPUs."),
    ],
)
def test_each_action_is_one_question(
    tmp_path: Path, action: str, body: Json, question: Json, told: str
) -> None:
    file, done = tmp_path / "kernel-abc.json", list[bool]()
    with stand_in_proxy(file) as proxy:
        proxy.answers[question.get("words") or question["do"]] = {"text": told}
        answer = act({"abc": str(file)}, "abc", action, body, done)
        assert proxy.asked == [question]
    after = {**STATE, "id": "abc", "path": "work/x.ipynb", "title": "x.ipynb"}
    assert answer == {"message": told, "kernel": after}
    assert done == [True]


def test_what_the_kernel_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    file, done = tmp_path / "kernel-abc.json", list[bool]()
    with stand_in_proxy(file) as proxy:
        proxy.answers["acquire"] = {"error": "No.\nWhat to do: ask later."}
        with pytest.raises(Refused) as caught:
            act({"abc": str(file)}, "abc", "acquire", {}, done)
    assert caught.value.to_json() == {"code": "refused", "message": "No.", "next_step": "ask later."}
    assert done == []


@pytest.mark.parametrize(
    "kernel_id", ["", "x", "../abc", "abc.json", "/etc/passwd", "..", "abc\0", "kernel-abc"]
)
def test_an_id_of_no_kernel_leads_nowhere(tmp_path: Path, kernel_id: str) -> None:
    file = tmp_path / "kernel-abc.json"
    with stand_in_proxy(file) as proxy:
        with pytest.raises(NotFound):
            act({"abc": str(file)}, kernel_id, "keep", {}, [])
        assert proxy.asked == []


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda proxy: proxy.answers.update(keep=None), NoAnswer),
        (lambda proxy: proxy.end(), NotBitfusion),
    ],
)
def test_a_kernel_that_says_nothing(tmp_path: Path, make: Any, kind: type[ApiError]) -> None:
    file = tmp_path / "kernel-abc.json"
    with stand_in_proxy(file) as proxy:
        make(proxy)
        with pytest.raises(kind):
            act({"abc": str(file)}, "abc", "keep", {}, [])


def test_a_proxy_that_is_stopped_costs_its_time_limit_only(tmp_path: Path) -> None:
    file = tmp_path / "kernel-abc.json"
    with stand_in_proxy(file) as proxy:
        proxy._answer = lambda connection, question: held.append(connection)  # type: ignore[method-assign]  # a fake
        held: list[Any] = []
        with pytest.raises(NoAnswer, match=r"within 0\.2 s"):
            asyncio.run(ask_kernel(str(file), os.environ, {"do": "keep"}, limit=0.2))
        for connection in held:
            connection.close()
