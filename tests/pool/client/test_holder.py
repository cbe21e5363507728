"""How others see a command that holds GPUs."""

from __future__ import annotations

import os
from pathlib import Path

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


@pytest.mark.parametrize(
    ("notebook", "environ", "label", "host"),
    [
        ("mnist", {"JPY_SESSION_NAME": "/home/jovyan/a.ipynb"}, "team-a/mnist: a.ipynb", "team-a/mnist"),
        ("", {}, "team-a/mnist-0: python train.py", "team-a/mnist-0"),
        ("mnist", {"BITFUSION_LABEL": "mine"}, "team-a/mnist: mine", "team-a/mnist"),
    ],
)
def test_in_a_pod_namespace_and_notebook_come_first(
    tmp_path: Path, notebook: str, environ: dict[str, str], label: str, host: str
) -> None:
    (tmp_path / "pod").mkdir()
    for name, text in (("name", "mnist-0"), ("namespace", "team-a"), ("notebook", notebook)):
        (tmp_path / "pod" / name).write_text(text)
    holder = this_holder(["python", "train.py"], environ, str(tmp_path))
    assert (holder.label, holder.host) == (label, host)
