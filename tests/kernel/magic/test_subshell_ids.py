"""In the kernel: ipykernel's subshell takes the id that the proxy names, and every other one a new uuid."""

from __future__ import annotations

import asyncio
import sys
import uuid
from types import ModuleType
from typing import Any

import pytest

from bitfusion_kernel.magic.subshell_ids import SUBSHELL_ID, take_from_proxy

WANTED = "11111111-2222-4333-8444-555555555555"


class Manager(ModuleType):
    """As much of `ipykernel.subshell_manager` as counts here."""

    def __init__(self) -> None:
        super().__init__("ipykernel.subshell_manager")
        self.uuid: Any = uuid


class Kernel:
    """One whose handler makes an id as ipykernel does."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.created: list[str] = []
        self.control_handlers: dict[str, Any] = {"create_subshell_request": self._create}

    async def _create(self, stream: Any, ident: Any, parent: Any) -> None:
        self.created.append(str(self.manager.uuid.uuid4()))
        assert self.manager.uuid.UUID is uuid.UUID
        if parent.get("fails"):
            raise ValueError(parent["fails"])

    def request(self, content: Any, **parent: Any) -> str:
        """The id of what is created."""
        handler = self.control_handlers["create_subshell_request"]
        asyncio.run(handler(None, None, {"content": content} | parent))
        return self.created[-1]


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    made = Manager()
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_the_proxys_id_is_taken_and_later_ones_are_new(manager: Manager) -> None:
    kernel = Kernel(manager)
    take_from_proxy(kernel)
    assert kernel.request({SUBSHELL_ID: WANTED}) == WANTED
    assert manager.uuid is uuid
    assert kernel.request({}) != kernel.request({}) != WANTED


@pytest.mark.parametrize(
    "content", [{}, None, [], {SUBSHELL_ID: None}, {SUBSHELL_ID: 3}, {SUBSHELL_ID: "no"}]
)
def test_a_request_that_names_none_gets_a_new_one(manager: Manager, content: Any) -> None:
    kernel = Kernel(manager)
    take_from_proxy(kernel)
    assert uuid.UUID(kernel.request(content)).version == 4


def test_a_request_that_fails_leaves_nothing_for_the_next(manager: Manager) -> None:
    kernel = Kernel(manager)
    take_from_proxy(kernel)
    with pytest.raises(ValueError, match="full"):
        kernel.request({SUBSHELL_ID: WANTED}, fails="full")
    assert kernel.request({}) != WANTED


def test_a_handler_that_is_no_coroutine_works_too(manager: Manager) -> None:
    kernel = Kernel(manager)
    kernel.control_handlers["create_subshell_request"] = lambda *_: kernel.created.append(
        str(manager.uuid.uuid4())
    )
    take_from_proxy(kernel)
    assert kernel.request({SUBSHELL_ID: WANTED}) == WANTED


@pytest.mark.parametrize("kernel", [None, object()])
def test_without_a_kernel_of_this_kind_nothing_happens(manager: Manager, kernel: Any) -> None:
    take_from_proxy(kernel)


def test_an_ipykernel_without_subshells_or_with_others_is_left_alone(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(manager)
    before = kernel.control_handlers["create_subshell_request"]
    del manager.uuid
    take_from_proxy(kernel)
    monkeypatch.delitem(sys.modules, manager.__name__)
    take_from_proxy(kernel)
    assert kernel.control_handlers == {"create_subshell_request": before}
    kernel.control_handlers.clear()
    take_from_proxy(kernel)
    assert kernel.control_handlers == {}
