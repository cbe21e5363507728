"""Variables that look like a setting and are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.settings.table import SETTINGS
from bitfusion_kernel.settings.unknown_variables import hints


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("BITFUSION_GPU", "BITFUSION_GPUS"),
        ("BITFUSION_NUM_GPUS", "BITFUSION_GPUS"),
        ("BITFUSION_N", "BITFUSION_GPUS"),
        ("BITFUSION_PARTAIL", "BITFUSION_PARTIAL"),
        ("BITFUSION_SHARE", "BITFUSION_PARTIAL"),
        ("BITFUSION_MEM", "BITFUSION_MEMORY"),
        ("BITFUSION_GPU_MEMORY", "BITFUSION_MEMORY"),
        ("BITFUSION_FILTERS", "BITFUSION_FILTER"),
        ("BITFUSION_SERVERS", "BITFUSION_SERVER_LIST"),
        ("BITFUSION_TIME_OUT", "BITFUSION_TIMEOUT"),
        ("BITFUSION_AQUIRE", "BITFUSION_ACQUIRE"),
        ("bitfusion_gpus", "BITFUSION_GPUS"),
    ],
)
def test_one_that_looks_like_a_setting_is_told_with_what_was_meant(name: str, meant: str) -> None:
    assert hints({name: "2"}) == [f"{name} has no effect. Did you mean {meant}?"]
    assert hints({name: " "}) == []
    assert hints({name: "2", meant: "2"}) == hints({name: "2"})


def test_a_setting_for_config_files_only_is_told_as_such() -> None:
    assert hints({"BITFUSION_LOCKED": "gpus"}) == [
        "BITFUSION_LOCKED has no effect. The setting `locked` can only be set in a config file."
    ]


@pytest.mark.parametrize(
    "name",
    [
        *(setting.variable for setting in SETTINGS if not setting.file_only),
        # ours, for other purposes
        *("BITFUSION_POOL_DIR", "BITFUSION_POOL_CONFIG", "BITFUSION_POOL_MANNERS", "BITFUSION_PYTHON"),
        *("BITFUSION_LABEL", "BITFUSION_KERNEL_SOCKET", "BITFUSION_KERNEL_FILES_PREFIX"),
        *("BITFUSION_CONTROLLER_NAMESPACE", "BITFUSION_TEST_SUITE"),
        # what Kubernetes makes of services called bitfusion, bitfusion-gpu and bitfusion-server
        *("BITFUSION_SERVICE_HOST", "BITFUSION_SERVICE_PORT", "BITFUSION_PORT"),
        *("BITFUSION_PORT_443_TCP", "BITFUSION_PORT_443_TCP_ADDR", "BITFUSION_SERVICE_PORT_HTTPS"),
        *("BITFUSION_GPU_SERVICE_HOST", "BITFUSION_GPU_PORT", "BITFUSION_SERVER_PORT_1_TCP_PROTO"),
        # other people's
        *(
            "BITFUSION",
            "BITFUSION_",
            "BITFUSION_HOME",
            "BITFUSION_TOKEN",
            "BF_VARS",
            "GPUS",
            "MY_BITFUSION_GPU",
        ),
    ],
)
def test_all_others_are_left_alone(name: str) -> None:
    assert hints({name: "2"}) == []


def test_a_crowd_is_told_in_part() -> None:
    crowd = {f"BITFUSION_GPUS{letter}": "1" for letter in "ABCDEFGH"}
    assert len(hints(crowd)) == 3


@given(st.dictionaries(st.text(max_size=30).map("BITFUSION_".__add__), st.text(max_size=5), max_size=5))
def test_no_name_is_too_strange(environ: dict[str, str]) -> None:
    for line in hints(environ):
        assert "\n" not in line
