"""The list of sizes against the rules of GPU pods: what nobody could ever have is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_ext.spawner.sizes import example, parse_sizes
from jupyter_ext.spawner.yaml_document import parse_document
from kubeflow_bitfusion import cli

EXAMPLES = Path(__file__).parents[3] / "examples" / "gpu-pods"
IMAGE = ("--image", "registry.example.com/team/notebook:1.0")
COMMANDS = [("form",), ("profiles", *IMAGE), ("workspacekind", *IMAGE)]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(command: tuple[str, ...], sizes: str, pods: Path | str) -> tuple[int, str, str]:
        (tmp_path / "sizes.yaml").write_text(sizes)
        if isinstance(pods, str):
            (tmp_path / "pods.yaml").write_text(pods)
            pods = tmp_path / "pods.yaml"
        status = cli.main([*command, "sizes.yaml", "--pods", str(pods)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_size_that_no_rule_serves_is_refused_with_those_that_there_are(
    run: Run, command: tuple[str, ...]
) -> None:
    status, said, told = run(command, example(), EXAMPLES / "whole.yaml")
    assert (status, said) == (1, "")
    assert told == (
        'kubeflow-bitfusion: sizes.yaml, size 2 (line 15): "BITFUSION 50 %" is a size that no rule in '
        "whole.yaml serves; the rules serve 1 or more GPUs: whole\n"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("rules", ["hami", "kai"])
def test_sizes_that_rules_serve_are_as_without_them(
    run: Run, command: tuple[str, ...], rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said, told = run(command, example(), EXAMPLES / f"{rules}.yaml")
    assert status == 0
    assert cli.main([*command, "sizes.yaml"]) == 0
    assert capsys.readouterr().out == said
    assert "--gpu-memory" not in told, "which is for the units of a pool"
    assert "No single rule serves" not in told


def test_what_is_served_one_at_a_time_is_told(run: Run) -> None:
    sizes = "sizes:\n- label: WHOLE\n- {label: HALF, share: 50 %}\n"
    status, _, told = run(("form",), sizes, EXAMPLES / "mig.yaml")
    assert status == 0
    assert "No single rule serves these" in told
    assert told.endswith("\n  HALF × 2, 4, 8\n")
    status, _, told = run(("profiles", *IMAGE, "--numbers", "1,3"), sizes, EXAMPLES / "mig.yaml")
    assert told.endswith("\n  HALF × 3\n")


@pytest.mark.parametrize("size", ["default: true, gpus: 2", "number: 2"])
def test_a_size_of_several_is_refused_where_only_one_is_served(run: Run, size: str) -> None:
    status, _, told = run(("form",), f"sizes:\n- {{label: B, share: 50 %, {size}}}\n", EXAMPLES / "mig.yaml")
    assert status == 1
    assert '"B" is a size that no rule in mig.yaml serves; the rules serve 1 GPU: shares up to ' in told


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ("rules: 7\n", "rules"),
        ("ruels: []\n", "ruels"),
        ("rules: [\n", "pods.yaml"),
        ("- a\n", "pods.yaml"),
    ],
)
def test_a_file_that_is_none_is_told(run: Run, pods: str, words: str) -> None:
    status, said, told = run(("form",), "sizes:\n- label: B\n", pods)
    assert (status, said) == (1, "")
    assert words in told
    assert told.count("\n") == 1


def test_an_empty_file_has_whole_gpus_and_a_missing_one_is_told(run: Run, tmp_path: Path) -> None:
    assert run(("form",), "sizes:\n- label: B\n", "")[0] == 0
    assert run(("form",), "sizes:\n- {label: B, share: 5 %}\n", "")[0] == 1
    status, _, told = run(("form",), "sizes:\n- label: B\n", tmp_path / "none.yaml")
    assert status == 1
    assert "No such file" in told


def test_it_needs_a_list(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["form", "--hook", "--pods", "pods.yaml"]) == 2
    assert "--pods needs a list of sizes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rules", "labels"),
    [
        ("whole", ["BITFUSION"]),
        ("shared", ["BITFUSION 25 %"]),
        ("dra", ["BITFUSION"]),
        ("mig", ["BITFUSION", "BITFUSION 50 %", "BITFUSION 25 %", "BITFUSION 8 GiB"]),
    ],
)
def test_the_example_for_a_cluster_has_the_sizes_that_it_serves(
    run: Run, capsys: pytest.CaptureFixture[str], rules: str, labels: list[str]
) -> None:
    file = EXAMPLES / f"{rules}.yaml"
    assert cli.main(["form", "--example", "--pods", str(file)]) == 0
    text = capsys.readouterr().out
    assert [size.label for size in parse_sizes(parse_document(text, "it")).sizes] == labels
    left_out = [line for line in example().splitlines() if line not in text.splitlines()]
    assert not [line for line in left_out if line.startswith("#")], "what explains the file stays"
    assert run(("form",), text, file)[0] == 0


def test_a_cluster_without_any_size_of_the_example_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pods.yaml").write_text(
        "rules:\n- {name: two, serves: {whole: true, gpus: {least: 2, most: 2}}, container: "
        "{resources: {limits: {nvidia.com/gpu: '{gpus}'}}}}\n"
    )
    assert cli.main(["form", "--example", "--pods", str(tmp_path / "pods.yaml")]) == 1
    assert (
        "serves no size of the example; write your own list, using 2 GPUs: whole\n" in capsys.readouterr().err
    )
