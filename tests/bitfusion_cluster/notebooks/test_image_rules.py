"""images.yaml as an admin edits it while the controller runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_client.kubernetes.client_images import DEFAULT_RULES, ImageRule, default_rules
from bitfusion_cluster.notebooks.image_rules import ImageRulesFile

ONE = "- {image: 'team/*', os: centos8, version: 450}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "images.yaml"
    path.write_text(ONE)
    return path


def test_without_a_file_the_built_in_rules_hold() -> None:
    images = ImageRulesFile(None)
    images.load()
    assert images.refresh() is False
    assert images.rules == DEFAULT_RULES


def test_the_admins_rules_come_first(file: Path) -> None:
    images = ImageRulesFile(str(file))
    images.load()
    assert images.rules == (ImageRule("team/*", "centos8", "450"), *DEFAULT_RULES)


def test_a_changed_file_is_read_again_and_an_unchanged_one_gives_the_same_object(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = ImageRulesFile(str(file))
    images.load()
    before = images.rules
    assert images.refresh() is False
    assert images.rules is before
    file.write_text(ONE + ONE.replace("team", "lab"))
    with caplog.at_level(logging.INFO):
        assert images.refresh() is True
    assert [rule.image for rule in images.rules[:2]] == ["team/*", "lab/*"]
    assert caplog.messages == ["image rules read again"]
    file.write_text("")
    assert images.refresh() is True
    assert images.rules == DEFAULT_RULES


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"- {image: [\n", 'wrong setting --images="{file}": is not YAML (line 2: '),
        (b"- !!bool x\n", 'wrong setting --images="{file}": is not YAML (KeyError)'),
        (b"- !!int ''\n", 'wrong setting --images="{file}": is not YAML (IndexError)'),
        (b"- !!timestamp x\n", 'wrong setting --images="{file}": is not YAML (AttributeError)'),
        (b"\xff\xfe\x00", 'wrong setting --images="{file}": is not YAML ('),
        (b"- image: a\n", 'wrong setting images[0]="'),
        (b"a: 1\n", 'wrong setting images="'),
        (b"!!python/object:os.system {}\n", 'wrong setting --images="{file}": is not YAML (line 1: '),
    ],
)
def test_a_broken_file_ends_the_start_and_is_told_once_later(
    file: Path, content: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    images = ImageRulesFile(str(file))
    images.load()
    before = images.rules
    file.write_bytes(content)
    for _ in range(3):
        assert images.refresh() is False
    assert images.rules is before
    words = words.replace("{file}", str(file))
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"image rules cannot be read, the old contents stay in use: {words}")
    with pytest.raises(WrongSetting) as caught:
        ImageRulesFile(str(file)).load()
    assert str(caught.value).startswith(words)
    file.write_text(ONE)
    assert images.refresh() is False
    assert images.rules is before


def test_a_file_that_is_not_there(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    images = ImageRulesFile(str(file))
    images.load()
    file.unlink()
    assert images.refresh() is False
    told = f'wrong setting --images="{file}": cannot be read (No such file or directory)'
    assert caplog.messages == [f"image rules cannot be read, the old contents stay in use: {told}"]
    with pytest.raises(WrongSetting) as caught:
        ImageRulesFile(str(file)).load()
    assert str(caught.value) == told


def test_the_list_of_clients_holds_with_and_without_a_file(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert ImageRulesFile(None, "vmware").rules == default_rules("vmware")
    images = ImageRulesFile(str(file), "vmware")
    images.load()
    assert images.rules == (ImageRule("team/*", "centos8", "450"), *default_rules("vmware"))
    before = images.rules
    file.write_text(ONE.replace("450", "454"))
    assert images.refresh() is False
    assert images.rules is before
    assert "VMware's injector has no such client" in caplog.text
    with pytest.raises(WrongSetting, match="VMware's injector has no such client"):
        ImageRulesFile(str(file), "vmware").load()
