"""`kubeflow-bitfusion profiles` and `workspacekind` as an admin calls them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from jupyter_ext.spawner.sizes import example
from jupyter_ext.spawner.written_files import without_mark
from kubeflow_bitfusion import cli
from tests.support.machine import scaled

IMAGE = ("--image", "registry.example.com/team/notebook:1.0")
ROOT = Path(__file__).parents[3]
NEEDS_GPU_MEMORY = (
    "Sizes by memory need the injector's option --gpu-memory (the memory of a GPU of the pool): "
    "without it their pods are refused."
)
COMMANDS = ("profiles", "workspacekind")
MEMORY = "--memory must be an amount of at least 1Mi in Kubernetes notation, such as 8Gi"
Run = Callable[..., "Result"]


class Result:
    def __init__(self, status: int, output: str, errors: str) -> None:
        self.status, self.output, self.errors = status, output, errors


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the admin's list, where the command runs."""
    (tmp_path / "sizes.yaml").write_text(example(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Result:
        try:
            status = cli.main(list(arguments))
        except SystemExit as ended:  # argparse
            status = int(str(ended.code))
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return call


def test_profiles_are_printed_and_below_them_what_users_see(run: Run) -> None:
    result = run("profiles", "sizes.yaml", *IMAGE)
    assert result.status == 0
    values = yaml.safe_load(result.output)["singleuser"]["profileList"]
    assert [profile["display_name"] for profile in values] == [
        "No GPU",
        "BITFUSION",
        "BITFUSION 50 %",
        "BITFUSION 25 %",
        "BITFUSION 8 GiB",
    ]
    assert result.errors.splitlines() == [
        "",
        "What users will see when they start a server:",
        "",
        "  Profile           Number       Key in the container's limits   One of it",
        "  No GPU                                                         <- preselected",
        "  BITFUSION         1, 2, 4, 8   bitfusion.io/gpu-amount         1 GPU",
        "  BITFUSION 50 %    1, 2, 4, 8   bitfusion.io/gpu-50             1 GPU × 50 %",
        "  BITFUSION 25 %    1, 2, 4, 8   bitfusion.io/gpu-25             1 GPU × 25 %",
        "  BITFUSION 8 GiB   1, 2, 4, 8   bitfusion.io/gpu-8gib           1 GPU × 8192 MiB",
        "",
        NEEDS_GPU_MEMORY,
    ]


def test_a_kind_is_printed_and_below_it_what_users_see(run: Run, place: Path) -> None:
    (place / "sizes.yaml").write_text(
        "sizes:\n- {label: BITFUSION 50 %, share: 50 %, default: true, gpus: 2}\n"
    )
    own = ("--name", "mine", "--title", " Mine ", "--memory", "1Mi")
    result = run("workspacekind", "sizes.yaml", *IMAGE, "--numbers", "1,2", *own)
    assert result.status == 0
    kind = yaml.safe_load(result.output)
    assert (kind["metadata"], kind["spec"]["spawner"]["displayName"]) == ({"name": "mine"}, "Mine")
    assert result.errors.splitlines() == [
        "",
        "What users will see when they create a Workspace of this kind:",
        "",
        "  Pod configuration    Its id      In the container's limits   What it means",
        "  No GPU               no-gpu",
        "  1 × BITFUSION 50 %   gpu-50-x1   bitfusion.io/gpu-50: 1      1 GPU × 50 %",
        "  2 × BITFUSION 50 %   gpu-50-x2   bitfusion.io/gpu-50: 2      2 GPUs × 50 %   <- preselected",
    ]


def test_a_profile_that_is_preselected_and_another_number_are_told(run: Run, place: Path) -> None:
    (place / "sizes.yaml").write_text("sizes:\n- {label: B, share: 50 %, default: true, gpus: 2}\n")
    result = run("profiles", "sizes.yaml", *IMAGE, "--numbers", "1", "--any-number")
    assert result.errors.splitlines()[-2:] == [
        "  No GPU",
        "  B         1, 2, another   bitfusion.io/gpu-50             1 GPU × 50 %   <- preselected, number 2",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_is_written_once_and_never_over_the_admins_own(run: Run, place: Path, command: str) -> None:
    arguments = (command, "sizes.yaml", *IMAGE, "--output", "new.yaml")
    result = run(*arguments)
    assert (result.status, result.errors) == (0, "")
    assert result.output.startswith("wrote new.yaml\n\nWhat users will see")
    written = (place / "new.yaml").read_text(encoding="utf-8")
    assert run(command, "sizes.yaml", *IMAGE).output == without_mark(written)
    assert run(*arguments).output.startswith("unchanged: new.yaml\n")
    (place / "new.yaml").write_text(written.replace("BITFUSION", "MINE"), encoding="utf-8")
    result = run(*arguments)
    assert (result.status, result.output) == (1, "")
    assert result.errors == (
        "kubeflow-bitfusion: new.yaml was not written by this command, or has been edited since: "
        "nothing was written (--force replaces it)\n"
    )
    assert run(*arguments, "--force").status == 0
    assert (place / "new.yaml").read_text(encoding="utf-8") == written


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give a list of sizes; `kubeflow-bitfusion form --example` prints a list to start from"),
        (["sizes.yaml"], "give --image IMAGE: the notebook image that has the Bitfusion kernel"),
        (
            ["sizes.yaml", "--image", "a b"],
            "--image must be a reference like registry.example.com/team/notebook:1.0, 2 to 512 characters "
            "without blanks: 'a b'",
        ),
    ],
)
def test_what_is_missing_is_told(run: Run, command: str, arguments: list[str], problem: str) -> None:
    result = run(command, *arguments)
    assert (result.status, result.output) == (2, "")
    assert result.errors == f"kubeflow-bitfusion: {problem}\n"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "image", ["n", "-n", "{username}/nb", "team/nb:", "team/nb\n", "a" * 513, "é/nb", "/nb"]
)
def test_no_image(run: Run, command: str, image: str) -> None:
    result = run(command, "sizes.yaml", f"--image={image}")
    assert (result.status, result.output) == (2, "")
    assert "--image must be a reference" in result.errors
    assert len(result.errors) < 250


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_numbers(run: Run, command: str) -> None:
    result = run(command, "sizes.yaml", *IMAGE, "--numbers", "1,two")
    assert (result.status, result.output) == (2, "")
    assert result.errors.endswith(
        "argument --numbers: must be whole numbers from 1 to 1024, joined by commas, each once and 16 at "
        "most: '1,two'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--name", "My_Kind"],
            "--name must be lowercase letters, digits and -, at most 63, with a letter or digit at both "
            "ends: "
            "'My_Kind'",
        ),
        (["--name", "a" * 64], f"… at both ends: {'a' * 64!r}"),
        (["--title", "J"], "--title must be one line of 2 to 128 characters: 'J'"),
        (["--title", "J\nK"], "--title must be one line of 2 to 128 characters: 'J\\nK'"),
        (["--title", "J" * 129], "--title must be one line of 2 to 128 characters: "),
        (["--cpu", "two"], "--cpu must be an amount in Kubernetes notation, such as 2 or 500m: 'two'"),
        (["--cpu", "0"], "--cpu must be an amount in Kubernetes notation, such as 2 or 500m: '0'"),
        (["--memory", "8GB"], f"{MEMORY}: '8GB'"),
        (["--memory", "-8Gi"], f"{MEMORY}: '-8Gi'"),
        (["--memory", "8"], f"{MEMORY}: '8'"),  # bytes
        (["--memory", "9" * 5000], f"{MEMORY}: '9999"),
    ],
)
def test_a_kind_that_v2_would_refuse(run: Run, arguments: list[str], problem: str) -> None:
    option, value = arguments
    result = run("workspacekind", "sizes.yaml", *IMAGE, f"{option}={value}")
    assert (result.status, result.output) == (2, "")
    assert problem.removeprefix("…") in result.errors
    assert len(result.errors) < 300


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            b"sizes:\n- {label: B, share: 101 %}",
            'sizes.yaml, size 1 (line 2): share "101 %" must be a whole number of percent from 1 % to 100 %',
        ),
        (
            b"sizes:\n- {label: A, share: 50 %}\n- {label: B, share: 50 %}",
            'sizes.yaml, size 2 (line 3): "B" has the same size as size 1 (line 2): bitfusion.io/gpu-50; '
            "the form can offer it only once",
        ),
        (
            b"sizes:\n- {label: No GPU}",
            'sizes.yaml, size 1 (line 2): label "No GPU" is the name of the choice without GPUs; '
            "users could not tell them apart",
        ),
        (b"sizes:\n- {label: B\xe9}", "sizes.yaml: is not text in UTF-8"),
    ],
)
def test_a_wrong_list_is_one_line_and_nothing_is_written(
    run: Run, place: Path, command: str, content: bytes, problem: str
) -> None:
    (place / "sizes.yaml").write_bytes(content)
    result = run(command, "sizes.yaml", *IMAGE, "--output", "new.yaml")
    assert (result.status, result.output) == (1, "")
    assert result.errors == f"kubeflow-bitfusion: {problem}\n"
    assert not (place / "new.yaml").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_there_is_named(run: Run, command: str) -> None:
    result = run(command, "none.yaml", *IMAGE)
    assert (result.status, result.errors) == (1, "kubeflow-bitfusion: none.yaml: No such file or directory\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_pyyaml_it_says_what_to_install(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    result = run(command, "sizes.yaml", *IMAGE)
    assert result.status == 1
    assert result.errors == (
        "kubeflow-bitfusion: PyYAML, which reads and checks these files, is missing.\n"
        "What to do: pip install PyYAML\n"
    )


def test_the_help_of_all_names_each_command(run: Run) -> None:
    result = run("--help")
    assert result.status == 0
    for name in ("form", *COMMANDS):
        assert f"\n    {name}" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_what_can_be_done(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.status == 0
    assert (
        f"kubeflow-bitfusion {command} sizes.yaml --image registry.example.com/team/notebook:1.0"
        in result.output
    )


def program(
    *arguments: str, stdout: int, closed: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A command as a process of its own, whose stdout may be full, or closed as a shell's ``>&-`` does."""
    start = "sys.stdout = None; " if closed else ""
    start = f"import sys; {start}from kubeflow_bitfusion.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=scaled(20),
        env={"PYTHONPATH": str(ROOT), **variables},
    )


WITH_A_FILE = ["profiles", "sizes.yaml", *IMAGE, "--output", "new.yaml"]


@pytest.mark.parametrize("command", [["form", "--example"], ["profiles", "sizes.yaml", *IMAGE], WITH_A_FILE])
def test_a_full_stdout_is_told_in_one_line(command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ended = program(*command, stdout=full.fileno())
    assert (ended.returncode, ended.stderr) == (1, "kubeflow-bitfusion: stdout: No space left on device\n")


@pytest.mark.parametrize("command", [["form", "--example"], ["profiles", "sizes.yaml", *IMAGE]])
def test_a_closed_stdout_is_told_in_one_line(command: list[str]) -> None:
    ended = program(*command, stdout=subprocess.DEVNULL, closed=True)
    assert (ended.returncode, ended.stderr) == (1, "kubeflow-bitfusion: stdout: Bad file descriptor\n")


def test_a_reader_that_leaves_early_is_no_mistake() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = program("form", "--example", stdout=writing)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


def test_what_is_redirected_is_utf8_where_the_terminal_has_other_letters() -> None:
    ended = program("profiles", "sizes.yaml", *IMAGE, stdout=subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert "1 GPU × 50 %" in ended.stdout
    ended = program("profiles", "--help", stdout=subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert "--numbers N,N…" in ended.stdout


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("output", ["pipe", "/dev/full", "/dev/null"])
def test_what_is_no_plain_file_is_neither_waited_for_nor_replaced(
    run: Run, place: Path, command: str, output: str
) -> None:
    os.mkfifo(place / "pipe")
    before = os.stat(output)
    result = run(command, "sizes.yaml", *IMAGE, "--output", output, "--force")
    assert (result.status, result.output) == (1, "")
    assert result.errors == (
        f"kubeflow-bitfusion: {output} is not a regular file: nothing was written (for stdout, omit "
        "--output)\n"
    )
    assert os.stat(output).st_ino == before.st_ino


def test_a_list_that_never_ends_is_too_large(run: Run, place: Path) -> None:
    (place / "zero.yaml").symlink_to("/dev/zero")
    result = run("profiles", "zero.yaml", *IMAGE)
    assert (result.status, result.errors) == (1, "kubeflow-bitfusion: zero.yaml: is larger than 1 MiB\n")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("size", "told"), [("share: 50", False), ("memory: 8Gi", True)])
def test_what_sizes_by_memory_need_is_told_with_them(
    run: Run, place: Path, command: str, size: str, told: bool
) -> None:
    (place / "sizes.yaml").write_text(f"sizes:\n- label: B\n  {size}\n", encoding="utf-8")
    assert (run(command, "sizes.yaml", *IMAGE).errors.splitlines()[-1] == NEEDS_GPU_MEMORY) == told
