"""Log lines as JSON and as text."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator

import pytest

from bitfusion_client import structured_logs
from bitfusion_client.structured_logs import configure_logging


@pytest.fixture(autouse=True)
def root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("tornado.general", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


log = logging.getLogger("notebook_controller_patch.tested")


def test_handshakes_that_fail_fill_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = io.StringIO(), [100.0]
    monkeypatch.setattr(structured_logs._SELDOM, "until", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    configure_logging("json", "info", stream)
    for moment in range(100):
        now[0] = 100 + moment / 10
        logging.getLogger("tornado.general").warning("SSL Error on %d", moment)
    assert len(stream.getvalue().splitlines()) == 1
    now[0] = 110.0
    logging.getLogger("tornado.general").warning("SSL Error")
    assert len(stream.getvalue().splitlines()) == 2


def test_one_event_is_one_line_of_json() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream)
    log.info("notebook refused", extra={"namespace": "ann", "keys": ["a", "b"], "reason": "zwei\nLines ü"})
    log.debug("not shown")
    (line,) = stream.getvalue().splitlines()
    assert line.isascii()
    event = json.loads(line)
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "info",
        "logger": "notebook_controller_patch.tested",
        "message": "notebook refused",
        "namespace": "ann",
        "keys": ["a", "b"],
        "reason": "zwei\nLines ü",
    }


def test_a_traceback_is_a_field_of_the_same_line() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream)
    try:
        raise RuntimeError("a bug")
    except RuntimeError:
        log.exception("review failed", extra={"object": object})
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert event["level"] == "error"
    assert event["error"].startswith("Traceback (most recent call last)")
    assert event["error"].endswith("RuntimeError: a bug")
    assert event["object"] == "<class 'object'>"


def test_text_for_people() -> None:
    stream = io.StringIO()
    configure_logging("text", "debug", stream)
    log.warning(
        "notebook %s", "refused", extra={"namespace": "ann", "reason": "two words\n\x1b[31m", "empty": ""}
    )
    (line,) = stream.getvalue().splitlines()
    assert line[2] == line[5] == ":"
    assert line[12:] == (
        r' WARNING notebook refused  namespace=ann reason="two words\n\x1b[31m" empty=""'
    )  # fmt: skip


def test_a_traceback_for_people_stands_below() -> None:
    stream = io.StringIO()
    configure_logging("text", "info", stream)
    try:
        raise RuntimeError("a bug")
    except RuntimeError:
        log.exception("review failed")
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("ERROR   review failed")
    assert lines[-1] == "RuntimeError: a bug"


def test_configured_again_every_line_is_still_written_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging("json", "info", first)
    configure_logging("json", "warning", second)
    log.info("no")
    log.warning("yes")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


def test_wrong_words_are_refused() -> None:
    with pytest.raises(ValueError, match="log format 'xml': one of json, text"):
        configure_logging("xml")
    with pytest.raises(ValueError, match="Unknown level: 'LOUD'"):
        configure_logging("json", "loud", io.StringIO())
