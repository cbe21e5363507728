"""`kubeflow-bitfusion form` as an admin calls it: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
from jupyter_ext.spawner.hook_bundle import HOOK, NotBundled, embedded_modules, hook_file
from jupyter_ext.spawner.sizes import example
from jupyter_ext.spawner.written_files import without_mark
from kubeflow_bitfusion import cli
from tests.jupyter_ext.spawner.spawner_configs import NEWER

HALF = "sizes:\n- {label: BITFUSION 50 %, share: 50 %, default: true, gpus: 2}\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the admin's two files, where the command runs."""
    (tmp_path / "sizes.yaml").write_text(example(), encoding="utf-8")
    (tmp_path / "spawner_ui_config.yaml").write_text(NEWER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Result:
    def __init__(self, status: int, output: str, errors: str) -> None:
        self.status, self.output, self.errors = status, output, errors


@pytest.fixture
def form(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> Result:
        try:
            status = cli.main(["form", *arguments])
        except SystemExit as ended:  # argparse
            status = int(str(ended.code))
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run


def test_the_example_is_a_list_that_the_command_takes(form: Any, place: Path) -> None:
    result = form("--example")
    assert (result.status, result.errors) == (0, "")
    (place / "mine.yaml").write_text(result.output, encoding="utf-8")
    assert form("mine.yaml").status == 0


def test_a_list_alone_gives_the_part_and_below_it_what_users_see(form: Any) -> None:
    result = form("sizes.yaml")
    assert result.status == 0
    assert yaml.safe_load(result.output)["spawnerFormDefaults"]["gpus"]["value"]["num"] == "none"
    assert result.errors.splitlines() == [
        "",
        "What users will see under GPUs, beside a number of 1, 2, 4 or 8 that multiplies it:",
        "",
        "  In the form       Key in the notebook's limits   What it means",
        "  BITFUSION         bitfusion.io/gpu-amount        1 GPU",
        "  BITFUSION 50 %    bitfusion.io/gpu-50            1 GPU × 50 %",
        "  BITFUSION 25 %    bitfusion.io/gpu-25            1 GPU × 25 %",
        "  BITFUSION 8 GiB   bitfusion.io/gpu-8gib          1 GPU × 8192 MiB",
        "",
        "No other vendors: to keep yours, give --config, or other_vendors in the list.",
        "",
        "Sizes by memory need the injector's option --gpu-memory (the memory of a GPU of the pool): "
        "without it their pods are refused.",
    ]


def test_a_file_is_written_and_the_table_shows_what_is_preselected(form: Any, place: Path) -> None:
    (place / "sizes.yaml").write_text(HALF)
    result = form("sizes.yaml", "--config", "spawner_ui_config.yaml", "--output", "new.yaml")
    assert (result.status, result.errors) == (0, "")
    assert result.output.splitlines() == [
        "wrote new.yaml",
        "",
        "What users will see under GPUs, beside a number of 1, 2, 4 or 8 that multiplies it:",
        "",
        "  In the form      Key in the notebook's limits   What it means",
        "  NVIDIA           nvidia.com/gpu                 as before",
        "  AMD              amd.com/gpu                    as before",
        "  Intel Gaudi      habana.ai/gaudi                as before",
        "  BITFUSION 50 %   bitfusion.io/gpu-50            2 GPUs × 50 %   <- preselected, number 2",
    ]
    written = (place / "new.yaml").read_text(encoding="utf-8")
    assert form("sizes.yaml", "--config", "spawner_ui_config.yaml").output == without_mark(written)
    again = form("sizes.yaml", "--config", "new.yaml", "--output", "new.yaml")
    assert again.output.startswith("unchanged: new.yaml\n")
    assert (place / "new.yaml").read_text(encoding="utf-8") == written


NEW = "registry.example.com/team/notebook:0.1.0"
NEW_FIRST = f"The form's list of images now has {NEW}, before 1 more."


def test_an_image_alone_changes_the_list_of_images_alone(form: Any, place: Path) -> None:
    result = form("--image", NEW, "--config", "spawner_ui_config.yaml", "--output", "new.yaml")
    assert (result.status, result.errors) == (0, "")
    assert result.output.splitlines() == ["wrote new.yaml", "", NEW_FIRST]
    written = without_mark((place / "new.yaml").read_text(encoding="utf-8"))
    before = "    options:\n"
    assert written == NEWER.replace(before, f"{before}    - {NEW}\n")
    again = form("--image", NEW, "--config", "new.yaml", "--output", "new.yaml")
    assert again.output.splitlines() == [
        "unchanged: new.yaml",
        "",
        f"The form's list of images already has {NEW} (line 9).",
    ]


def test_an_image_and_sizes_come_into_the_file_together(form: Any, place: Path) -> None:
    result = form("sizes.yaml", "--image", NEW, "--config", "spawner_ui_config.yaml")
    defaults = yaml.safe_load(result.output)["spawnerFormDefaults"]
    assert defaults["image"]["options"] == [NEW, "example.org/jupyter-scipy:v1.8.0"]
    assert [vendor["uiName"] for vendor in defaults["gpus"]["value"]["vendors"]][3:5] == [
        "BITFUSION",
        "BITFUSION 50 %",
    ]
    assert result.errors.splitlines()[:4] == [
        "",
        NEW_FIRST,
        "",
        "What users will see under GPUs, beside a number of 1, 2, 4 or 8 that multiplies it:",
    ]


def test_aliases_that_had_to_be_written_out_are_told(form: Any, place: Path) -> None:
    (place / "spawner_ui_config.yaml").write_text(
        "spawnerFormDefaults:\n  image: {value: a, options: &i [a]}\n  imageGroupOne: {options: *i}\n"
    )
    result = form("--image", NEW, "--config", "spawner_ui_config.yaml")
    assert result.errors.splitlines() == [
        "",
        NEW_FIRST,
        "",
        "Written in full, so that nothing else in the file changes: *i (line 3).",
    ]


def test_what_disappears_and_what_users_cannot_choose_is_told(form: Any, place: Path) -> None:
    config = NEWER.replace('"amd.com/gpu"', '"bitfusion.io/gpu-memory"')
    config = config.replace("gpus:\n    readOnly: false", "gpus:\n    readOnly: true")
    (place / "spawner_ui_config.yaml").write_text(config)
    lines = form("sizes.yaml", "--config", "spawner_ui_config.yaml").errors.splitlines()
    assert lines[-7:-2] == [
        "",
        "readOnly is true in your file: users cannot choose, and all get the preselected size.",
        "",
        "No longer offered: bitfusion.io/gpu-memory",
        "Notebooks that use it keep it; the form's list then shows them without GPUs.",
    ]


def test_a_file_of_the_admins_own_is_replaced_only_when_forced(form: Any, place: Path) -> None:
    arguments = ("sizes.yaml", "--config", "spawner_ui_config.yaml", "--output", "spawner_ui_config.yaml")
    result = form(*arguments)
    assert (result.status, result.output) == (1, "")
    assert result.errors == (
        "kubeflow-bitfusion: spawner_ui_config.yaml was not written by this command, or has been edited "
        "since: "
        "nothing was written (--force replaces it)\n"
    )
    assert (place / "spawner_ui_config.yaml").read_text(encoding="utf-8") == NEWER
    assert form(*arguments, "--force").status == 0
    assert "BITFUSION" in (place / "spawner_ui_config.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give a list of sizes, --image or --hook; --example prints a list to start from"),
        (["--hook", "--config", "a"], "--config needs a list of sizes, or --image"),
        (["--image", "a/b:1"], "--image needs --config FILE, which contains the form's list of images"),
        (
            ["--image", "/notebook:0.1.0", "--config", "a"],
            "--image must be a reference like registry.example.com/team/notebook:1.0, 2 to 512 characters "
            "without blanks: '/notebook:0.1.0'",
        ),
        (
            ["sizes.yaml", "--images", "a"],
            "--images is only for --hook; the admission webhook has its own list",
        ),
        (["sizes.yaml", "--kustomize", "a"], "--kustomize needs --kubeflow VERSION: the manifests differ"),
        (
            ["sizes.yaml", "--kustomize", "a", "--kubeflow", "1.8"],
            "--kustomize needs --config FILE: the form's ConfigMap holds the whole spawner_ui_config.yaml",
        ),
        (
            ["--hook", "--kustomize", "a", "--kubeflow", "1.8", "--base", "b"],
            "--base is for Kubeflow up to 1.7; later versions get a component, which needs no base",
        ),
        (["sizes.yaml", "--kubeflow", "1.8"], "--kubeflow and --base are for --kustomize"),
        (
            ["sizes.yaml", "--hook"],
            "--hook together with sizes or --image makes two files: choose a folder with --kustomize",
        ),
    ],
)
def test_options_that_do_not_go_together(form: Any, place: Path, arguments: list[str], problem: str) -> None:
    before = sorted(os.listdir(place))
    result = form(*arguments)
    assert (result.status, result.output) == (2, "")
    assert result.errors == f"kubeflow-bitfusion: {problem}\n"
    assert sorted(os.listdir(place)) == before


@pytest.mark.parametrize("version", ["1.3", "1.12", "2.0", "latest", "1"])
def test_a_kubeflow_whose_manifests_are_not_known_is_refused(form: Any, version: str) -> None:
    result = form("--hook", "--kustomize", "a", "--kubeflow", version)
    assert result.status == 2
    assert f"argument --kubeflow: must be 1.4 to 1.11: '{version}'" in result.errors


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            b"sizes:\n- {label: B, share: 101 %}",
            'sizes.yaml, size 1 (line 2): share "101 %" must be a whole number of percent from 1 % to 100 %',
        ),
        (b"sizes:\n- {label: B\xe9}", "sizes.yaml: is not text in UTF-8"),
        (
            b"sizes:\n- label: B: C",
            'sizes.yaml, line 2: "- label: B: C" is not YAML: mapping values are not allowed here',
        ),
    ],
)
def test_a_wrong_list_is_one_line_and_nothing_is_written(
    form: Any, place: Path, content: bytes, problem: str
) -> None:
    (place / "sizes.yaml").write_bytes(content)
    before = sorted(os.listdir(place))
    config = ("--config", "spawner_ui_config.yaml")
    for target in (["--output", "new.yaml"], ["--kustomize", "new", "--kubeflow", "1.8", "--hook"]):
        result = form("sizes.yaml", *config, *target)
        assert (result.status, result.output) == (1, "")
        assert result.errors == f"kubeflow-bitfusion: {problem}\n"
    assert sorted(os.listdir(place)) == before


def test_a_file_that_is_not_there_is_named(form: Any) -> None:
    result = form("none.yaml")
    assert result.status == 1
    assert result.errors == ("kubeflow-bitfusion: none.yaml: No such file or directory\n")


def test_a_full_disk_names_the_file_and_leaves_the_old_one(
    form: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert form("--hook", "--output", "hook.py").status == 0
    before = (place / "hook.py").read_bytes()
    (place / "images.yaml").write_text("- {image: 'mine/*', os: ubuntu20, version: 450}\n")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = form("--hook", "--images", "images.yaml", "--output", "hook.py")
    where = os.path.realpath("hook.py")
    assert (result.status, result.output) == (1, "")
    assert result.errors == f"kubeflow-bitfusion: {where}: No space left on device\n"
    assert (place / "hook.py").read_bytes() == before
    assert sorted(path.name for path in place.iterdir() if path.name.startswith(".")) == []


def test_without_pyyaml_it_says_what_to_install(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    result = form("sizes.yaml")
    assert result.status == 1
    assert result.errors == (
        "kubeflow-bitfusion: PyYAML, which reads and checks these files, is missing.\n"
        "What to do: pip install PyYAML\n"
    )


def test_the_example_and_the_hook_need_no_pyyaml(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert form("--example").status == 0
    assert form("--hook").status == 0


def test_the_hook_has_the_admins_image_rules_before_the_defaults(form: Any, place: Path) -> None:
    (place / "images.yaml").write_text("- {image: 'team/*', os: centos8, version: 401}\n")
    result = form("--hook", "--images", "images.yaml", "--output", "hook.py")
    assert (result.status, result.output, result.errors) == (0, "wrote hook.py\n", "")
    space: dict[str, object] = {"__name__": "__config__"}
    exec((place / "hook.py").read_text(encoding="utf-8"), space)
    defaults = tuple((rule.image, rule.client_os, rule.client_version) for rule in DEFAULT_RULES)
    assert space["IMAGE_RULES"] == (("team/*", "centos8", "401"), *defaults)


def test_the_hook_can_be_held_to_the_clients_of_vmwares_injector(form: Any, place: Path) -> None:
    assert form("--hook", "--clients", "vmware", "--output", "hook.py").status == 0
    space: dict[str, Any] = {"__name__": "__config__"}
    exec((place / "hook.py").read_text(encoding="utf-8"), space)
    assert {rule[1:] for rule in space["IMAGE_RULES"]} == {("ubuntu20", "450")}


def test_wrong_image_rules_are_one_line_with_the_files_name(form: Any, place: Path) -> None:
    (place / "images.yaml").write_text("- {image: 'team/*', os: a/b, version: 401}\n")
    result = form("--hook", "--images", "images.yaml")
    assert (result.status, result.output) == (1, "")
    assert result.errors == (
        'kubeflow-bitfusion: Wrong setting images[0].os="a/b" (from images.yaml): '
        "must be letters, digits, dots, - or _, at most 63\n"
    )


def test_the_hook_is_the_same_each_time_and_names_its_version() -> None:
    text = hook_file(DEFAULT_RULES, "1.2.3")
    assert hook_file(DEFAULT_RULES, "1.2.3") == text
    assert text.startswith("# kubeflow-bitfusion 1.2.3: the hook for the backend of Kubeflow's notebook form")
    assert "\nVERSION = '1.2.3'\n" in text
    assert max(len(line) for line in text.splitlines()) <= 120  # readable: no source on one line
    command = [sys.executable, "-c", "import sys; from kubeflow_bitfusion.cli import main; sys.exit(main())"]
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([*command, "form", "--hook"], env=environ, capture_output=True, text=True)
        assert done.stdout == hook_file(DEFAULT_RULES)


def test_embedded_modules_come_after_those_they_import() -> None:
    names = list(embedded_modules("bitfusion_client.kubernetes.notebook_changes"))
    assert names[0] == "bitfusion_client"
    for first, second in (
        ("errors", "request.gpu_request"),
        ("fast_imports", "request.gpu_request"),
        ("kubernetes", "kubernetes.request"),
        ("request.gpu_request", "kubernetes.request"),
    ):
        assert names.index(f"bitfusion_client.{first}") < names.index(f"bitfusion_client.{second}")
    # The hook itself imports inside of a function only: found in the code.
    assert "bitfusion_client.kubernetes.notebook_changes" in embedded_modules(HOOK)


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (
            "jupyter_ext.spawner.yaml_document",
            "imports yaml, which is not in the standard library",
        ),
        ("sys", "there is no source of sys"),
    ],
)
def test_what_cannot_be_embedded_is_told(module: str, problem: str) -> None:
    with pytest.raises(NotBundled, match=problem):
        embedded_modules(module)


def test_help_shows_what_can_be_done(form: Any) -> None:
    result = form("--help")
    assert result.status == 0
    assert (
        "kubeflow-bitfusion form sizes.yaml --config spawner_ui_config.yaml --output new.yaml"
        in result.output
    )
