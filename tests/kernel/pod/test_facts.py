"""What the injector has written about the pod."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.pod import facts
from bitfusion_kernel.pod.facts import pod_root, read_pod
from bitfusion_kernel.settings.unknown_variables import hints
from tests.kernel.pod.fake_pod import FakePod


def test_all_is_read(tmp_path: Path) -> None:
    pod = FakePod(tmp_path, "-n 2 -p 0.5 --filter 'device.name=Tesla V100' --timeout 2h", "100").pod
    assert pod.files.describe() == "team-a/digits-0, container digits"
    assert (pod.files.client, pod.files.uid[:8]) == ("stand-in", "8c1f6c1e")
    assert pod.budget.request == GpuRequest(2, 0.5, None, (("device.name", "Tesla V100"),), (), 7200.0)
    assert pod.budget.units == 100


def test_anywhere_else_there_is_none_and_one_look_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []

    def lexists(path: str) -> bool:
        looked_at.append(path)
        return False

    monkeypatch.setattr(os.path, "lexists", lexists)
    monkeypatch.setattr(os, "open", None)
    assert read_pod({}) is None
    assert looked_at == ["/bitfusion/pod"]


def test_the_root_is_the_contracts_and_another_is_for_tests_only() -> None:
    assert pod_root({}) == CLIENT_FOLDER
    assert "_TEST_" in facts.ROOT_VARIABLE
    assert hints({facts.ROOT_VARIABLE: "/x"}) == []


@pytest.mark.parametrize("text", ["", "-n 0", "1", "-n", "-n 1 -p 2", "-n 1 'x", "-n 1 -- sh"])
def test_a_budget_that_cannot_be_read_is_told_with_its_place(tmp_path: Path, text: str) -> None:
    fake = FakePod(tmp_path, text)
    with pytest.raises(WrongSetting) as error:
        read_pod(fake.environment)
    assert f"(from {fake.root}/pod/request): is not a valid pod size (" in error.value.user_message
    assert "); ask your administrator" in error.value.user_message


@pytest.mark.parametrize("name", ["name", "namespace", "uid", "notebook", "container", "units", "client"])
def test_all_but_the_request_may_be_missing(tmp_path: Path, name: str) -> None:
    fake = FakePod(tmp_path)
    (fake.root / "pod" / name).unlink()
    assert fake.pod.budget.request == GpuRequest(1)


def test_long_and_strange_files_are_cut_to_a_line(tmp_path: Path) -> None:
    fake = FakePod(tmp_path)
    fake.write("pod/name", "a\nb\x1b" + "c" * 100_000)
    os.mkfifo(fake.root / "pod" / "fifo")
    (fake.root / "pod" / "client").unlink()
    (fake.root / "pod" / "fifo").rename(fake.root / "pod" / "client")
    pod = fake.pod
    assert pod.files.describe().startswith("team-a/a b\\x1bc")
    assert len(pod.files.describe()) <= 400
    assert pod.files.client == ""
