"""Options read back as they are written; every wrong one is named."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.command.command_line import (
    field_of,
    format_options,
    parse_options,
    parse_program,
    parse_request_text,
    run_command,
    split_words,
)
from bitfusion_client.errors import InvalidRequest, UsageError
from bitfusion_client.request.gpu_request import GpuRequest
from tests.client.strategies import refusal, requests

OPTIONS = (
    "the options are -n GPUS, -p SHARE or -m MIB, --filter KEY=VALUE, --server_list HOST:PORT, --timeout 30m."
)


@pytest.mark.parametrize(
    ("line", "request_", "rest"),
    [
        # spellings seen with the real client
        ("-n 1 -- python asimov_i.py --num_gpus=1 --batchsz=64", GpuRequest(), 4),
        ("-n 1 python bgrl_main.py --dataset wikics", GpuRequest(), 4),
        ("-n 1 -p 0.2 /usr/bin/node /var/www/index.js --port 3000", GpuRequest(1, 0.2), 4),
        ("-n 1 -p 0.500000  -- python x.py a b", GpuRequest(1, 0.5), 4),
        ("-n 1 -p 1.000000 -- x", GpuRequest(1, 1.0), 1),
        ("--server_list 10.1.202.20:56001 -n 1 nvidia-smi", GpuRequest(servers=("10.1.202.20:56001",)), 1),
        ("-n 1 -m 2048", GpuRequest(memory_mib=2048), 0),
        (
            "-n 1 --filter server.hostname=bf-server --filter server.addr=192.168.1.1 -- x",
            GpuRequest(filters=(("server.hostname", "bf-server"), ("server.addr", "192.168.1.1"))),
            1,
        ),
        # spellings remembered, or Go's
        ("--num_gpus 2 --partial=.5", GpuRequest(2, 0.5), 0),
        ("-n=2 --gpu_memory=8 -timeout 90", GpuRequest(2, memory_mib=8, timeout=90), 0),
        ("-n 1 -l 'a:1;b:2' --server_list c:3,d:4", GpuRequest(servers=("a:1", "b:2", "c:3", "d:4")), 0),
        ("-n 1 -n 3", GpuRequest(3), 0),
        ("-n 1 -", GpuRequest(), 1),
        ("-n 1 '' x", GpuRequest(), 2),
        ("-n 1 -- -- x", GpuRequest(), 2),
        (
            "-n 1 --filter 'device.name=Tesla V100 = best'",
            GpuRequest(filters=(("device.name", "Tesla V100 = best"),)),
            0,
        ),
    ],
)
def test_read(line: str, request_: GpuRequest, rest: int) -> None:
    words = shlex.split(line)
    assert parse_options(words) == (request_, words[len(words) - rest :] if rest else [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-n 1 -p 1.5", 'Invalid value "1.5" for -p: must be greater than 0.0 and at most 1.0'),
        ("-n 1 -p 0", 'Invalid value "0" for -p: must be greater than 0.0 and at most 1.0'),
        ("-n 1 -p=half", 'Invalid value "half" for -p: must be greater than 0.0 and at most 1.0'),
        ("-n 1 --partial nan", 'Invalid value "nan" for --partial: must be greater than 0.0 and at most 1.0'),
        ("-n 1 -p 0_1", 'Invalid value "0_1" for -p: must be greater than 0.0 and at most 1.0'),
        ("-n 0", 'Invalid value "0" for -n: must be a whole number from 1 to 1024'),
        ("-n two", 'Invalid value "two" for -n: must be a whole number from 1 to 1024'),
        ("-n -1", 'Invalid value "-1" for -n: must be a whole number from 1 to 1024'),
        ("--num_gpus 1.5", 'Invalid value "1.5" for --num_gpus: must be a whole number from 1 to 1024'),
        ("-n 1 -m 8Gi", 'Invalid value "8Gi" for -m: must be a whole number of MiB, at least 1'),
        ("-n 1 -m 0", 'Invalid value "0" for -m: must be a whole number of MiB, at least 1'),
        (
            "-n 1 -p 0.5 -m 8",
            'Invalid value "8" for -m: give either a share (-p) or an amount of memory (-m), not both',
        ),
        ("-n 1 --filter x", 'Invalid value "x" for --filter: must be key=value, the key without spaces'),
        (
            "-n 1 --filter --gpus=2",
            'Invalid value "--gpus=2" for --filter: must not begin with -, as an option of a command does',
        ),
        (
            "-n 1 --server_list -x:1",
            'Invalid value "-x:1" for --server_list: must not begin with -, as an option of a command does',
        ),
        ("-n 1 --filter =x", 'Invalid value "=x" for --filter: must be key=value, the key without spaces'),
        (
            "-n 1 --server_list ;",
            'Invalid value ";" for --server_list: must be host:port, without spaces; several are joined by ;',
        ),
        (
            "-n 1 -l a:0",
            'Invalid value "a:0" for -l: must be host:port, without spaces; several are joined by ;',
        ),
        (
            "-n 1 --timeout soon",
            'Invalid value "soon" for --timeout: '
            "must be a duration, such as 90, 30m or 2m30s, longer than 0 and at most 2400h",
        ),
        (
            "-n 1 --timeout 0s",
            'Invalid value "0s" for --timeout: '
            "must be a duration, such as 90, 30m or 2m30s, longer than 0 and at most 2400h",
        ),
        ("-p 0.5 -- x", f"the number of GPUs is missing: -n\nWhat to do: {OPTIONS}"),
        ("", f"the number of GPUs is missing: -n\nWhat to do: {OPTIONS}"),
        ("-n", f"flag needs an argument: -n\nWhat to do: {OPTIONS}"),
        ("-x 1", f"flag provided but not defined: -x\nWhat to do: {OPTIONS}"),
        ("---n 1", f"flag provided but not defined: ---n\nWhat to do: {OPTIONS}"),
    ],
)
def test_wrong_options(line: str, message: str) -> None:
    with pytest.raises((InvalidRequest, UsageError)) as caught:
        parse_options(shlex.split(line))
    assert caught.value.user_message == message


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("-m 8Gi", GpuRequest(memory_mib=8192)),
        ("-m 8GB", GpuRequest(memory_mib=7629)),
        ("-m '8 GiB'", GpuRequest(memory_mib=8192)),
        ("-m 8192", GpuRequest(memory_mib=8192)),
        ("-m 256", GpuRequest(memory_mib=256)),
        ("-n 2 -p 0.5", GpuRequest(2, 0.5)),
    ],
)
def test_people_may_give_memory_with_its_unit(line: str, request_: GpuRequest) -> None:
    assert parse_options(shlex.split(line), base=GpuRequest(), units=True) == (request_, [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-m 8", 'Invalid value "8" for -m: must be at least 256 MiB; did you mean 8Gi?'),
        ("-m 255M", 'Invalid value "255M" for -m: must be at least 256 MiB; did you mean 255Gi?'),
        (
            "--gpu_memory lots",
            'Invalid value "lots" for --gpu_memory: must be an amount of memory, such as 8Gi, 8GB or 8192 '
            "(MiB)",
        ),
        ("-p 50%", 'Invalid value "50%" for -p: must be greater than 0.0 and at most 1.0; write -p 0.5'),
        (
            "--partial 0,5",
            'Invalid value "0,5" for --partial: '
            "must be greater than 0.0 and at most 1.0; write --partial 0.5",
        ),
        ("-p 1.5", 'Invalid value "1.5" for -p: must be greater than 0.0 and at most 1.0'),
        (
            "-p 0.5 -m 8Gi",
            'Invalid value "8192" for -m: give either a share (-p) or an amount of memory (-m), not both',
        ),
    ],
)
def test_what_people_write_wrongly_is_told_with_what_they_meant(line: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_options(shlex.split(line), base=GpuRequest(), units=True)
    assert caught.value.user_message == message


@given(requests(), st.lists(st.text(max_size=5), max_size=3))
def test_options_read_back(request_: GpuRequest, program: list[str]) -> None:
    assert parse_options([*format_options(request_), "--", *program]) == (request_, program)


@given(requests())
def test_a_line_reads_back(request_: GpuRequest) -> None:
    assert parse_request_text(shlex.join(format_options(request_))) == request_


WORDS = st.sampled_from(
    ["-n", "-p", "-m", "--filter", "--server_list", "--timeout", "--", "1", "0.5", "a=b", "-n=1"]
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=6)), max_size=8))
def test_no_words_crash_the_reader(words: list[str]) -> None:
    if refusal(parse_options, words) is None:
        request_, rest = parse_options(words)
        assert rest == words[len(words) - len(rest) :]
        assert parse_options(format_options(request_)) == (request_, [])


@given(st.text(max_size=20))
def test_no_line_crashes_the_reader(text: str) -> None:
    refusal(parse_request_text, text)


def test_a_line_may_not_continue() -> None:
    with pytest.raises(UsageError) as caught:
        parse_request_text("-n 1 python")
    assert caught.value.user_message == f"unexpected word after the options: python\nWhat to do: {OPTIONS}"
    with pytest.raises(UsageError) as caught:
        parse_request_text("-n '1")
    assert caught.value.user_message == """cannot split "-n '1" into words: No closing quotation"""


def test_options_change_an_earlier_request() -> None:
    base = GpuRequest(2, 0.5, filters=(("a", "b"),), timeout=60)
    assert parse_request_text("", base) == base
    assert parse_request_text("-n 1", base) == GpuRequest(1, 0.5, filters=(("a", "b"),), timeout=60)
    assert parse_request_text("-m 8", base) == GpuRequest(2, None, 8, filters=(("a", "b"),), timeout=60)
    assert parse_request_text("--filter c=d", base).filters == (("c", "d"),)
    assert parse_request_text("-p 1", GpuRequest(memory_mib=8)) == GpuRequest(1, 1.0)


def test_options_of_the_two_step_commands() -> None:
    found = {"f": ""}
    assert parse_options(["-n", "1", "-f", "/tmp/x"], other=found) == (GpuRequest(), [])
    assert found == {"f": "/tmp/x"}
    assert parse_options(["2", "-m", "8"], count_may_be_a_word=True) == (GpuRequest(2, memory_mib=8), [])
    with pytest.raises(UsageError):
        parse_options(["-n", "1", "-f", "/tmp/x"])


def test_write() -> None:
    request_ = GpuRequest(2, 0.5, None, (("k", "v"),), ("a:1", "b:2"), 1800)
    options = ["-n", "2", "-p", "0.5", "--filter", "k=v", "--server_list", "a:1;b:2", "--timeout", "30m"]
    assert format_options(request_) == options
    assert run_command("/usr/bin/bitfusion", request_, ["python", "x y"]) == [
        "/usr/bin/bitfusion",
        "run",
        *options,
        "--",
        "python",
        "x y",
    ]
    assert run_command(["python", "client"], GpuRequest(), ["x"]) == [
        "python",
        "client",
        "run",
        "-n",
        "1",
        "--",
        "x",
    ]


def test_a_single_word_reaches_the_program_whole() -> None:
    command = run_command("bitfusion", GpuRequest(), ["/home/a b/train"])
    program = command[command.index("--") + 1 :]
    assert program == ["/usr/bin/env", "/home/a b/train"]
    assert parse_program(program) == program


@pytest.mark.parametrize("program", [[], [""]])
def test_nothing_to_run(program: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        run_command("bitfusion", GpuRequest(), program)
    assert caught.value.user_message == "there is no program to run"


def test_the_one_string_form() -> None:
    assert parse_program(["python x.py --batch='2'"]) == ["python", "x.py", "--batch=2"]
    assert parse_program(["python", "x y"]) == ["python", "x y"]
    for nothing in ([], [""], ["  "]):
        with pytest.raises(UsageError, match="no program to run"):
            parse_program(nothing)
    with pytest.raises(UsageError):
        parse_program(["python '"])


def test_fields_of_options() -> None:
    assert [field_of(flag) for flag in ("-p", "--server_list", "-x")] == ["partial", "servers", "-x"]


@given(st.text(alphabet="ab#$;&|*-=ä \u00a0\t'\"\\\n", max_size=8))
def test_a_line_is_split_as_a_shell_would(text: str) -> None:
    try:
        words = shlex.split(text)
    except ValueError:
        with pytest.raises(UsageError):
            split_words(text)
    else:
        assert split_words(text) == words


def test_a_single_word_costs_no_import_of_the_splitter() -> None:
    code = "import sys; from bitfusion_client.command.command_line import split_words; "
    code += "split_words('/bin/true'); "
    code += "sys.exit('shlex' in sys.modules)"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-S", "-c", code], check=True, cwd=root)
