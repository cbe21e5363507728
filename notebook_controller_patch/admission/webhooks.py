"""The webhooks of Notebooks and StatefulSets, put together: what decides, what is looked up before.

A bug in this project never blocks anybody's object: it is let through as it is, with a warning in the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from bitfusion_client.kubernetes.client_images import ImageRule
from bitfusion_cluster.notebooks.owners import UNKNOWN, Owner, Owners
from bitfusion_cluster.webhooks.review import UNTOUCHED, Review, Verdict
from bitfusion_cluster.webhooks.review_server import Webhook
from notebook_controller_patch.admission.notebook import admit_notebook
from notebook_controller_patch.admission.statefulset import (
    OwnerReference,
    admit_statefulset,
    needs_owner,
    starts_pod,
)

NOTEBOOKS, STATEFULSETS = "notebooks", "statefulsets"
FAILURE = "Bitfusion's admission failed on this object and left it unchanged; the cause is in its log"


def notebook_webhooks(
    rules: Callable[[], Sequence[ImageRule]], owners: Owners, own_username: str = ""
) -> tuple[Webhook, Webhook]:
    """Of ``/admit/notebooks`` and ``/admit/statefulsets``, for the controller's server.

    Args:
        rules: Gives the image rules in force; the same object as long as they do not change.
        owners: Looks up the Notebook of a StatefulSet.
        own_username: The reconciler's, whose writes pass unchanged; empty: nobody's.
    """
    return (
        Webhook(NOTEBOOKS, lambda review: admit_notebook(review, rules()), _let_through),
        Webhook(STATEFULSETS, _StatefulSets(owners, own_username).decide, _let_through),
    )


def _let_through(review: Review) -> Verdict:
    return Verdict(warnings=(FAILURE,))


class _StatefulSets:
    """Looks up what the verdict on a StatefulSet needs."""

    def __init__(self, owners: Owners, own_username: str) -> None:
        self._owners = owners
        self._own_username = own_username

    def decide(self, review: Review) -> Verdict | Awaitable[Verdict]:
        """At once, where no pod starts and the owner is known."""
        reference = needs_owner(review, self._own_username)
        if reference is None:
            return self._verdict(review, UNKNOWN)
        if not starts_pod(review):
            owner = self._owners.cached(reference.namespace, reference.name, reference.uid)
            if owner is not None:
                return self._verdict(review, owner)
        return self._looked_up(review, reference)

    async def _looked_up(self, review: Review, reference: OwnerReference) -> Verdict:
        owner = await self._owners.current(reference.namespace, reference.name, reference.uid)
        return self._verdict(review, owner)

    def _verdict(self, review: Review, owner: Owner) -> Verdict:
        if owner.left_alone:
            return UNTOUCHED
        return admit_statefulset(review, owner.annotations, self._own_username, owner.certain)
