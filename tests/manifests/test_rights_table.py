"""The table of rights in docs/reference/rights.md is the manifests', rule by rule, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.manifests.built import CONTROLLER, INJECTOR, INSTALLED, MANIFESTS, PROCESSES, Objects, rules

GUIDE = MANIFESTS.parent / "docs" / "reference" / "rights.md"
HEADINGS = {CONTROLLER: "## What the controller may do", INJECTOR: "## What the injector may do"}
NOT_WITH = "not with cert-manager"

Right = tuple[str, str, str, str, str]


def table(heading: str) -> dict[Right, str]:
    """Scope, API group, resource, name and verb of each right in that section, and what it is for."""
    section = GUIDE.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    first = section.partition("\n| where")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split("|") for line in f"| where{first}".splitlines() if line.startswith("| ")]
    header, *cells = [[cell.strip() for cell in row] for row in rows]
    assert header == ["where", "API group", "resource", "name", "verbs", "for"]
    found: dict[Right, str] = {}
    for scope, group, resource, name, verbs, reason in cells:
        for verb in verbs.split(", "):
            right = (scope, group, resource, name, verb)
            assert right not in found, f"twice: {right}"
            found[right] = reason
    return found


each_process = pytest.mark.parametrize("process", PROCESSES)


@each_process
@pytest.mark.parametrize("overlay", INSTALLED)
def test_the_guide_lists_exactly_the_rights_that_are_given(
    overlays: Mapping[str, Objects], overlay: str, process: str
) -> None:
    expected = {
        right
        for right, reason in table(HEADINGS[process]).items()
        if overlay != "cert-manager" or NOT_WITH not in reason
    }
    assert set(rules(overlays[overlay], process)) == expected


@each_process
def test_every_right_has_a_reason(process: str) -> None:
    for right, reason in table(HEADINGS[process]).items():
        assert len(reason) > 20, right
