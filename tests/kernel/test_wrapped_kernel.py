"""The wrapped kernel's files, whole, missing and broken."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bitfusion_kernel.wrapped_kernel import KERNEL_FILE, KERNEL_INFO_FILE, WrappedKernel


def test_a_spec_is_read_and_its_argv_filled_in(tmp_path: Path) -> None:
    (tmp_path / KERNEL_FILE).write_text(
        json.dumps({"argv": ["R", "--args", "{connection_file}"], "env": {"A": "b"}, "language": "R"})
    )
    (tmp_path / KERNEL_INFO_FILE).write_text('{"banner": "R"}')
    wrapped = WrappedKernel.load(str(tmp_path))
    assert wrapped.command("/c.json", ["--more"]) == ["R", "--args", "/c.json", "--more"]
    assert (wrapped.env, wrapped.language, wrapped.kernel_info) == ({"A": "b"}, "R", {"banner": "R"})


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = WrappedKernel(["R", "{connection_file}"], {"A": "b"}, "R", {"banner": "R"})
    for name, content in written.files().items():
        (tmp_path / name).write_text(json.dumps(content))
    assert WrappedKernel.load(str(tmp_path)).__dict__ == written.__dict__


@pytest.mark.parametrize(
    ("fields", "mode"),
    [
        ({"language": "python"}, "signal"),
        ({"language": "R"}, "message"),
        ({"language": "python", "interrupt_mode": "message"}, "message"),
        ({"language": "R", "interrupt_mode": "signal"}, "signal"),
    ],
)
def test_how_it_is_interrupted_is_its_specs_word_or_what_suits_its_language(
    tmp_path: Path, fields: dict[str, str], mode: str
) -> None:
    (tmp_path / KERNEL_FILE).write_text(json.dumps(fields))
    assert WrappedKernel.load(str(tmp_path)).interrupt_mode == mode


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"null", b"\xff", b"{}"])
def test_without_a_usable_spec_it_is_this_pythons_ipykernel(tmp_path: Path, content: bytes | None) -> None:
    for name in (KERNEL_FILE, KERNEL_INFO_FILE):
        if content is not None:
            (tmp_path / name).write_bytes(content)
    wrapped = WrappedKernel.load(str(tmp_path))
    command = wrapped.command("/c.json", [])
    assert command[0] == sys.executable
    assert command[-4:] == ["-m", "ipykernel_launcher", "-f", "/c.json"]
    assert (wrapped.env, wrapped.language) == ({}, "python")
    assert wrapped.kernel_info["status"] == "ok"
    assert wrapped.kernel_info["language_info"]["name"] == "python"


def test_no_folder_is_no_spec() -> None:
    assert WrappedKernel.load(None).language == "python"


@pytest.mark.parametrize(
    "content",
    [{"argv": "R"}, {"argv": [1]}, {"argv": {"a": 1}}, {"env": [1]}, {"env": {"A": 1}}, {"language": 3}],
)
def test_fields_of_a_wrong_kind_count_as_missing(tmp_path: Path, content: object) -> None:
    (tmp_path / KERNEL_FILE).write_text(json.dumps(content))
    wrapped = WrappedKernel.load(str(tmp_path))
    assert "ipykernel_launcher" in wrapped.command("/c.json", [])
    assert (wrapped.env, wrapped.language) == ({}, "python")
