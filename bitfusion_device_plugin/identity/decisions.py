"""What to do for one namespace: a table of its label, its Secret and the time. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import Enum

from bitfusion_device_plugin.identity.records import NamespaceRecord, SecretRecord


class Step(Enum):
    """One of these is done for a namespace."""

    NOTHING = "nothing"
    CREATE = "create"
    UPDATE = "update"
    LEAVE_FOREIGN = "leave_foreign"  # another Secret has this name: it is told, and never touched
    REMOVE = "remove"  # our Secret, and then the token
    REVOKE = "revoke"  # the token only: there is no Secret of ours, or it went with its namespace


@dataclass(frozen=True, slots=True)
class Decision:
    """The step, why in a few words for the log, and when to look again at the latest (None: as usual)."""

    step: Step
    why: str = ""
    again_at: float | None = None


def decide(
    namespace: NamespaceRecord | None,
    secret: SecretRecord | None,
    wanted: str,
    in_force: Set[str] | None,
    now: float,
) -> Decision:
    """What to do.

    Args:
        namespace: None if it is not opted in, or gone.
        secret: None if there is none.
        wanted: The fingerprint of what the Secret must be made of.
        in_force: The ids of the tokens that the pool knows; None if nobody has asked it.
        now: Seconds since the epoch.
    """
    if namespace is None:
        if secret is None or not secret.is_ours:
            return Decision(Step.REVOKE, "it is not opted in")
        return Decision(Step.REMOVE, "it is no longer opted in")
    if namespace.is_ending:
        # Its pods end now, and need the token to give back what they hold. Its end is told by the watch.
        return Decision(Step.NOTHING, "the namespace is being deleted")
    if secret is None:
        return Decision(Step.CREATE, "there is no Secret")
    if not secret.is_ours:
        return Decision(Step.LEAVE_FOREIGN, "another Secret has this name")
    if secret.wanted != wanted:
        return Decision(Step.UPDATE, "the pool's files or the namespace's limits have changed")
    if not secret.is_intact:
        return Decision(Step.UPDATE, "somebody changed the Secret")
    if secret.renew_at is not None and now >= secret.renew_at:
        return Decision(Step.UPDATE, "two thirds of the token's lifetime have passed")
    if in_force is not None and secret.token_id and secret.token_id not in in_force:
        return Decision(Step.UPDATE, "the pool does not know the token")
    return Decision(Step.NOTHING, again_at=secret.renew_at)
