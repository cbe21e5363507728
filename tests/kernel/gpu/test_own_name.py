"""The name of a kernel in the pool: the user's, the notebook's, never that of the notebook around it."""

from __future__ import annotations

import pytest

from bitfusion_kernel.gpu.own_name import leave_label, notebook


@pytest.mark.parametrize(
    ("environ", "label"),
    [
        ({}, "a Jupyter kernel"),
        ({"JPY_SESSION_NAME": "/home/ada/digits.ipynb"}, "digits.ipynb"),
        ({"JPY_SESSION_NAME": "digits.ipynb", "BITFUSION_LABEL": "mine"}, "mine"),
        ({"BITFUSION_LABEL": ""}, "a Jupyter kernel"),
    ],
)
def test_a_kernel_of_jupyters(environ: dict[str, str], label: str) -> None:
    leave_label(environ)
    assert environ["BITFUSION_LABEL"] == label


@pytest.mark.parametrize(
    ("outer", "given", "label"),
    [
        ({"JPY_SESSION_NAME": "/a/outer.ipynb"}, {}, "a kernel started in outer.ipynb"),
        ({"JPY_SESSION_NAME": "/a/outer.ipynb"}, {"JPY_SESSION_NAME": "/b/inner.ipynb"}, "inner.ipynb"),
        ({"JPY_SESSION_NAME": "/a/outer.ipynb"}, {"JPY_SESSION_NAME": ""}, "a Jupyter kernel"),
        ({"JPY_SESSION_NAME": "/a/outer.ipynb"}, {"BITFUSION_LABEL": "mine"}, "mine"),
        ({"BITFUSION_LABEL": "everybody's"}, {"JPY_SESSION_NAME": "inner.ipynb"}, "everybody's"),
        ({}, {}, "a Jupyter kernel"),
        ({}, {"JPY_SESSION_NAME": "inner.ipynb"}, "inner.ipynb"),
    ],
)
def test_a_kernel_that_a_cell_starts(outer: dict[str, str], given: dict[str, str], label: str) -> None:
    leave_label(outer)
    inner = outer | given
    leave_label(inner)
    assert inner["BITFUSION_LABEL"] == label


def test_the_name_goes_no_deeper_than_the_notebook() -> None:
    environ = {"JPY_SESSION_NAME": "/a/outer.ipynb"}
    for _ in range(3):
        leave_label(environ)
    assert environ["BITFUSION_LABEL"] == notebook(environ) == "a kernel started in outer.ipynb"
