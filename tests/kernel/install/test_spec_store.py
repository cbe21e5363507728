"""Finding, reading and removing installed kernelspecs, among others that are foreign or broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitfusion_client.errors import UsageError
from bitfusion_kernel.install import spec_store
from bitfusion_kernel.install.kernelspec import kernel_json


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
    assert "installed are: a, b" in error.value.user_message


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
    with pytest.raises(ValueError, match="holds no JSON object"):
        spec.content("other.json")
    with pytest.raises(FileNotFoundError):
        spec.content("none.json")
