"""A later webhook moves the command that was put under the client: it is known again, wherever it stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.command.command_line import parse_options
from bitfusion_client.kubernetes.sizes import units
from bitfusion_device_plugin.injector.injection.injected_pod import injected_pod
from tests.bitfusion_device_plugin.injector.pods import (
    AMOUNT,
    FILTER,
    HALF,
    REQUEST,
    UNITS,
    WRAPPED,
    Object,
    container,
    inject,
    pod,
    refused,
)
from tests.bitfusion_device_plugin.injector.stage import Stage
from tests.bitfusion_device_plugin.injector.webhooks import (
    MOVES,
    Change,
    applied,
    init_in_front,
    katib_collected,
    launcher_in_front,
    vault_env_in_front,
)

TRAINING = ["python", "t.py", "--lr", "0.1"]
LINE = "cd . && exec python t.py --lr 0.1"
CLIENT = "/bitfusion/bin/bitfusion"
OURS = [CLIENT, "run", "-n", "1", "-p", "0.5", "--"]
RECORDED = json.loads(Path(__file__).with_name("katib.json").read_text())


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"))


def asking(command: Sequence[str], args: Any = None, **annotations: str) -> Object:
    fields: Object = {"command": list(command), **({} if args is None else {"args": list(args)})}
    return pod(container({HALF: "1"}, "train", **fields), annotations={**WRAPPED, **annotations})


def through(before: Object, *later: Change) -> Object:
    """The container that asks, after ours, these webhooks and ours again; a further pass changes nothing."""
    made = inject(applied(inject(before), later))["spec"]["containers"]
    return next(each for each in made if each["name"] == "train")


COMMANDS = {
    "words": asking(TRAINING),
    "words and arguments": asking(TRAINING[:1], TRAINING[1:]),
    "a shell's line": asking(["sh", "-c", LINE]),
    "a shell's line in the arguments": asking(["sh", "-c"], [LINE]),
    "a shell with options": asking(["/bin/bash", "-e", "-o", "pipefail", "-c", LINE, "name"]),
    "a filter with a blank": asking(TRAINING, **{REQUEST: "-n 1 -p 0.5 --filter 'model=a b'"}),
    "a filter like a shell's code": asking(["sh", "-c", LINE], **{FILTER: "a=$(id)`id`;exit"}),
    "several servers": asking(TRAINING, **{REQUEST: "-n 2 -p 0.25 --server_list a:1;b:2"}),
}


@pytest.mark.parametrize("change", MOVES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("before", COMMANDS.values(), ids=COMMANDS)
def test_gpus_are_taken_once_and_the_program_is_the_one_without_us(
    stage: Stage, before: Object, change: Change
) -> None:
    made = through(before, change)
    started = stage.started(made)
    assert len(started.runs) == 1, f"{made['command']} {made.get('args')}"
    held, _ = parse_options(started.runs[0][1:])
    assert str(units(held, None)) == made["resources"]["limits"][UNITS] == "50"
    assert started.programs == [TRAINING]
    assert before["spec"]["containers"][0] == applied(before, [])["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("change", "command", "args"),
    [
        (vault_env_in_front, ["/vault/vault-env"], [*OURS, *TRAINING]),
        (launcher_in_front, ["ddtrace-run", *OURS, *TRAINING], None),
        (init_in_front, ["tini", "--", *OURS, *TRAINING], None),
    ],
)
def test_what_another_webhook_has_made_of_our_words_stays(
    change: Change, command: list[str], args: Any
) -> None:
    made = through(asking(TRAINING), change)
    assert (made["command"], made.get("args")) == (command, args)


def test_a_line_whose_words_are_right_stays() -> None:
    made = through(asking(TRAINING), katib_collected)
    line = f"{' '.join([*OURS, *TRAINING])} 1>/var/log/katib/metrics.log 2>&1 && echo completed > "
    assert made["args"] == [f"{line}/var/log/katib/$$$$.pid"]


def test_a_line_within_a_line_is_a_word_again() -> None:
    made = through(asking(["sh", "-c", LINE]), katib_collected)
    line = '"$0" "$@" 1>/var/log/katib/metrics.log 2>&1 && echo completed > /var/log/katib/$$$$.pid'
    assert (made["command"], made["args"]) == (["sh", "-c"], [line, *OURS, "sh", "-c", LINE])


@pytest.mark.parametrize("change", MOVES, ids=lambda change: change.__name__)
def test_a_size_that_changes_with_the_command_is_the_one_that_is_held(stage: Stage, change: Change) -> None:
    def asks_for_more(made: Object) -> None:
        made["metadata"]["annotations"][REQUEST] = "-n 2 --filter 'a=b c'"

    made = through(asking(["sh", "-c"], [LINE]), change, asks_for_more)
    (run,) = stage.started(made).runs
    assert run == ["run", "-n", "2", "--filter", "a=b c"]
    assert made["resources"]["limits"][UNITS] == "200"


def test_a_command_that_is_another_one_since_is_put_under_the_client_again() -> None:
    once = inject(asking(TRAINING))
    once["spec"]["containers"][0].update(command=["sleep"], args=["infinity"])
    made = inject(once)
    assert made["spec"]["containers"][0]["command"] == [*OURS, "sleep"]


def test_a_container_that_comes_since_is_remembered_beside_the_others() -> None:
    once = inject(asking(TRAINING))
    once["spec"]["containers"].insert(0, container({AMOUNT: "1"}, "late", command=["sh", "-c", LINE]))
    made = inject(once)
    memory = made["spec"]["initContainers"][0]["env"][-1]
    assert memory["name"] == "BITFUSION_WRAPPED"
    assert [word.partition("=")[0] for word in memory["value"].split()] == ["late", "train"]


@pytest.mark.parametrize(
    "command",
    [
        ["bitfusion", "run", "-n", "1", "python"],
        ["bitfusion run -n 1 python"],
        ["sh", "-c", "cd /x && exec /usr/local/bin/bitfusion run -n 1 -- python t.py"],
        ["sh", "-c", "(bitfusion  run -n 1 python t.py)"],
        ["env", "A=b", "bitfusion", "run", "-n", "1", "python"],
    ],
)
@pytest.mark.parametrize("in_arguments", [False, True], ids=["command", "arguments"])
def test_a_command_that_starts_the_client_by_itself_stays(command: list[str], in_arguments: bool) -> None:
    before = asking(["nice"], command) if in_arguments else asking(command)
    made = inject(before)["spec"]
    assert made["containers"][0]["command"] == before["spec"]["containers"][0]["command"]
    assert made["containers"][0].get("args") == before["spec"]["containers"][0].get("args")
    assert "BITFUSION_WRAPPED" not in json.dumps(made["initContainers"])


@pytest.mark.parametrize(
    "command",
    [
        ["echo", "bitfusion", "running"],
        ["sh", "-c", "my-bitfusion run x"],
        ["sh", "-c", "python bitfusion.py run"],
        ["sh", "-c", "bitfusion list_gpus; python t.py"],
    ],
)
def test_a_command_that_only_sounds_like_it_is_put_under_the_client(command: list[str]) -> None:
    assert inject(asking(command))["spec"]["containers"][0]["command"] == [*OURS, *command]


def test_a_line_in_which_our_words_cannot_be_told_apart_is_refused_in_words() -> None:
    before = inject(asking(["sh", "-c", LINE]))
    moved = applied(before, [katib_collected])
    (train, _) = moved["spec"]["containers"]
    for line, more in (
        (train["args"][0].replace("t.py", "u.py"), []),
        (train["args"][0], ["further"]),
        (f"eval '{train['args'][0]}'", []),
        (f'exec "$0" "$@" {train["args"][0]}', []),  # our words would be parameters of another's line
        (f"{train['args'][0]} >${{1}}", []),
    ):
        train["args"] = [line, *more]
        assert refused(moved) == (
            'auto-management/bitfusion requires the command of container "train" to run with the GPUs, '
            "which another webhook made part of a single line, whose words cannot be separated. Use "
            "auto-management/bitfusion: injection and start bitfusion run in the command."
        )


@pytest.mark.parametrize(
    "value", ["train=x", "train=9" * 999, "train=" + "9" * 4000, "=", "train=5:", "$(X)", "x"]
)
def test_a_memory_that_no_pass_has_written_is_no_crash(value: str) -> None:
    moved = applied(inject(asking(["sh", "-c", LINE])), [katib_collected])
    moved["spec"]["initContainers"][0]["env"][-1]["value"] = value
    injected_pod(moved, "ann")


@pytest.mark.parametrize("before", COMMANDS.values(), ids=COMMANDS)
def test_katibs_collector_finds_the_process_and_its_mark(stage: Stage, before: Object) -> None:
    """As ``GetMainProcesses`` and ``WaitPIDs`` of Katib's pns.go look for it.

    The container's first process has the mark in its words, and when it has ended there is a file by its
    number that says completed.
    """
    made = through(before, katib_collected)
    assert "echo completed > /var/log/katib" in " ".join([*made["command"], *made["args"]])
    folder = stage.folder / "katib"
    for path in folder.iterdir():
        path.unlink()
    started = stage.started(made)
    assert (folder / f"{started.pid}.pid").read_text() == "completed\n"


CASES = [(version, case) for version, cases in RECORDED["katib"].items() for case in cases]


@pytest.mark.parametrize(
    ("version", "case"), CASES, ids=[f"{version} {case['name']}" for version, case in CASES]
)
def test_our_katib_makes_what_katibs_own_code_has_made(version: str, case: Any) -> None:
    made = pod(container(name="training-container", **case["before"]), annotations={}, volumes=[])
    katib_collected(made, "training-container", early_stopping=case["early_stopping"])
    after = next(each for each in made["spec"]["containers"] if each["name"] == "training-container")
    assert {key: after[key] for key in ("command", "args")} == case["after"]


def test_a_trial_whose_collector_came_before_takes_its_gpus_once(stage: Stage) -> None:
    """By its name Katib's configuration comes after ours; an administrator may have renamed one."""
    (train, _) = inject(applied(asking(TRAINING), [katib_collected]))["spec"]["containers"]
    started = stage.started(train)
    assert len(started.runs) == 1
    assert started.programs == [TRAINING]
