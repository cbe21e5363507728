"""Which value of a setting is in force: the order of the sources, and locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_client.pod.this_pod import ThisPod
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.pod.budget import Budget
from bitfusion_kernel.pod.facts import Pod
from bitfusion_kernel.settings.resolve import resolve
from bitfusion_kernel.settings.sources import ConfigValues

ROOT = Path(__file__).resolve().parents[3]


def test_without_anything() -> None:
    found = resolve(["--bitfusion-spec=/somewhere"], {"BITFUSION_GPUS": "", "HOME": "/"})
    assert found.request == GpuRequest()
    assert (found.acquire, found.client, found.silent_wait, found.locked) == ("first_cell", None, 5.0, ())
    assert (found.idle_release, found.log_states) == (0, False)
    assert found.sources == {}


def test_later_sources_win_field_by_field() -> None:
    found = resolve(
        [
            "--bitfusion-gpus=2",
            "--bitfusion-partial=0.5",
            "--bitfusion-timeout=1m",
            "--bitfusion-acquire=start",
        ],
        {"BITFUSION_GPUS": "4", "BITFUSION_ACQUIRE": "manual"},
        ConfigValues({"gpus": 3, "timeout": "2m"}, {"gpus": "/f", "timeout": "/f"}),
    )
    assert found.request == GpuRequest(gpus=4, partial=0.5, timeout=120)
    assert found.acquire == "manual"
    assert found.sources == {
        "gpus": "environment variable BITFUSION_GPUS",
        "partial": "--bitfusion-partial in the kernelspec",
        "timeout": "/f",
        "acquire": "environment variable BITFUSION_ACQUIRE",
    }


def test_memory_of_a_later_source_replaces_the_share_of_an_earlier() -> None:
    found = resolve(["--bitfusion-partial=0.5"], {"BITFUSION_MEMORY": "8Gi"})
    assert found.request == GpuRequest(memory_mib=8192)
    assert "partial" not in found.sources


@pytest.mark.parametrize(
    ("options", "environ", "config"),
    [
        (["--bitfusion-partial=0.5", "--bitfusion-memory=8Gi"], {}, {}),
        ([], {"BITFUSION_PARTIAL": "0.5", "BITFUSION_MEMORY": "8Gi"}, {}),
        ([], {}, {"partial": 0.5, "memory": "8Gi"}),
    ],
)
def test_both_sizes_in_one_source(
    options: list[str], environ: dict[str, str], config: dict[str, object]
) -> None:
    with pytest.raises(WrongSetting, match="not both"):
        resolve(options, environ, config)


@pytest.mark.parametrize(
    ("locked", "environ"),
    [
        ("gpus", {"BITFUSION_GPUS": "2"}),
        ("partial", {"BITFUSION_MEMORY": "8Gi"}),
        ("memory", {"BITFUSION_PARTIAL": "1"}),
        ("acquire", {"BITFUSION_ACQUIRE": "start"}),
        ("idle_release", {"BITFUSION_IDLE_RELEASE": "20m"}),
        ("client", {"BITFUSION_CLIENT": "/x"}),
        ("timeout", {"BITFUSION_TIMEOUT": "9h"}),
    ],
)
def test_the_environment_cannot_change_what_is_locked(locked: str, environ: dict[str, str]) -> None:
    with pytest.raises(WrongSetting, match="locked by your administrator"):
        resolve([], environ, {"partial": 0.5, "locked": [locked]})


def test_locks_allow_the_same_value_and_everything_else() -> None:
    found = resolve([], {"BITFUSION_GPUS": "1", "BITFUSION_TIMEOUT": "1m"}, {"locked": ["gpus", "acquire"]})
    assert found.locked == ("gpus", "acquire")
    found.check_unlocked(GpuRequest(partial=0.1))
    with pytest.raises(WrongSetting, match='gpus="2"'):
        found.check_unlocked(GpuRequest(gpus=2))


@pytest.mark.parametrize(
    ("given", "allowed"), [("20m", True), ("1200", True), ("off", False), ("30m", False)]
)
def test_an_idle_kernel_gives_its_gpu_back_when_the_administrator_says(given: str, allowed: bool) -> None:
    config = {"idle_release": "20m", "locked": ["idle_release"]}
    assert resolve([], {}, config).idle_release == 1200
    environ = {"BITFUSION_IDLE_RELEASE": given}
    if allowed:
        assert resolve([], environ, config).idle_release == 1200
    else:
        with pytest.raises(WrongSetting, match="locked by your administrator"):
            resolve([], environ, config)


def test_a_lock_on_one_size_holds_the_other() -> None:
    found = resolve([], {}, {"partial": 0.5, "locked": ["partial"]})
    whole = 'partial="whole GPUs"'
    for request, told in (
        (GpuRequest(), whole),
        (GpuRequest(memory_mib=8192), whole),
        (GpuRequest(partial=0.6), 'partial="0.6"'),
    ):
        with pytest.raises(WrongSetting, match=f"{told}.* locked"):
            found.check_unlocked(request)


def test_imports_little() -> None:
    """The proxy imports this before its first reply."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from bitfusion_kernel.settings.resolve import current_settings\n"
        "current_settings(['--bitfusion-gpus=2', '--bitfusion-partial=0.5'], {'JUPYTER_NO_CONFIG': '1'})\n"
        "heavy = {'typing', 'inspect', 'dataclasses', 'asyncio', 're', 'json', 'traitlets', 'zmq'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def in_pod(request: GpuRequest) -> Pod:
    return Pod(ThisPod("digits-0", "team-a", "", "digits", "", ""), Budget(request, 100), "/bitfusion")


TESLA = (("device.name", "Tesla"),)
BUDGET = GpuRequest(2, 0.5, None, TESLA, (), 60.0)


@pytest.mark.parametrize(
    ("options", "environ", "config", "request_", "takes_what_is_left"),
    [
        ([], {}, {}, BUDGET, True),
        # what is given, wherever, is a size that somebody has chosen; what is not is as in the budget
        (["--bitfusion-gpus=1"], {}, {}, GpuRequest(1, 0.5, None, TESLA, (), 60.0), False),
        ([], {"BITFUSION_PARTIAL": "0.25"}, {}, GpuRequest(2, 0.25, None, TESLA, (), 60.0), False),
        ([], {}, {"memory": "4Gi"}, GpuRequest(2, None, 4096, TESLA, (), 60.0), False),
        (
            ["--bitfusion-filter=a=b"],
            {"BITFUSION_TIMEOUT": "5m"},
            {},
            GpuRequest(2, 0.5, None, (("a", "b"),), (), 300.0),
            True,
        ),
        ([], {"BITFUSION_ACQUIRE": "start"}, {"locked": ["gpus", "partial"]}, BUDGET, True),
    ],
)
def test_in_a_pod_what_is_not_given_is_as_in_its_budget(
    options: list[str],
    environ: dict[str, str],
    config: dict[str, object],
    request_: GpuRequest,
    takes_what_is_left: bool,
) -> None:
    found = resolve(options, environ, config, pod=in_pod(BUDGET))
    assert found.request == request_
    assert found.takes_what_is_left is takes_what_is_left
    assert not resolve(options, environ, config).takes_what_is_left


def test_a_lock_without_a_value_holds_the_budgets_size() -> None:
    pod = in_pod(BUDGET)
    with pytest.raises(WrongSetting, match=r"is locked by your administrator; it stays 2 GPUs × 50 %"):
        resolve([], {"BITFUSION_GPUS": "1"}, {"locked": ["gpus"]}, pod=pod)
    assert resolve([], {"BITFUSION_GPUS": "2"}, {"locked": ["gpus"]}, pod=pod).request == BUDGET
