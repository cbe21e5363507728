"""What containerd has made of images is kept between runs and processes, and is never a mixture of two."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.cluster import kept_images
from tests.support.waiting import wait_until

PARTS = (
    "io.containerd.content.v1.content",
    "io.containerd.metadata.v1.bolt",
    "io.containerd.snapshotter.v1.overlayfs",
)
SLOW_CP = """\
#!/bin/sh
for part in "$3" "$4" "$5"; do
    /bin/cp "$1" "$2" "$part" "$6" || exit 1
    touch "$6/begun"
    sleep 0.2
done
"""


def root(folder: Path, generation: str) -> Path:
    for part in PARTS:
        (folder / part).mkdir(parents=True)
        (folder / part / "generation").write_text(generation)
    return folder


def generations(folder: Path) -> set[str]:
    return {(folder / part / "generation").read_text() for part in PARTS}


def test_what_is_taken_while_another_process_keeps_is_of_one_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    taken = tmp_path / "taken"
    assert not kept_images.take(taken)
    assert kept_images.keep(root(tmp_path / "first", "first"))

    (tmp_path / "cp").write_text(SLOW_CP)
    (tmp_path / "cp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    results: list[bool] = []
    taker = threading.Thread(target=lambda: results.append(kept_images.take(taken)))
    taker.start()
    wait_until((taken / "begun").exists, "the copy has begun")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert kept_images.keep(root(tmp_path / "second", "second"))
    taker.join()
    assert results == [True]
    assert generations(taken) == {"first"}

    assert kept_images.take(tmp_path / "later")
    assert generations(tmp_path / "later") == {"second"}
