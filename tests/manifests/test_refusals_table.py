"""The refusals as docs/reference/refusals.md lists them are the ones a user meets, of webhook and policy.

``WRITE_TABLE=1 pytest tests/manifests/test_refusals_table.py`` writes the table anew.
"""

from __future__ import annotations

import os
from typing import Any

from tests.manifests.built import MANIFESTS, Object
from tests.manifests.judge import Judge
from tests.manifests.sizes import notebook

GUIDE = MANIFESTS.parent / "docs" / "reference" / "refusals.md"
HEADER = "| written | the controller | the policy |"
GPU = "bitfusion.io/gpu"
PASSES = "–"

# What people have written, or might: limits; or all that `mistake` takes.
MISTAKES: tuple[dict[str, Any], ...] = (
    {"limits": {"gpu-amount": "0"}},
    {"limits": {"gpu-amount": "0.5"}},
    {"limits": {"gpu-amount": "two"}},
    {"limits": {"gpu-amount": "50%"}},
    {"limits": {"gpu-amount": "1", "gpu-percent": "0"}},
    {"limits": {"gpu-amount": "1", "gpu-percent": "101"}},
    {"limits": {"gpu-amount": "1", "gpu-percent": "50%"}},
    {"limits": {"gpu-amount": "1", "gpu-memory": "8GB"}},
    {"limits": {"gpu-amount": "1", "gpu-memory": "8192"}},
    {"limits": {"gpu-amount": "1", "gpu-percent": "50", "gpu-memory": "8Gi"}},
    {"limits": {"gpu-percent": "50"}},
    {"limits": {"gpu-50": "1", "gpu-percent": "50"}},
    {"limits": {"gpu-foo": "1"}},
    {"limits": {"gpu-050": "1"}},
    {"limits": {"gpu-8Gi": "1"}},
    {"limits": {"GPU_50": "1"}},
    {"limits": {"gpu-1x50": "1"}},
    {"limits": {"gpu-3*50": "1"}},
    {"limits": {"gpu-3x50": "400"}},
    {"limits": {"gpus": "1"}},
    {"limits": {"gpu": "50"}},
    {"requests": {"gpu-50": "1"}},
    {"limits": {"gpu-50": "1"}, "requests": {"gpu-50": "2"}},
    {"limits": {"gpu-50": "1"}, "second": {"gpu-50": "1"}},
    {"limits": {"gpu-50": "1"}, "init": {"gpu-50": "1"}},
    {"annotations": {"bitfusion.io/request": "-n 1 -p 50%"}},
    {"annotations": {"bitfusion.io/request": "-n 1 -m 8Gi"}},
    {"annotations": {"bitfusion.io/request": "--gpus 2"}},
    {"annotations": {"bitfusion-client/version": "../../x"}},
    {"annotations": {"auto-management/bitfusion": "all"}},
    {"annotations": {"bitfusion.io/path": "/opt/bin"}},
    {"annotations": {"bitfusion.io/gpu-image": "team/cuda 12"}},
)


def mistake(
    limits: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    second: dict[str, str] | None = None,
    init: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """The Notebook `nb` with that in it; keys of resources are named without their group."""
    containers = [_with_group(each) for each in (limits or {}, second) if each is not None]
    made = notebook("nb", *containers, requests=_with_group(requests or {}), annotations=annotations)
    pod = made["spec"]["template"]["spec"]
    if init:
        pod["initContainers"] = [
            {"name": "prepare", "image": "i", "resources": {"limits": _with_group(init)}}
        ]
    return made


def _with_group(resources: dict[str, str]) -> dict[str, str]:
    return {f"bitfusion.io/{key}": value for key, value in resources.items()}


def shown(given: dict[str, dict[str, str]]) -> str:
    """The mistake as the table's first cell has it."""
    places = {
        "limits": "",
        "requests": "requests: ",
        "second": "second container: ",
        "init": "init container: ",
        "annotations": "annotation ",
    }
    return ", ".join(
        places[place] + ", ".join(f'`{key}: "{value}"`' for key, value in part.items())
        for place, part in given.items()
    )


def table(judge: Judge) -> str:
    """The lines of the table, in the words of both."""
    rows = [HEADER, "|---|---|---|"]
    for given in MISTAKES:
        body = mistake(**given)
        webhook, policy = judge.webhook(body), judge.policy(body)
        assert webhook, f"nobody refuses {given}"
        rows.append(f"| {shown(given)} | {webhook} | {policy or PASSES} |")
    return "\n".join(rows)


def test_the_table_of_the_guide_has_these_words(judge: Judge) -> None:
    text = GUIDE.read_text()
    before, header, rest = text.partition(HEADER)
    assert header, "docs/reference/refusals.md has no table of refusals"
    stands, _, after = rest.partition("\n\n")
    made = table(judge)
    if os.environ.get("WRITE_TABLE"):
        GUIDE.write_text(f"{before}{made}\n\n{after}")
        return
    assert (HEADER + stands).splitlines() == made.splitlines()


def test_the_messages_are_short_and_name_each_key_once(judge: Judge) -> None:
    for given in MISTAKES:
        words = judge.webhook(mistake(**given)) or ""
        assert len(words) < 300, words
        assert words.isprintable()
        keys = [key if "/" in key else f"bitfusion.io/{key}" for part in given.values() for key in part]
        named = [word.strip(".,;:?") for word in words.split()]
        assert {named.count(key) for key in keys} in ({1}, {0, 1}), words
