"""The admin's list: read again when it has changed; without it, or PyYAML, the pool makes the sizes."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from jupyter_ext.server.sizes import OfferedSize
from jupyter_ext.server.sizes_file import SizesFile

LOG = logging.getLogger("sizes")
HALF = [OfferedSize("half", GpuRequest(1, 0.5))]


def test_a_list_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "sizes.yaml"
    path.write_text("sizes: [{label: half, share: 50 %}]")
    file = SizesFile(str(path), LOG)
    assert file.sizes() == HALF
    assert file.sizes() is file.sizes()
    path.write_text("sizes: [{label: two, number: 2}]")
    assert file.sizes() == [OfferedSize("two", GpuRequest(2))]


def test_no_path_is_no_list_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert SizesFile("", LOG).sizes() is None
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sizes: [{label: half, share: 500 %}]", "must be a whole number of percent"),
        ("sizes: [", "sizes.yaml"),
        (None, "No such file or directory"),
    ],
)
def test_a_wrong_list_is_logged_once_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None, told: str
) -> None:
    path = tmp_path / "sizes.yaml"
    if text is not None:
        path.write_text(text)
    file = SizesFile(str(path), LOG)
    assert file.sizes() is None
    assert file.sizes() is None
    (message,) = caplog.messages
    assert told in message
    assert message.startswith("Sizes are derived from the pool, because the list ")
    path.write_text("sizes: [{label: half, share: 50 %}]")
    assert file.sizes() == HALF


def test_without_pyyaml_json_is_read_and_yaml_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "sizes.yaml"
    path.write_text(json.dumps({"sizes": [{"label": "half", "share": "50 %"}]}))
    assert SizesFile(str(path), LOG).sizes() == HALF
    path.write_text("sizes: [{label: half, share: 50 %}]")
    assert SizesFile(str(path), LOG).sizes() is None
    assert "checks these files, is missing" in caplog.messages[0]
