"""Every line of the client's logs has its kind; no text crashes the parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.command.client_lines import Line, LogLine
from bitfusion_client.command.client_output import (
    format_back_in_reach,
    format_out_of_reach,
    format_pool_lost,
    format_waiting,
    parse_line,
)

LOGS = Path(__file__).parent / "logs"
CLIENT_ID = "83a890bb-422d-419f-a5d8-61db0d149cf1"


def without_text(line: Line) -> tuple[object, ...]:
    """Kind and meaning of a line: its fields but text, level and time."""
    fields: tuple[str, ...] = line.__match_args__
    kept = [name for name in fields if name not in ("text", "level", "time")]
    return (type(line).__name__, *(getattr(line, name) for name in kept))


def parsed(name: str) -> list[Line]:
    return [parse_line(text) for text in (LOGS / name).read_text(encoding="utf-8").splitlines()]


def test_every_line_of_4_0_0() -> None:
    lines = parsed("run-4.0.0.txt")
    assert [without_text(line) for line in lines] == [
        ("ClaimingClient", "10.117.32.177:56001", CLIENT_ID),
        ("Unknown",),
        ("QueryServer", "10.117.32.177:56001"),
        ("ChoosingServers", ("10.117.32.177:56001",)),
        ("Requesting", (0,), 16160, 0, "4.0.0-639f4163"),
        ("RequestedResources",),
        ("ServerList", ("10.117.32.177:56001",)),
        ("IdleTimeout", 0),
        ("Locked", 1, 1.0, "/tmp/bitfusion940406361"),
        ("RunningCommand", "python /home/workspace/training/train.py", 1),
        (
            "ServerLine",
            "10.117.32.177",
            55001,
            "02491a45-fb7d-4894-833f-bf71ea724e44",
            56001,
            "4.0.0-639f4163",
        ),
        ("Unknown",),
        ("TelemetryStarted", CLIENT_ID, "10.117.32.177:56001"),
        ("Unknown",),
        ("Releasing", "/tmp/bitfusion940406361"),
        ("Released", 1, "/tmp/bitfusion940406361"),
    ]
    assert [(line.level, line.time) for line in lines[:2] if isinstance(line, LogLine)] == [
        ("INFO", "2021-09-03T00:39:22Z"),
        ("WARN", "2021-09-03T00:39:23Z"),
    ]


def test_every_line_of_2_5_0() -> None:
    meanings = [without_text(line) for line in parsed("run-2.5.0.txt")]
    assert [meaning[0] for meaning in meanings] == [
        "QueryServer",
        "ChoosingServers",
        "Requesting",
        "RequestedResources",
        "ServerList",
        "IdleTimeout",
        "Locked",
        "RunningCommand",
        "ServerLine",
        "Unknown",
        "Unknown",
    ]
    assert meanings[2] == ("Requesting", (0,), 8080, 0, "2.5.0-fd3e4839")
    assert meanings[6] == ("Locked", 1, 0.5, "/tmp/bitfusion125236687")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("[INFO] 2021-03-27T04:26:40Z Query server health status", ("QueryServer", "")),
        (
            "[INFO] 2021-03-27T04:26:40Z Query server a:1 to claim host id: x",
            ("ClaimingClient", "a:1", "x"),
        ),
        (
            "[INFO] 2021-03-27T04:26:40Z Requesting GPUs [0 1] with 26008 MiB of memory from server 0, "
            "with version 3.0.0-f95ba24a...",
            ("Requesting", (0, 1), 26008, 0, "3.0.0-f95ba24a"),
        ),
        (
            "[INFO] 2021-03-27T04:26:40Z Choosing GPUs from server list [a:1 b:2]",
            ("ChoosingServers", ("a:1", "b:2")),
        ),
        (
            "[INFO] 2021-03-27T04:26:40Z Running client command 'python -c 'print(1)' on 1' on 2 GPUs, "
            "with the following servers:",
            ("RunningCommand", "python -c 'print(1)' on 1", 2),
        ),
        (
            "[INFO] 2021-03-27T04:26:40Z Waiting for GPUs: position 3 of 9; held by root: digits.ipynb "
            "(1 GPU × 50 %, since 14:03); held by 3 more; before you ada: held by.ipynb (2 GPUs, since 14:05)"
            "; before you 1 more; why: order",
            (
                "Waiting",
                3,
                9,
                ("root: digits.ipynb (1 GPU × 50 %, since 14:03)", "3 more"),
                ("ada: held by.ipynb (2 GPUs, since 14:05)", "1 more"),
                "order",
            ),
        ),
        (
            "[INFO] 2021-03-27T04:26:40Z Locked 2 GPUs with partial memory 0.00001, "
            "configuration saved to '/tmp/bitfusion1'",
            ("Locked", 2, 1e-05, "/tmp/bitfusion1"),
        ),
        ("[INFO] 2021-03-27T04:26:40Z Waiting for GPUs: position 3 of 3", ("Waiting", 3, 3, (), (), "")),
        (
            "[INFO] 2021-03-27T04:26:40Z Waiting for GPUs: why: 2 of 3 nodes have no free GPU",
            ("Waiting", None, None, (), (), "2 of 3 nodes have no free GPU"),
        ),
        ("[WARN] 2021-03-27T04:26:40Z Note: shared; so", ("Note", "shared; so")),
        ("Token expired at: 2022-09-03 00:00", ("TokenExpiredLine", "2022-09-03 00:00")),
        ("Error: what: ever", ("FatalError", "what: ever")),
        ("Server List: a:1;b:2", ("ServerList", ("a:1", "b:2"))),
        (
            "[WARN] 2021-03-27T04:26:40Z Pool gpu.example:56001 is out of reach: no answer; "
            "the program is ended in 85 s unless it comes back",
            ("OutOfReach", "gpu.example:56001", "no answer", 85),
        ),
        (
            "[WARN] 2021-03-27T04:26:40Z Pool [::1]:56001 is out of reach: Connection refused",
            ("OutOfReach", "[::1]:56001", "Connection refused", None),
        ),
        (
            "[INFO] 2021-03-27T04:26:40Z Pool gpu.example:56001 is back after 42 s",
            ("BackInReach", "gpu.example:56001", 42),
        ),
        (
            "Error: pool a:1 was out of reach for 90 s, so the program was ended: "
            "its GPUs may be given to others",
            (
                "PoolLost",
                "pool a:1 was out of reach for 90 s, so the program was ended: "
                "its GPUs may be given to others",
                "a:1",
                90,
            ),
        ),
        # lines that only begin as known ones do
        ("Error: pool a:1 was out of reach for once", ("FatalError", "pool a:1 was out of reach for once")),
        (
            "Error: pool a:1 was out of reach for ² s, so the program was ended: "
            "its GPUs may be given to others",
            (
                "FatalError",
                "pool a:1 was out of reach for ² s, so the program was ended: "
                "its GPUs may be given to others",
            ),
        ),
        ("[WARN] 2021-03-27T04:26:40Z Pool of tears is out of reach: no", ("Unknown",)),
        ("[WARN] 2021-03-27T04:26:40Z Pool a:1 is back after lunch", ("Unknown",)),
        (
            "[WARN] 2021-03-27T04:26:40Z Pool a:1 is out of reach: no; the program is ended in a while",
            ("Unknown",),
        ),
        ("[INFO] 2021-03-27T04:26:40Z Locked out", ("Unknown",)),
        ("[INFO] 2021-03-27T04:26:40Z Requesting GPUs [x] with 1 MiB of memory from server 0", ("Unknown",)),
        ("[INFO] 2021-03-27T04:26:40Z Released GPUs on some servers", ("Unknown",)),
        ("[INFO] 2021-03-27T04:26:40Z Waiting for GPUs: soon", ("Unknown",)),
        ("[INFO] 2021-03-27T04:26:40Z Query server a:1 to dance", ("Unknown",)),
        ("[INFO] 2021-03-27T04:26:40Z a b c d e", ("Unknown",)),
        ("[INFO] yesterday Locked 1 GPUs", ("Unknown",)),
        ("[info] 2021-03-27T04:26:40Z Query server a:1 gpu availability", ("Unknown",)),
        ("GPU 1 is hot", ("Unknown",)),
        ("Requested resources: none", ("Unknown",)),
        ("Client idle timeout: never", ("Unknown",)),
        ("", ("Unknown",)),
    ],
)
def test_other_lines(text: str, meaning: tuple[object, ...]) -> None:
    line = parse_line(text + "\n")
    assert without_text(line) == meaning
    assert line.text == text


def test_contact_that_failed() -> None:
    line = parsed("claim-network.txt")[0]
    assert without_text(line) == (
        "ContactFailed",
        "10.117.32.156:56001",
        "Get https://10.117.32.156:56001/claim_id: dial tcp 10.117.32.156:56001: i/o timeout",
    )


LOG_BEGINNINGS = [
    "Query server ",
    "Error contacting server ",
    "Choosing GPUs from server list ",
    "Requesting GPUs ",
    "Locked ",
    "Running client command ",
    "Command started, launching telemetry process: ",
    "Waiting for GPUs: ",
    "Pool a:1 is out of reach: ",
    "Pool a:1 is back after ",
    "Releasing GPUs from config file ",
    "Released GPUs on ",
]
PLAIN_BEGINNINGS = [
    "Error: ",
    "Error: pool a:1 was out of reach for ",
    "Token expired at: ",
    "Requested resources:",
    "Server List: ",
    "Client idle timeout: ",
]
TEXTS = st.text("0123456789 []':,;.MiBGPUs of with server place ahead", max_size=60)


@given(
    st.one_of(
        st.text(),
        st.builds("{}{}".format, st.sampled_from(PLAIN_BEGINNINGS), TEXTS),
        st.builds("[INFO] 2021-03-27T04:26:40Z {}{}".format, st.sampled_from(LOG_BEGINNINGS), TEXTS),
        st.builds("[INFO] 2021-03-27T04:26:40Z {}".format, st.text()),
    )
)
def test_no_text_crashes_the_reader(text: str) -> None:
    assert parse_line(text).text == text.rstrip("\r\n")


NAMES = st.text(st.characters(blacklist_characters=";", blacklist_categories=("C", "Z")), min_size=1)


def _shown(names: list[str], count: int) -> tuple[str, ...]:
    return tuple(names) if count == len(names) <= 4 else (*names[:4], f"{count - len(names[:4])} more")


@given(
    st.tuples(st.integers(1, 999), st.integers(1, 999)) | st.just((None, None)),
    st.lists(NAMES, max_size=8),
    st.lists(NAMES, max_size=8),
    st.integers(0, 3),
    NAMES,
)
def test_the_waiting_line_reads_back(
    place: tuple[int | None, int | None], held_by: list[str], before: list[str], more: int, why: str
) -> None:
    text = format_waiting(*place, held_by, len(held_by) + more, before, len(before) + more, why)
    line = parse_line("[INFO] 2021-03-27T04:26:40Z " + text)
    holders, waiters = _shown(held_by, len(held_by) + more), _shown(before, len(before) + more)
    assert without_text(line) == ("Waiting", *place, holders, waiters, why)


def test_names_cannot_break_the_waiting_line() -> None:
    assert format_waiting(1, 1, ["a; why: b\nError: c"]) == (
        "Waiting for GPUs: position 1 of 1; held by a, why: b Error: c"
    )


POOLS = st.from_regex(r"[a-z0-9.\[\]:]{1,40}:[0-9]{1,5}", fullmatch=True)


@given(POOLS, st.text(max_size=40), st.none() | st.integers(0, 120))
def test_a_pool_out_of_reach_reads_back(pool: str, reason: str, ends_in_s: int | None) -> None:
    line = parse_line("[WARN] 2021-03-27T04:26:40Z " + format_out_of_reach(pool, reason, ends_in_s))
    shown = " ".join(reason.replace(";", ",").split())
    assert without_text(line) == ("OutOfReach", pool, shown, ends_in_s)


@given(POOLS, st.integers(0, 10**6))
def test_a_pool_that_is_back_or_lost_reads_back(pool: str, seconds: int) -> None:
    back = parse_line("[INFO] 2021-03-27T04:26:40Z " + format_back_in_reach(pool, seconds))
    assert without_text(back) == ("BackInReach", pool, seconds)
    problem = format_pool_lost(pool, seconds)
    assert without_text(parse_line(f"Error: {problem}")) == ("PoolLost", problem, pool, seconds)
