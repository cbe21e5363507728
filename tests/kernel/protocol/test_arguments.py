"""The proxy's command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.protocol.arguments import split_arguments


@pytest.mark.parametrize(
    "words",
    [
        ["-f", "c.json"],
        ["-f=c.json"],
        ["--f=c.json"],
        ["--IPKernelApp.connection_file=c.json"],
        ["--connection-file", "c.json"],
    ],
)
def test_the_connection_file_in_every_spelling_of_ipykernel(words: list[str]) -> None:
    assert split_arguments(words).connection_file == "c.json"


def test_own_options_are_kept_and_all_others_go_to_the_kernel() -> None:
    arguments = split_arguments(
        ["-f", "c", "--bitfusion-gpus=1", "--HistoryManager.hist_file=:memory:", "--bitfusion-gpus=2", "-x"]
    )
    assert arguments.options == ["--bitfusion-gpus=1", "--bitfusion-gpus=2"]
    assert arguments.kernel_options == ["--HistoryManager.hist_file=:memory:", "-x"]
    assert arguments.value("gpus") == "2"
    assert arguments.value("spec") is None


@pytest.mark.parametrize("words", [[], ["-f"], ["-f="], ["--bitfusion-gpus=1"]])
def test_without_a_connection_file_the_user_hears_how_kernels_are_started(words: list[str]) -> None:
    with pytest.raises(ValueError, match="no connection file was given") as error:
        split_arguments(words)
    assert str(error.value) == (
        "no connection file was given (-f FILE). This program is started by Jupyter from a kernelspec;\n"
        "make one with `bitfusion-kernel install --user`, then choose the Bitfusion kernel in JupyterLab."
    )


@given(st.lists(st.text(min_size=1).filter(lambda w: w.partition("=")[0] not in ("-f", "--f")), max_size=5))
def test_no_word_is_lost(words: list[str]) -> None:
    arguments = split_arguments(["-f", "c", *words])
    if not any(w.startswith(("--IPKernelApp.connection_file", "--connection-file")) for w in words):
        assert sorted(arguments.options + arguments.kernel_options) == sorted(words)
