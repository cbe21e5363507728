"""Whether memory ran out, as control groups of both versions count it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.pod.oom_kills import OomKills

V1_EVENTS = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
V2_EVENTS = "low 0\nhigh 0\nmax 7\noom 2\noom_kill {}\noom_group_kill 0\n"
V1 = "9:name=systemd:/\n5:cpu,cpuacct:/\n4:hugetlb,memory:/box\n0::/\n"
V2 = "0::/user.slice/box\n"

# Recorded on Linux 6.18 around a real kill: a cell that took more than the 600 MiB of its kernel's group.
RECORDED_GROUPS = (
    "9:name=systemd:/\n8:pids:/\n7:blkio:/\n6:freezer:/\n5:devices:/\n4:memory:/notebook-600-mib\n"
    "3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n"
)
RECORDED_BEFORE = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"
RECORDED_AFTER = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"


def _counter(folder: Path, membership: str, file: str | None, text: str) -> tuple[OomKills, Path]:
    """What is counted for process 7, in files under `folder`."""
    (folder / "7").mkdir()
    (folder / "7" / "cgroup").write_text(membership)
    counted = folder / "cgroups" / (file or "none")
    counted.parent.mkdir(parents=True)
    counted.write_text(text.format(3))
    return OomKills(7, str(folder), str(folder / "cgroups")), counted


@pytest.mark.parametrize(
    ("membership", "file", "text"),
    [
        pytest.param(V1, "memory/box/memory.oom_control", V1_EVENTS, id="version 1"),
        pytest.param(V1, "memory/memory.oom_control", V1_EVENTS, id="version 1 in a container"),
        pytest.param(V2, "user.slice/box/memory.events", V2_EVENTS, id="version 2"),
        pytest.param("0::/\n", "memory.events", V2_EVENTS, id="version 2 in a container"),
        pytest.param("0::/../other\n", "memory.events", V2_EVENTS, id="version 2 of another namespace"),
    ],
)
def test_kills_are_counted_from_the_beginning_on(
    tmp_path: Path, membership: str, file: str, text: str
) -> None:
    kills, counted = _counter(tmp_path, membership, file, text)
    assert kills.happened() is False, "the three before do not count"
    counted.write_text(text.format(4))
    assert kills.happened() is True
    counted.unlink()
    assert kills.happened() is None


def test_a_real_kill_is_seen_in_what_was_recorded_of_it(tmp_path: Path) -> None:
    file = "memory/notebook-600-mib/memory.oom_control"
    kills, counted = _counter(tmp_path, RECORDED_GROUPS, file, RECORDED_BEFORE)
    assert kills.happened() is False
    counted.write_text(RECORDED_AFTER)
    assert kills.happened() is True


@pytest.mark.parametrize(
    ("membership", "file", "text"),
    [
        pytest.param(V2, None, "", id="no counter"),
        pytest.param("", "memory.events", V2_EVENTS, id="no membership"),
        pytest.param("nonsense\n\n:\n", "memory.events", "", id="nonsense"),
        pytest.param(V2, "memory.events", "oom_kill\noom_kill x\noom_kill -1\n", id="no number"),
        pytest.param(V1, "memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", id="old Linux"),
    ],
)
def test_what_nobody_counts_is_unknown(tmp_path: Path, membership: str, file: str | None, text: str) -> None:
    kills, _ = _counter(tmp_path, membership, file, text)
    assert kills.happened() is None


def test_a_process_that_is_gone_is_unknown(tmp_path: Path) -> None:
    assert OomKills(7, str(tmp_path), str(tmp_path)).happened() is None
