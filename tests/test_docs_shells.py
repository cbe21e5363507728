"""What documents have people paste into a shell means the same in bash and zsh, and edits no file by line."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.zsh import zsh
from tests.support.documents import DOCUMENTS, ROOT, commands, shell_blocks
from tests.support.machine import scaled

PASTED = [path for path in DOCUMENTS if shell_blocks(path.read_text(encoding="utf-8"))]
LINE_EDITOR = re.compile(r"(?<![\w./-])(?:sudo )?(?:g?sed|[gm]?awk|perl|ed|ex) ")
NO_PROGRAMS = "/nowhere"
BASH = (shutil.which("bash") or "/bin/bash", "--norc", "--noprofile", "-s")
# Nothing is run but what the shell itself has. What it would run is noted, each word in brackets, in one go
# and on one line: the programs of a pipeline start at the same time, and bash writes line by line.
NOTE = """\
PATH={path}
command_not_found_{handler}() {{
    local said="$(printf '<%s>' "$@")"
    printf '%s\\0' "${{said//$'\\n'/ ⏎ }}" >> "$LOG"
}}
"""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_changes_a_file_by_a_line_editor(document: Path) -> None:
    """YAML says one thing in many ways, such a command knows one; and each system has a sed of its own."""
    lines = commands(document.read_text(encoding="utf-8"))
    assert [line for line in lines if LINE_EDITOR.search(line)] == []


def understood(shell: Sequence[str], handler: str, script: str, folder: Path) -> list[str]:
    """The commands that a shell would run, as it has read the words of a script typed into it."""
    for target in re.findall(r">>?\s*\"?(\.?[\w~][^\s<>|;&()\"]*)", script):
        (folder / target.replace("~/", "")).parent.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    log.touch()
    subprocess.run(
        shell,
        input=NOTE.format(path=NO_PROGRAMS, handler=handler) + script,
        cwd=folder,
        env={"LOG": str(log), "HOME": str(folder), "LC_ALL": "C.UTF-8", "PATH": NO_PROGRAMS},
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=scaled(20),
    )
    noted = log.read_text(encoding="utf-8").replace(str(folder), "~").split("\0")
    # Each shell has names of its own for what <( ) opens.
    return sorted(re.sub(r"/(?:dev|proc/self)/fd/\d+", "FD", command) for command in noted)


def harmless(script: str) -> str:
    """Without places outside of the folder in which it runs: files are written there, programs only named."""
    script = re.sub(r"(>>?\s*)/(?!dev/null)", r"\1./", script)
    return re.sub(r"(?<![\w~.])/(?:[\w.-]+/)*bin/(?=\w)", "", script)


@pytest.mark.parametrize("document", PASTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_words_of_a_document_are_the_same_in_bash_and_in_zsh(document: Path, tmp_path: Path) -> None:
    """A zsh that somebody types into knows no comments, splits no variable, refuses unmatched patterns."""
    script = harmless("\n".join(shell_blocks(document.read_text(encoding="utf-8"))))
    read = {}
    for name, shell, handler in (
        ("bash", BASH, "handle"),
        ("zsh", (*zsh(), "-i", "-s"), "handler"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        read[name] = understood(shell, handler, script, folder)
    assert read["bash"]
    assert read["zsh"] == read["bash"]


@pytest.mark.parametrize(
    "line",
    [
        "make demo   # what it does",
        "NAME=x  # yours to change",
        "rm -f dist/none-*.whl",
        "pip install .[form]",
        "POOL='kubectl exec'\n$POOL status",
        "grep uiName.*BITFUSION",
        "docker push $NAME:latest",
    ],
)
def test_what_zsh_reads_otherwise_is_seen(line: str, tmp_path: Path) -> None:
    script = f"NAME=Notebook\n{line}\n"
    (tmp_path / "b").mkdir()
    (tmp_path / "z").mkdir()
    in_bash = understood(BASH, "handle", script, tmp_path / "b")
    in_zsh = understood((*zsh(), "-i", "-s"), "handler", script, tmp_path / "z")
    assert in_bash != in_zsh
