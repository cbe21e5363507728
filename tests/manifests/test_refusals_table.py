"""The refusals as docs/kubeflow.md lists them are the ones a user meets, of the webhook and of the policy."""

from __future__ import annotations

import re

import pytest

from tests.manifests.built import MANIFESTS
from tests.manifests.judge import Judge
from tests.manifests.sizes import notebook

GUIDE = MANIFESTS.parent / "docs" / "kubeflow.md"
HEADER = "| in the limits | the controller | the policy |"


def table() -> list[tuple[str, str, str]]:
    """The limits, the controller's words and the policy's."""
    rows = GUIDE.read_text().partition(f"\n{HEADER}\n")[2].partition("\n\n")[0].splitlines()[1:]
    found = []
    for row in rows:
        limits, webhook, policy = (cell.strip() for cell in row.strip("|").split(" | "))
        found.append((limits, webhook, policy))
    return found


def test_the_table_has_the_common_mistakes() -> None:
    limits = {row[0] for row in table()}
    for mistake in (
        '`gpu-amount: "0"`',
        '`gpu-amount: "0.5"`',
        '`gpu-amount: "two"`',
        '`gpu-amount: "1"`, `gpu-percent: "0"`',
        '`gpu-amount: "1"`, `gpu-percent: "101"`',
        '`gpu-amount: "1"`, `gpu-percent: "50"`, `gpu-memory: "8Gi"`',
        '`gpu-foo: "1"`',
    ):
        assert mistake in limits


@pytest.mark.parametrize(("limits", "webhook", "policy"), table())
def test_a_refusal_has_these_words(judge: Judge, limits: str, webhook: str, policy: str) -> None:
    given = {f"bitfusion.io/{key}": value for key, value in re.findall(r'`([\w.-]+): "([^"]*)"`', limits)}
    assert given
    body = notebook("nb", given)
    assert judge.webhook(body) == webhook
    assert judge.policy(body) == policy
