"""How others see a command that holds GPUs."""

from __future__ import annotations

import os

import pytest

from bitfusion_pool.client.holder import short_label, this_holder


@pytest.mark.parametrize(
    ("program", "environ", "label"),
    [
        (["/usr/bin/python", "train.py", "--fast", "x"], {}, "python train.py --fast"),
        (["python"], {"JPY_SESSION_NAME": "/home/me/digits.ipynb"}, "digits.ipynb"),
        (["python"], {"JPY_SESSION_NAME": "digits.ipynb", "BITFUSION_LABEL": "mine"}, "mine"),
        ([], {}, "request_gpus"),
    ],
)
def test_the_label_is_what_says_most(program: list[str], environ: dict[str, str], label: str) -> None:
    holder = this_holder(program, environ)
    assert (holder.label, holder.pid, holder.uid) == (label, os.getpid(), os.getuid())


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("a;b", "a,b"),
        ("a\nb\tc\x1b", "a b c"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
    ],
)
def test_a_label_is_short_and_breaks_no_line(label: str, shown: str) -> None:
    assert short_label(label) == shown
