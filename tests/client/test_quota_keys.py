"""Which keys of a ResourceQuota count units, and which only look as if they did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.quota_keys import wrong_quota_keys, wrong_quota_text


@pytest.mark.parametrize(
    ("hard", "wrong"),
    [
        ({"requests.bitfusion.io/gpu": "150"}, ()),
        ({"bitfusion.io/gpu": "150"}, ("bitfusion.io/gpu",)),
        ({"limits.bitfusion.io/gpu": "150"}, ("limits.bitfusion.io/gpu",)),
        ({"requests.bitfusion.io/gpu-50": "1"}, ("requests.bitfusion.io/gpu-50",)),
        ({"requests.bitfusion.io/gpus": "1"}, ("requests.bitfusion.io/gpus",)),
        ({"requests.bitfusion.io/GPU": "1"}, ("requests.bitfusion.io/GPU",)),
        ({"bitfusion.io/gpu-amount": "0"}, ("bitfusion.io/gpu-amount",)),
        ({"requests.bitfusion.io/gpu": "1", "bitfusion.io/gpu": "1"}, ("bitfusion.io/gpu",)),
        ({"cpu": "1", "requests.nvidia.com/gpu": "1", "bitfusion.io/other": "1", "pods": "3"}, ()),
        (
            {f"bitfusion.io/gpu-{number}": "1" for number in range(1000)},
            ("bitfusion.io/gpu-0", "bitfusion.io/gpu-1", "bitfusion.io/gpu-10"),
        ),
        ({"bitfusion.io/gpu" + "x" * 100: "1"}, ("bitfusion.io/gpu" + "x" * 63 + "…",)),
        ({}, ()),
    ],
)
def test_keys_that_limit_nothing_are_found(hard: dict[str, object], wrong: tuple[str, ...]) -> None:
    assert wrong_quota_keys(hard) == wrong


def test_what_is_said_of_them_names_the_key_that_counts() -> None:
    assert wrong_quota_text(("bitfusion.io/gpu", "limits.bitfusion.io/gpu")) == (
        "does not limit GPUs by bitfusion.io/gpu, limits.bitfusion.io/gpu: use "
        "requests.bitfusion.io/gpu, in hundredths of a GPU, 150 for one and a half"
    )


MIG = ("requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.5gb")


@pytest.mark.parametrize(
    ("hard", "wrong"),
    [
        ({"requests.nvidia.com/gpu": "4", "requests.nvidia.com/mig-1g.5gb": "7", "pods": "9"}, ()),
        ({"requests.bitfusion.io/gpu": "150"}, ("requests.bitfusion.io/gpu",)),
        ({"bitfusion.io/gpu": "1", "requests.nvidia.com/gpu": "4"}, ("bitfusion.io/gpu",)),
        ({"nvidia.com/gpu": "4", "limits.nvidia.com/gpu": "4"}, ("limits.nvidia.com/gpu", "nvidia.com/gpu")),
        ({"limits.nvidia.com/mig-1g.5gb": "4"}, ("limits.nvidia.com/mig-1g.5gb",)),
        ({"requests.amd.com/gpu": "4", "limits.cpu": "4"}, ()),
    ],
)
def test_where_gpu_pods_hold_the_gpus_their_keys_count_and_no_other(
    hard: dict[str, object], wrong: tuple[str, ...]
) -> None:
    assert wrong_quota_keys(hard, MIG) == wrong


def test_what_is_said_there_names_what_gpu_pods_ask_for() -> None:
    assert wrong_quota_text(("bitfusion.io/gpu",), MIG) == (
        "does not limit GPUs by bitfusion.io/gpu: use requests.nvidia.com/gpu and "
        "requests.nvidia.com/mig-1g.5gb, because notebooks compute in GPU pods"
    )


@given(st.dictionaries(st.text(), st.integers()))
def test_no_key_is_an_error_and_what_is_said_has_an_end(hard: dict[str, object]) -> None:
    assert len(wrong_quota_text(wrong_quota_keys(hard))) < 400
