"""images.lock.yaml and its component say the same; the lines of images that were not built again stay."""

from __future__ import annotations

import pytest
import yaml

from tools.images import lock
from tools.images.lock import Locked
from tools.images.wishes import NAMES, Refused

DIGEST = "sha256:" + "0123456789abcdef" * 4
PUSHED = {name: Locked(f"registry.example.com:5000/team/{name}", "0.10", DIGEST) for name in NAMES}
KEPT = {**PUSHED, "client": Locked("kubeflow-bitfusion/client", "0.10")}


def test_the_values_are_what_the_chart_reads() -> None:
    assert yaml.safe_load(lock.values(PUSHED)) == {
        "images": {
            key: {"repository": f"registry.example.com:5000/team/{name}", "tag": "0.10", "digest": DIGEST}
            for key, name in zip(
                ("client", "notebook", "notebookController", "pool"), sorted(NAMES), strict=True
            )
        }
    }


@pytest.mark.parametrize("images", [PUSHED, KEPT, {"pool": PUSHED["pool"]}])
def test_both_files_say_the_same(images: dict[str, Locked]) -> None:
    values = yaml.safe_load(lock.values(images))["images"]
    component = yaml.safe_load(lock.component(images))
    patches = component.pop("patches", [])  # what they do: tests/charts/test_images_lock.py
    assert bool(patches) == ("notebook" in images)
    assert (component["kind"], set(component)) == ("Component", {"apiVersion", "kind", "images"})
    said = {}
    for each in component["images"]:
        name = each.pop("name").removeprefix("kubeflow-bitfusion/")
        key = "notebookController" if name == "notebook-controller" else name
        said[key] = (each["newName"], each.get("newTag"), each.get("digest"))
    assert said == {
        key: (image["repository"], None if image["digest"] else image["tag"], image["digest"] or None)
        for key, image in values.items()
    }


@pytest.mark.parametrize("images", [{}, PUSHED, KEPT])
def test_what_was_written_is_read(images: dict[str, Locked]) -> None:
    assert lock.parse(lock.values(images)) == images


@pytest.mark.parametrize("change", ["more: 1\n", "  client:\n", "# mine\n"])
def test_a_file_of_somebody_elses_is_told(change: str) -> None:
    with pytest.raises(Refused, match=r"images.lock.yaml is not as `make images` has written it: remove it"):
        lock.parse(lock.values(PUSHED) + change)
