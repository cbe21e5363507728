"""How chip, menu, panel and dialog look: light, dark, in high contrast, narrow, in a language of long words.

Nothing is cut off, nothing lies over another thing, axe-core finds nothing serious, and the keyboard gets
everywhere. SCREENSHOTS names a folder that keeps pictures; without it none is taken.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.jupyter.browser.chromium import screenshots
from tests.jupyter_ext.labextension.conftest import Lab, Notebook
from tests.jupyter_ext.labextension.front_ends import NEWEST_LAB, NOTEBOOK, OLDEST_LAB, in_front_ends
from tests.jupyter_ext.labextension.test_in_jupyterlab import lease
from tools.labextension import SOURCES

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]

Picture = Callable[[str], None]

LOOKS = ("light", "long words", "dark", "high contrast", "forced colours", "narrow")
LONG = LOOKS[2:]
SERIOUS = {"serious", "critical"}
NOT_OURS = {
    # JupyterLab's of any menu and dialog: their own elements, which no extension can change.
    "aria-allowed-role": "Lumino's separators are list items",
    "aria-required-children": "Lumino's menus have their items in a list",
    "list": "the same",
    "listitem": "the same",
}

CUT_OFF = """root => {
  const bad = [];
  const isSeen = e => e.checkVisibility({visibilityProperty: true});
  const all = [root, ...root.querySelectorAll('*')].filter(isSeen);
  for (const e of all) {
    const style = getComputedStyle(e);
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (text && e.scrollWidth > e.clientWidth + 1 && style.display !== 'inline'
        && style.textOverflow !== 'ellipsis') {
      bad.push(`cut off: ${e.className} ${e.textContent}`);
    }
    if (/auto|scroll/.test(style.overflowX) && e.scrollWidth > e.clientWidth + 1) {
      bad.push(`scrolls sideways: ${e.className}`);
    }
    const box = e.getBoundingClientRect();
    if (box.width && (box.left < -1 || box.right > innerWidth + 1)) {
      bad.push(`outside of the window: ${e.className}`);
    }
  }
  return bad;
}"""
"""What of an element cannot be read. Where a text ends in an ellipsis, its title has all of it."""

OVER_EACH_OTHER = """elements => {
  const boxes = elements.filter(e => e.checkVisibility()).map(e => [e, e.getBoundingClientRect()]);
  const bad = [];
  for (const [one, a] of boxes) for (const [two, b] of boxes) {
    if (one !== two && !one.contains(two) && !two.contains(one)
        && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1) {
      bad.push(`${one.textContent} over ${two.textContent}`);
    }
  }
  return bad;
}"""


FOCUSED = """
document.activeElement.getAttribute('aria-label') || document.activeElement.innerText
"""


@pytest.fixture
def picture(page: Page, lab: Lab) -> Picture:
    folder = screenshots()

    def take(name: str) -> None:
        if folder is not None:
            page.screenshot(path=folder / f"{lab.front.name} {name}.png".replace(" ", "-"))

    return take


def lengthen(route: Route) -> None:
    """A catalogue of ours whose words are half as long again, as German's are."""
    sources = (SOURCES / "src").glob("*.ts*")
    found = {text: [longer(text)] for text in words_of("\n".join(path.read_text() for path in sources))}
    for one, many in (("%1 GPU", "%1 GPUs"), ("%1 waits", "%1 wait")):
        found[f"{one}\x04{many}"] = found[one] = [longer(one), longer(many)]
    about = {"domain": "kubeflow_bitfusion", "language": "de", "plural_forms": "nplurals=2; plural=(n != 1);"}
    route.fulfill(json={"data": {"kubeflow_bitfusion": {"": about, **found}}, "message": ""})


def longer(text: str) -> str:
    """Each word, but those that stand for something."""
    return " ".join(
        word if "%" in word else word + word[-2:] * (len(word) // 3 or 1) for word in text.split()
    )


def words_of(source: str) -> set[str]:
    """What is given to a translation."""
    calls = re.findall(r"""trans\.__\(\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""", source)
    return {one or two for one, two in calls}


def set_look(page: Page, lab: Lab, look: str) -> None:
    theme = {"dark": "JupyterLab Dark", "high contrast": "JupyterLab Dark High Contrast"}.get(look)
    folder = lab.settings / "@jupyterlab" / "apputils-extension"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "themes.jupyterlab-settings").write_text(json.dumps({"theme": theme} if theme else {}))
    if look == "forced colours":
        page.emulate_media(forced_colors="active")
    if look == "long words":
        page.route("**/api/translations/*", lengthen)


def assert_readable(element: Locator) -> None:
    assert element.evaluate(CUT_OFF) == []


def assert_accessible(page: Page, selector: str) -> None:
    """Nothing serious, by axe-core."""
    if not page.evaluate("typeof axe === 'object'"):
        page.add_script_tag(path=axe())
        # JupyterLab's body has no height: axe-core takes all in it for hidden, and passes over colours
        page.add_style_tag(content="html, body { height: 100%; }")
    found: dict[str, Any] = page.evaluate("s => axe.run(s, {resultTypes: ['violations']})", selector)
    serious = [
        (each["id"], [node["html"][:200] for node in each["nodes"]])
        for each in found["violations"]
        if each["impact"] in SERIOUS and each["id"] not in NOT_OURS
    ]
    assert serious == [], selector


def axe() -> Path:
    """The script that a Python package brings along."""
    package = find_spec("axe_playwright_python")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).with_name("axe.min.js")


@pytest.mark.parametrize(
    "look", [pytest.param(look, marks=[pytest.mark.long] * (look in LONG)) for look in LOOKS]
)
@in_front_ends(NEWEST_LAB, OLDEST_LAB, NOTEBOOK)
def test_nothing_is_cut_off_and_all_of_it_is_accessible(
    page: Page, lab: Lab, picture: Picture, look: str
) -> None:
    set_look(page, lab, look)
    notebook = Notebook(page, lab, takes_back=True)
    if look == "narrow":
        if lab.front.module == "jupyterlab":
            page.keyboard.press("Control+b")  # no side bar
        page.set_viewport_size({"width": 700, "height": 760})
    now = time.time()
    history = [{"at": now - 3600 + 60 * n, "held": n % 7 / 4, "total": 2, "waiting": 0} for n in range(60)]
    waiting = [{"text": "alan: a-notebook-with-a-long-name.ipynb (1 GPU, since 5 min)", "mine": False}]
    lab.tell(
        kernels={notebook.kernel: lease(now) | {"idle_release_at": now + 120}},
        pool={"waiting": waiting, "history": history},
        events=[{"what": "pool"}],
    )
    chip, menu, panel = notebook.chip, notebook.menu, notebook.panel
    expect(chip).to_contain_text(f"½ GPU · 12 {longer('min') if look == 'long words' else 'min'}")
    assert_readable(chip)
    assert_accessible(page, ".bf-mod-toolbar")
    chip.click()
    expect(menu).to_be_focused()
    picture(f"{look} menu")
    assert_readable(menu)
    assert menu.locator(".lm-Menu-itemLabel, .bf-Menu-note").evaluate_all(OVER_EACH_OTHER) == []
    page.keyboard.press("ArrowDown")
    assert_accessible(page, ".bf-Menu")
    menu.locator("[data-command='bitfusion:choose-size']").click()
    expect(notebook.dialog.locator(".bf-Form input").first).to_be_focused()  # some time after it has come
    picture(f"{look} dialog")
    assert_readable(notebook.dialog.locator(".bf-Form"))
    assert (
        notebook.dialog.locator(
            ".bf-Form span, .bf-Form label, .bf-Form input, .bf-Form output"
        ).evaluate_all(OVER_EACH_OTHER)
        == []
    )
    assert_accessible(page, ".bf-FormBox")
    page.keyboard.press("Escape")
    chip.click()
    menu.locator("[data-command='bitfusion:release']").click()
    page.locator(".Toastify__toast button").filter(has_text="Und").hover()
    picture(f"{look} undo")
    chip.click()
    menu.locator("[data-command='bitfusion:undo']").click()
    chip.click()
    menu.locator("[data-command='bitfusion:show-pool']").click()
    panel.locator(".bf-History").wait_for()
    panel.locator(".bf-Kernel .bf-Button").first.wait_for()
    picture(f"{look} panel")
    for section in panel.locator(".bf-SectionView").all():
        assert_readable(section)
    assert (
        panel.locator(".bf-Kernel button, .bf-Kernel-state, .bf-Size span").evaluate_all(OVER_EACH_OTHER)
        == []
    )
    assert_accessible(page, ".bf-SectionView")


@in_front_ends(NEWEST_LAB, OLDEST_LAB, NOTEBOOK)
def test_the_keyboard_gets_everywhere(page: Page, lab: Lab) -> None:
    notebook = Notebook(page, lab)
    lab.tell(kernels={notebook.kernel: lease(time.time())})
    expect(notebook.chip).to_contain_text("½ GPU")
    tools = page.locator(".jp-NotebookPanel-toolbar")
    if "arrow keys" not in lab.front.lacks:
        tools.locator("[data-status=idle]").wait_for()
        tools.locator("button:visible, jp-button:visible").first.focus()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
            if notebook.chip.evaluate("chip => chip === document.activeElement"):
                break
        page.keyboard.press("Enter")
        expect(notebook.menu).to_be_focused()
        page.keyboard.press("Escape")
        expect(notebook.menu).to_have_count(0)
        expect(notebook.chip).to_be_focused()
    page.keyboard.press("Control+Shift+c")
    page.locator(".lm-CommandPalette-input").fill("GPU of This Notebook")
    page.keyboard.press("Enter")
    expect(notebook.menu).to_be_focused()
    active = notebook.menu.locator(".lm-mod-active")
    reached: list[str] = []
    for _ in range(20):
        page.keyboard.press("ArrowDown")
        if reached[:1] == (text := active.all_inner_texts()):
            break
        reached += text
    for entry in ("¼ GPU", "Another Size…", "Release", "Show the GPU Pool"):
        assert any(entry in each for each in reached), reached
    page.keyboard.press("Escape")
    expect(notebook.menu).to_have_count(0)
    expect(notebook.chip).to_be_focused()

    panel = notebook.show_pool()
    panel.locator(".bf-Size").first.wait_for()
    panel.locator(".lm-AccordionPanel-title").first.focus()
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
            )
        )
        if any("GPUs Section" in str(each) for each in reached):
            break
    wanted = ("Refresh the pool", "train.ipynb", "Release the GPU of train.ipynb", "¼ GPU", "8 GiB")
    for name in wanted:
        assert any(name in str(each) for each in reached), reached
    panel.get_by_role("button", name="Release the GPU").focus()
    page.keyboard.press("Enter")
    expect(notebook.chip).to_contain_text("no GPU")
