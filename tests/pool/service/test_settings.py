"""The service's settings: which source wins, and every wrong value in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_pool.service.settings import TABLE, ServiceSettings, listen_address, pool_name, read_settings

LISTEN = "must be [ADDRESS]:PORT such as :56001, 192.0.2.1:56001 or [::1]:56001, or empty for nowhere"


def test_without_any_source_the_defaults_hold() -> None:
    assert read_settings({}, {}) == ServiceSettings()


def test_every_setting_is_in_the_table() -> None:
    assert [setting.name for setting in TABLE.rows] == list(ServiceSettings.__dataclass_fields__)


def test_every_setting_stands_in_the_guide() -> None:
    guide = (Path(__file__).parents[3] / "docs/reference/pool-service.md").read_text(encoding="utf-8")
    table = guide.partition("| setting |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", table.replace("`json`", ""))) >= {one.name for one in TABLE.rows}


def test_an_option_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text('leases_per_user = 1\ngpus_per_user = 1\nwaiting_per_user = 1\nname = "lab"\n')
    environ = {"BITFUSION_POOL_LEASES_PER_USER": "2", "BITFUSION_POOL_GPUS_PER_USER": "2"}
    environ["BITFUSION_POOL_NAME"] = ""
    found = read_settings({"leases_per_user": "3", "name": None}, environ, str(file))
    assert (found.leases_per_user, found.gpus_per_user, found.waiting_per_user) == (3, 2, 1)
    assert pool_name(found) == "lab"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("dir", "pool", "must be an absolute path"),
        ("socket", "", "must be an absolute path"),
        ("name", "a\nb", "must be one line of at most 100 characters"),
        ("leases_per_user", "-1", "must be a whole number, 0 for no limit"),
        ("gpus_per_user", "1.5", "must be a whole number, 0 for no limit"),
        ("waiting_per_user", "9" * 30, "must be a whole number, 0 for no limit"),
        ("connections_per_user", "0", "must be a whole number, at least 1"),
        ("fair", "yes", "must be true or false"),
        ("messages_per_user", "many", "must be a whole number, at least 1"),
        ("connections", "²", "must be a whole number, at least 1"),
        ("metrics_port", "70000", "must be a port, 1 to 65535, or 0 for none"),
        ("metrics_address", "localhost", "must be an address such as 127.0.0.1, 0.0.0.0 or ::"),
        ("metrics_holders", "users", "must be one of tokens, all, none"),
        ("listen", "example.org:56001", LISTEN),
        ("listen", ":0", LISTEN),
        ("listen", "[::1", LISTEN),
        ("certificate", "server.pem", "must be an absolute path"),
        ("connections_per_address", "0", "must be a whole number, at least 1"),
        ("closed_s", "-1", "must be a number of seconds from 0.1 to 3600"),
        ("silent_s", "nan", "must be a number of seconds from 0.1 to 3600"),
        ("heartbeat_s", "1_0", "must be a number of seconds from 0.1 to 3600"),
        ("log_format", "xml", "must be one of json, text"),
        ("log_level", "loud", "must be one of debug, info, warning, error"),
    ],
)
def test_a_wrong_value_is_told_with_its_source(name: str, value: str, allowed: str) -> None:
    with pytest.raises(WrongSetting) as wrong:
        read_settings({name: value}, {})
    shown = " ".join(value.split())
    option = "--" + name.replace("_", "-")
    assert str(wrong.value) == f'wrong setting {name}="{shown}" (from {option}): {allowed}'


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":56001", "", 56001),
        ("192.0.2.1", "192.0.2.1", 56001),
        ("0.0.0.0:7000", "0.0.0.0", 7000),
        ("[::1]:56001", "::1", 56001),
    ],
)
def test_where_to_listen(text: str, host: str, port: int) -> None:
    settings = read_settings({"listen": text}, {})
    found = listen_address(settings.listen)
    assert (found.host, found.port) == (host, port)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"closed_s": "9", "heartbeat_s": "5"},
            'wrong setting closed_s="9": must be at least twice heartbeat_s, which is 10',
        ),
        ({"silent_s": "14.5"}, 'wrong setting silent_s="14.5": must be at least closed_s, which is 15'),
    ],
)
def test_times_that_leave_no_client_time_to_come_back_are_refused(values: dict[str, str], words: str) -> None:
    with pytest.raises(WrongSetting) as wrong:
        read_settings(values, {})
    assert str(wrong.value) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("leases = 1", 'wrong setting leases="1" (from FILE): is not a setting; settings are certificate, '),
        ("name = [1]", 'wrong setting name="[1]" (from FILE): must be text or a number'),
        ("name = true", 'wrong setting name="true" (from FILE): must be text or a number'),
        ('fair = "true"', 'wrong setting fair="true" (from FILE): must be true or false, without quotes'),
        ("fair = 1", 'wrong setting fair="1" (from FILE): must be true or false, without quotes'),
        ("name =", 'wrong setting settings="FILE" (from --settings): cannot be read: '),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "service.toml"
    file.write_text(text)
    with pytest.raises(WrongSetting) as wrong:
        read_settings({}, {}, str(file))
    assert str(wrong.value).startswith(words.replace("FILE", str(file)))


def test_the_queue_is_strict_unless_a_setting_says_fair(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text("fair = true\n")
    assert not read_settings({}, {}).fair
    assert read_settings({}, {}, str(file)).fair
    assert not read_settings({"fair": "false"}, {"BITFUSION_POOL_FAIR": "true"}, str(file)).fair
    assert read_settings({}, {"BITFUSION_POOL_FAIR": "true"}).fair


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(WrongSetting, match="there is no such file"):
        read_settings({}, {}, f"{tmp_path}/none")
