"""Finding, reading and removing installed kernelspecs, among others that are foreign or broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_client.errors import UsageError
from bitfusion_kernel.install import spec_store
from bitfusion_kernel.install.kernelspec import kernel_json
from tests.support.machine import scaled


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where Jupyter looks, with two of our kernelspecs, a foreign one and broken ones."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    folder = tmp_path / "kernels"
    texts = {"foreign": '{"argv": ["python"]}', "broken": "{", "list": "[]", "empty": ""}
    for name in ("b", "a"):
        ours = kernel_json(
            python="/p", entry="/e", folder="/f", display_name=name, language="python", wrapped_metadata={}
        )
        texts[name] = json.dumps(ours)
    for name, text in texts.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "kernel.json").write_text(text)
    return folder


def test_only_ours_are_listed_in_the_order_of_their_names(kernels: Path) -> None:
    found = spec_store.installed_specs()
    assert [(spec.name, spec.folder) for spec in found] == [
        ("a", str(kernels / "a")),
        ("b", str(kernels / "b")),
    ]


def test_a_name_is_found_in_any_case(kernels: Path) -> None:
    assert spec_store.find("A").folder == str(kernels / "a")


def test_a_name_that_is_unknown_is_told_with_those_that_are_known(kernels: Path) -> None:
    with pytest.raises(UsageError, match='no Bitfusion kernel "c"') as error:
        spec_store.find("c")
    assert "installed: a, b" in error.value.user_message


@pytest.mark.parametrize("name", ["foreign", "broken"])
def test_what_is_not_ours_is_not_found_and_so_not_removed(kernels: Path, name: str) -> None:
    with pytest.raises(UsageError):
        spec_store.find(name)
    assert (kernels / name / "kernel.json").exists()


def test_removing_takes_the_folder(kernels: Path) -> None:
    spec_store.remove(spec_store.find("a"))
    assert not (kernels / "a").exists()
    assert (kernels / "b").exists()


def test_removing_a_link_leaves_what_it_points_to(kernels: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    (kernels / "a").rename(real)
    (kernels / "a").symlink_to(real)
    spec_store.remove(spec_store.find("a"))
    assert not (kernels / "a").exists()
    assert (real / "kernel.json").exists()


def test_a_file_of_the_folder_must_hold_an_object(kernels: Path) -> None:
    spec = spec_store.find("a")
    assert spec.content("kernel.json") == spec.kernel
    (kernels / "a" / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="does not hold a JSON object"):
        spec.content("other.json")
    with pytest.raises(FileNotFoundError):
        spec.content("none.json")


def test_a_kernel_is_installed_found_and_removed_where_a_name_has_bytes_that_are_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    monkeypatch.setenv("JUPYTER_PATH", f"{prefix}/share/jupyter")
    monkeypatch.setattr(spec_store, "ask_kernel", lambda argv, env: {"status": "ok"})
    folder = spec_store.install("odd", "Café", prefix=prefix)
    (found,) = [spec for spec in spec_store.installed_specs() if spec.name == "odd"]
    assert found.folder == folder
    assert f"--bitfusion-spec={folder}" in found.kernel["argv"]
    assert "Café" in (Path(folder) / "kernel.json").read_text(encoding="utf-8")
    for words in (["list"], ["remove", "odd"]):
        done = subprocess.run(
            [sys.executable, "-m", "bitfusion_kernel.cli", *words],
            env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
            capture_output=True,
            timeout=scaled(20),
            check=True,
        )
        assert b"/caf\xe9/share/jupyter/kernels/odd" in done.stdout
