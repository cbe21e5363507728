"""Links and anchors of the documents lead somewhere, pictures are used, pages are short enough to be read."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bitfusion_client.text_table import box
from tests.support.documents import DOCUMENTS, ROOT
from tests.test_words import SOURCES
from tools import draw_diagrams

LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
FENCE = re.compile(r"(?ms)^ *```.*?^ *```")
IMAGES = ROOT / "docs" / "images"
NAMED = re.compile(r"\bdocs/[\w/-]+\.(?:md|json|png|svg|webp)\b")
WORDS = (
    # The first that fits a page is what it may have, code not counted; other pages have no limit.
    ("README.md", 700),
    ("docs/tutorials/", 900),
    ("docs/how-to/", 800),
    ("docs/explanation/", 1_000),
    ("docs/when-something-is-wrong.md", 1_300),
    ("docs/faq.md", 800),
)
QUESTIONS = {
    "install the kernel": "docs/how-to/install-the-kernel.md: bitfusion-kernel install --user",
    "give the GPU back": "docs/how-to/release.md: Run `%bitfusion release`",
    "is my GPU real": "docs/how-to/is-my-gpu-real.md: it says *simulated*",
    "access for a namespace": "docs/how-to/access-for-a-namespace.md: bitfusion.io/identity=true",
    "every setting": "docs/reference/kernel-settings.md: `idle_release`",
    "why a proxy": "docs/faq.md: a notebook must open at once",
    "No GPU became free in time": "docs/reference/messages.md: No GPU became free in time",
    "not offer GPUs in this size": "docs/reference/messages.md: does not offer GPUs in this size",
    "No GPU pod can access the files": "docs/reference/messages.md: No GPU pod can access the files",
    "pool folder is not yours alone": "docs/reference/messages.md: is not yours alone",
    "pool service does not run": "docs/reference/messages.md: does not run",
    "the driver is not loaded": "docs/reference/messages.md: the NVIDIA driver is not loaded",
    "is not a Bitfusion size": "docs/reference/refusals.md: is not a Bitfusion size",
    "BitfusionInjectorAway": "docs/when-something-is-wrong.md: BitfusionInjectorAway",
    "what a message means": "docs/reference/messages.md: What the messages mean",
    "a GPU for a program": "docs/how-to/run-a-program.md: !bitfusion run -n 1 -p 0.5 -- python3 train.py",
    "what computes where": "docs/explanation/what-computes-where.md: on the CPU, where the notebook runs",
    "exceeded quota": "docs/reference/failures.md: exceeded quota",
    "out of reach": "docs/reference/messages.md: was out of reach",
}
"""What a reader looks for, words of messages among them, and the page that says it, with its words."""
HARMLESS = ("CHANGELOG.md", "tests/test_docs_links.py", "docs/decisions/")
"""What may name a document that is not there: history, and this file's own examples."""


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "`…`", FENCE.sub("", text))


def links(text: str) -> list[str]:
    return [target for _, target in LINK.findall(without_code(text)) if ":" not in target]


def anchor(heading: str) -> str:
    """As GitHub and the site make it of a heading: letters, digits, `-` and `_` stay, blanks become `-`."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
    kept = [each for each in words if unicodedata.category(each)[0] in "LN" or each in " -_"]
    return "".join(kept).replace(" ", "-")


@cache
def anchors(document: Path) -> frozenset[str]:
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    return frozenset(anchor(heading) for heading in re.findall(r"(?m)^#+ (.+)$", text))


def broken(document: Path, text: str) -> list[str]:
    """Of a document's links those that lead nowhere."""
    found = []
    for link in links(text):
        path, _, part = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (part and target.suffix == ".md" and part not in anchors(target)):
            found.append(link)
    return found


def words_of(text: str) -> int:
    return len(re.sub(r"\]\([^)]*\)", "]", FENCE.sub("", text)).split())


def limit_of(name: str) -> int | None:
    return next((limit for prefix, limit in WORDS if name.startswith(prefix)), None)


def too_long(pages: dict[str, int]) -> list[str]:
    return [f"{name}: {count}" for name, count in pages.items() if count > (limit_of(name) or count)]


QUOTES = ROOT / "tests" / "promises.md"
"""Its links stand in sentences of other documents."""


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if each != QUOTES], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_link_leads_somewhere(document: Path) -> None:
    assert broken(document, document.read_text(encoding="utf-8")) == []


def test_no_page_is_longer_than_its_kind_may_be() -> None:
    pages = {
        path.relative_to(ROOT).as_posix(): words_of(path.read_text(encoding="utf-8"))
        for path in DOCUMENTS
        if path.name == "README.md" or (ROOT / "docs") in path.parents
    }
    pages = {name: count for name, count in pages.items() if "decisions/" not in name}
    rows = [(name, str(count), str(limit_of(name) or "")) for name, count in sorted(pages.items())]
    print(box(["page", "words", "at most"], rows))
    assert too_long(pages) == []


@pytest.mark.parametrize(("question", "answer"), QUESTIONS.items())
def test_a_reader_finds_it_by_two_clicks(question: str, answer: str) -> None:
    """From README.md, on pages that say it in their words."""
    page, said = answer.split(": ", 1)
    assert said in " ".join((ROOT / page).read_text(encoding="utf-8").split()), question
    assert page in within_two_clicks(), question


MEANING = ("messages.md", "refusals.md", "failures.md")
"""Pages of docs/reference that say what a message means."""
SAID_WHOLE = (
    *("bitfusion_cluster/api/errors.py", "bitfusion_device_plugin/units_report/kubectl.py"),  # to admins
    *("bitfusion_kernel/magic/commands.py", "bitfusion_kernel/proxy/give_back.py"),
    *("bitfusion_kernel/proxy/requests/refusals.py", "bitfusion_kernel/proxy/resize.py"),
    *("jupyter_ext/spawner/hook_bundle.py", "jupyter_ext/spawner/yaml_document.py"),
)
"""Modules whose errors say all there is to say: no page repeats them."""


def headlines(source: str) -> list[str]:
    """The constant ones of a module's errors, with which their `user_message` begins."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Assign, ast.AnnAssign))]
    return [
        node.value.value
        for node in nodes
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if getattr(target, "id", getattr(target, "attr", "")) == "headline"
    ]


def unexplained(found: list[str], text: str) -> list[str]:
    """Of messages those whose first four words, or all, stand in no page."""
    return [each for each in found if " ".join(each.rstrip(".").split()[:4]) not in text]


def test_every_message_of_an_error_is_explained_two_clicks_away() -> None:
    pages = [f"docs/reference/{name}" for name in MEANING]
    assert set(pages) <= within_two_clicks()
    text = " ".join(" ".join((ROOT / page).read_text(encoding="utf-8").split()) for page in pages)
    modules = {path.relative_to(ROOT).as_posix(): path for path in SOURCES}
    assert set(SAID_WHOLE) <= set(modules)
    found = {
        name: headlines(path.read_text(encoding="utf-8"))
        for name, path in modules.items()
        if name not in SAID_WHOLE
    }
    assert sum(map(len, found.values())) > 20
    missing = {name: each for name, lines in found.items() if (each := unexplained(lines, text))}
    assert missing == {}


def test_an_unexplained_message_is_found() -> None:
    source = "class A:\n    headline = 'No GPU is free just now.'\n    headline: str = 'A B.'\n"
    assert unexplained(headlines(source), "| No GPU is free just later |") == ["A B."]


@cache
def within_two_clicks() -> frozenset[str]:
    found = {ROOT / "README.md"}
    for _ in range(2):
        found |= {
            (page.parent / link.partition("#")[0]).resolve()
            for page in list(found)
            if page.suffix == ".md" and page.is_file()
            for link in links(page.read_text(encoding="utf-8"))
            if not link.startswith("#")
        }
    return frozenset(page.relative_to(ROOT).as_posix() for page in found if ROOT in page.parents)


def test_every_page_is_found_by_two_clicks() -> None:
    """Decisions are found by their own table."""
    pages = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if "decisions" not in path.parts
    }
    assert pages - within_two_clicks() == set()


def test_every_picture_is_used() -> None:
    used = {
        (document.parent / target).resolve()
        for document in DOCUMENTS
        for target in links(document.read_text(encoding="utf-8"))
    }
    pictures = [path.with_suffix(".svg") if path.suffix == ".mmd" else path for path in IMAGES.iterdir()]
    assert [path.name for path in pictures if path not in used] == []


def test_every_diagram_is_drawn_from_its_source() -> None:
    """A page shows a committed picture: GitHub, the site and a reader without a network see the same."""
    assert [path.name for path in draw_diagrams.stale()] == []
    assert [path.name for path in DOCUMENTS if "```mermaid" in path.read_text(encoding="utf-8")] == []


def test_a_stale_diagram_is_found(tmp_path: Path) -> None:
    source, picture = tmp_path / "x.mmd", tmp_path / "x.svg"
    source.write_text("flowchart LR")
    assert draw_diagrams.stale(tmp_path) == [source]
    picture.write_text(f"<svg/><!-- {draw_diagrams.digest(source)} -->")
    assert draw_diagrams.stale(tmp_path) == []
    source.write_text("flowchart TB")
    assert draw_diagrams.stale(tmp_path) == [source]


def sources() -> Iterator[Path]:
    """Files in which a document may be named."""
    kinds = (".py", ".md", ".yaml", ".ts", ".toml", ".json", "")
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if path.suffix not in kinds or parts[0] in ("build", "dist") or not path.is_file():
            continue
        if not any(part.startswith(".") or part in ("node_modules", "__pycache__") for part in parts):
            yield path


def stale(text: str) -> list[str]:
    return [name for name in NAMED.findall(text) if not (ROOT / name).exists()]


def test_every_document_that_code_and_manifests_name_is_there() -> None:
    found = {}
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(HARMLESS):
            found[name] = stale(path.read_text(encoding="utf-8", errors="replace"))
    assert len(found) > 500
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text",
    [
        "[x](nowhere.md)",
        "[x](README.md#nowhere)",
        "[a [b] c](nowhere.md)",
        "![x](nowhere.png)",
        "[x](#nowhere)",
    ],
)
def test_a_broken_link_is_found(text: str) -> None:
    assert len(broken(ROOT / "README.md", text)) == 1


def test_what_is_no_link_is_left_alone() -> None:
    assert broken(ROOT / "README.md", "`[x](nowhere.md)` [x](https://example.com/x.md)") == []


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("1. Images", "1-images"),
        ("pool.toml", "pooltoml"),
        ("The user's files", "the-users-files"),
        ("`bitfusion run`", "bitfusion-run"),
    ],
)
def test_an_anchor_is_made_as_on_the_site(heading: str, expected: str) -> None:
    assert anchor(heading) == expected


def test_a_stale_name_and_a_long_page_are_found() -> None:
    assert stale("see docs/nowhere.md and docs/explanation/architecture.md") == ["docs/nowhere.md"]
    assert too_long({"README.md": 10_000, "docs/reference/metrics.md": 10_000}) == ["README.md: 10000"]
