"""What the API answers to somebody who only looks, as errors for a person."""

from __future__ import annotations

from contextlib import contextmanager

from bitfusion_client.errors import ClusterUnusable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.api.client import ApiError, ApiUnreachable
from bitfusion_pods.places.refusals import refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TRY_AGAIN = "try again; if that does not help, ask your administrator about the cluster's API server."


@contextmanager
def in_words() -> Iterator[None]:
    """Raises ClusterUnusable for what the API refuses, and where it does not answer."""
    try:
        yield
    except ApiError as error:
        refusal = refusal_of(error.status, error.reason, error.message)
        raise ClusterUnusable("", refusal.words, refusal.next_step) from None
    except ApiUnreachable as error:
        raise ClusterUnusable("", f"the cluster's API does not answer: {error}", TRY_AGAIN) from None
