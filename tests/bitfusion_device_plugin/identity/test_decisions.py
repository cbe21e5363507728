"""What to do for a namespace, as a table of its label, its Secret, the pool's tokens and the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bitfusion_device_plugin.identity.decisions import Decision, Step, decide
from bitfusion_device_plugin.identity.records import NamespaceRecord, SecretRecord

NOW = 1_800_000_000.0
OPTED_IN = NamespaceRecord("team-a", "uid", False, ())
ENDING = replace(OPTED_IN, is_ending=True)
OURS = SecretRecord("s", "7", True, True, "wanted", "id1", NOW + 60)
FOREIGN = SecretRecord("s", "7", False)
CHANGED = "the pool's files or the namespace's limits have changed"
EDITED = "somebody changed the Secret"
DUE = "two thirds of the token's lifetime have passed"
UNKNOWN = "the pool does not know the token"


@pytest.mark.parametrize(
    ("namespace", "secret", "in_force", "expected"),
    [
        # not opted in, or not any more
        (None, None, None, Decision(Step.REVOKE, "it is not opted in")),
        (None, FOREIGN, None, Decision(Step.REVOKE, "it is not opted in")),
        (None, OURS, None, Decision(Step.REMOVE, "it is no longer opted in")),
        # its pods, which end with it, still give back what they hold
        (ENDING, OURS, None, Decision(Step.NOTHING, "the namespace is being deleted")),
        (ENDING, None, None, Decision(Step.NOTHING, "the namespace is being deleted")),
        (
            ENDING,
            replace(OURS, renew_at=NOW),
            set(),
            Decision(Step.NOTHING, "the namespace is being deleted"),
        ),
        # opted in
        (OPTED_IN, None, None, Decision(Step.CREATE, "there is no Secret")),
        (OPTED_IN, FOREIGN, None, Decision(Step.LEAVE_FOREIGN, "another Secret has this name")),
        (OPTED_IN, OURS, None, Decision(Step.NOTHING, again_at=NOW + 60)),
        (OPTED_IN, OURS, {"id1", "id0"}, Decision(Step.NOTHING, again_at=NOW + 60)),
        (OPTED_IN, OURS, {"id0"}, Decision(Step.UPDATE, UNKNOWN)),
        (OPTED_IN, OURS, frozenset(), Decision(Step.UPDATE, UNKNOWN)),
        (OPTED_IN, replace(OURS, wanted="older"), None, Decision(Step.UPDATE, CHANGED)),
        (OPTED_IN, replace(OURS, is_intact=False), None, Decision(Step.UPDATE, EDITED)),
        (OPTED_IN, replace(OURS, renew_at=NOW), None, Decision(Step.UPDATE, DUE)),
        (OPTED_IN, replace(OURS, renew_at=NOW - 9e9), None, Decision(Step.UPDATE, DUE)),
        # files that are handed out as they are: no token, no end
        (OPTED_IN, replace(OURS, token_id="", renew_at=None), None, Decision(Step.NOTHING)),
        (OPTED_IN, replace(OURS, token_id="", renew_at=None), frozenset(), Decision(Step.NOTHING)),
    ],
)
def test_every_state_has_its_step(
    namespace: NamespaceRecord | None,
    secret: SecretRecord | None,
    in_force: set[str] | None,
    expected: Decision,
) -> None:
    assert decide(namespace, secret, "wanted", in_force, NOW) == expected
