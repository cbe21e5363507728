"""The form's file with sizes and an image, and given back: byte for byte, or with others' changes kept."""

from __future__ import annotations

import json

import pytest
import yaml

from jupyter_ext.spawner import form_change
from jupyter_ext.spawner.form_change import LONGEST_KEPT, Before, Changed, give_back, put_in, read_before
from jupyter_ext.spawner.sizes import SizeList, parse_sizes
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import parse_document
from tests.jupyter_ext.spawner.spawner_configs import NEWER, OLDER

FILE = "spawner_ui_config.yaml"
IMAGE = "registry.example.com/team/notebook:1.0"
FLOW = "spawnerFormDefaults: {image: {value: a, options: [a, b]}, gpus: {value: {num: none, vendors: []}}}\n"


def sizes(*labels: str) -> SizeList:
    text = json.dumps(
        {"sizes": [{"label": label, "share": f"{50 - at} %"} for at, label in enumerate(labels)]}
    )
    return parse_sizes(parse_document(text, "sizes.yaml"))


def put(text: str, before: Before | None = None, *labels: str, image: str = IMAGE) -> Changed:
    return put_in(text, before, sizes(*labels) if labels else None, image, FILE)


def offered(text: str) -> list[str]:
    gpus = yaml.safe_load(text)["spawnerFormDefaults"]["gpus"]["value"]
    return [vendor["uiName"] for vendor in gpus["vendors"]]


def images(text: str) -> list[str]:
    found: list[str] = yaml.safe_load(text)["spawnerFormDefaults"]["image"]["options"]
    return found


@pytest.mark.parametrize("text", [NEWER, OLDER, FLOW, NEWER.replace("\n", "\r\n")])
def test_what_nobody_else_has_changed_comes_back_byte_for_byte(text: str) -> None:
    changed = put(text, None, "Half", image=IMAGE if "image:" in text else "")
    assert "Half" in offered(changed.text)
    assert changed.before is not None
    kept = read_before(changed.before.to_text())
    assert kept == changed.before
    assert give_back(changed.text, kept, FILE) == text


def test_the_same_again_changes_nothing() -> None:
    once = put(NEWER, None, "Half")
    again = put(once.text, once.before, "Half")
    assert (again.text, again.before) == (once.text, once.before)


def test_another_list_takes_the_place_of_the_first_one() -> None:
    once = put(NEWER, None, "Half", "Third")
    again = put(once.text, once.before, "Other", image="team/other:2")
    assert offered(again.text) == ["NVIDIA", "AMD", "Intel Gaudi", "Other"]
    assert images(again.text) == ["team/other:2", "example.org/jupyter-scipy:v1.8.0"]
    assert give_back(again.text, again.before, FILE) == NEWER


def test_no_sizes_and_no_image_is_what_was_before() -> None:
    once = put(NEWER, None, "Half")
    assert put(once.text, once.before, image="") == Changed(NEWER, None)
    assert put(NEWER, image="") == Changed(NEWER, None)


def test_changes_of_others_stay() -> None:
    once = put(NEWER, None, "Half")
    theirs = (
        once.text.replace('uiName: "AMD"', 'uiName: "AMD MI300"')
        .replace("- example.org/jupyter-scipy", "- example.org/new:1\n    - example.org/jupyter-scipy")
        .replace("mount: /home/jovyan", "mount: /home/user")
    )
    assert theirs.count("\n") == once.text.count("\n") + 1
    back = give_back(theirs, once.before, FILE)
    assert offered(back) == ["NVIDIA", "AMD MI300", "Intel Gaudi"]
    assert images(back) == ["example.org/new:1", "example.org/jupyter-scipy:v1.8.0"]
    assert "# the small one" in back
    assert "mount: /home/user" in back
    assert "kubeflow-bitfusion" not in back

    again = put(theirs, once.before, "Other")
    assert offered(again.text) == ["NVIDIA", "AMD MI300", "Intel Gaudi", "Other"]
    assert give_back(again.text, again.before, FILE) == back


def test_what_is_preselected_comes_back_unless_somebody_chose_another_vendor() -> None:
    had = NEWER.replace('vendor: ""', 'vendor: "amd.com/gpu"').replace('num: "none"', 'num: "2"')
    default = parse_sizes(parse_document("sizes: [{label: Half, share: 50, default: true}]", "s"))
    once = put_in(had, None, default, "", FILE)
    value = yaml.safe_load(once.text)["spawnerFormDefaults"]["gpus"]["value"]
    assert (value["num"], value["vendor"]) == ("1", "bitfusion.io/gpu-50")
    edited = once.text.replace("# the end", "# theirs")
    value = yaml.safe_load(give_back(edited, once.before, FILE))["spawnerFormDefaults"]["gpus"]["value"]
    assert (value["num"], value["vendor"]) == ("2", "amd.com/gpu")
    chosen = edited.replace('vendor: "bitfusion.io/gpu-50"', 'vendor: "nvidia.com/gpu"')
    value = yaml.safe_load(give_back(chosen, once.before, FILE))["spawnerFormDefaults"]["gpus"]["value"]
    assert (value["num"], value["vendor"]) == ("1", "nvidia.com/gpu")


def test_sizes_that_an_admin_had_written_by_hand_come_back() -> None:
    had = put(NEWER, None, "By hand", image="").text
    once = put(had, None, "Half", "Third")
    assert give_back(once.text, once.before, FILE) == had
    assert offered(give_back(once.text + "# theirs\n", once.before, FILE))[-1] == "By hand"


def test_an_image_that_was_there_or_is_preselected_stays() -> None:
    had = NEWER.replace("    - example.org", f"    - {IMAGE}\n    - example.org")
    once = put(had, None, "Half")
    assert once.before is not None
    assert once.before.image == ""
    assert images(give_back(once.text + "# theirs\n", once.before, FILE))[0] == IMAGE
    ours = put(NEWER, None, "Half")
    chosen = ours.text.replace("value: example.org/jupyter-scipy:v1.8.0", f"value: {IMAGE}")
    assert images(give_back(chosen, ours.before, FILE))[0] == IMAGE


def test_kubeflows_manifests_applied_anew_leave_nothing_to_give_back() -> None:
    once = put(NEWER, None, "Half")
    assert give_back(NEWER, once.before, FILE) == NEWER
    newer = NEWER.replace("v1.8.0", "v1.9.0")
    assert give_back(newer, once.before, FILE) == newer


@pytest.mark.parametrize("options", ["[]", "[x]", "[a, x]", "[x, a]", "[a, x, b]"])
def test_an_image_is_taken_out_of_a_list_of_any_style(options: str) -> None:
    text = FLOW.replace("[a, b]", options)
    before = Before(FLOW, "", "x")
    assert images(give_back(text, before, FILE)) == [name for name in ("a", "b") if name in options]
    block = "".join(f"    - {name} # {name}\n" for name in yaml.safe_load(options))
    blocks = (
        f"spawnerFormDefaults:\n  image:\n    value: a\n    options:\n{block or '      []'}\n  other: 1\n"
    )
    left = give_back(blocks, before, FILE)
    assert images(left) == [name for name in ("a", "b") if name in options]
    assert all(f"# {name}" in left for name in ("a", "b") if name in options)


@pytest.mark.parametrize(
    "kept",
    [None, "", "null", "[]", "{}", '{"written": "x", "file": "!"}', '{"written": "x", "file": "AAAA"}'],
)
def test_what_was_kept_and_cannot_be_read_is_nothing(kept: str | None) -> None:
    assert read_before(kept) is None


def test_a_file_that_is_too_long_is_not_kept_and_what_is_ours_is_taken_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(form_change, "LONGEST_KEPT", 100)
    once = put(NEWER, None, "Half")
    assert once.before is not None
    kept = read_before(once.before.to_text())
    assert kept is not None
    assert kept.file is None
    assert offered(give_back(once.text, kept, FILE)) == ["NVIDIA", "AMD", "Intel Gaudi"]
    assert images(give_back(once.text, kept, FILE)) == ["example.org/jupyter-scipy:v1.8.0"]


def test_a_kept_file_is_never_unpacked_beyond_what_a_file_may_have() -> None:
    bomb = Before("x" * (1 << 21), "", "").to_text()
    assert len(bomb) < LONGEST_KEPT
    assert read_before(bomb) is None


def test_another_file_is_refused() -> None:
    with pytest.raises(WrongFile, match="has no spawnerFormDefaults"):
        put("a: 1\n", None, "Half")
