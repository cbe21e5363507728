"""What the API answers to somebody who only looks, as errors for a person."""

from __future__ import annotations

from contextlib import contextmanager

from bitfusion_client.errors import ClusterUnusable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.api.client import ApiError, ApiUnreachable, path
from bitfusion_pods.places.gpu_nodes import gpu_nodes
from bitfusion_pods.places.refusals import refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from bitfusion_pods.api.client import Api
    from bitfusion_pods.places.gpu_nodes import GpuNode, Holding

TRY_AGAIN = "try again; if that does not help, ask your administrator about the cluster's API server."


def seen_gpus(
    api: Api, pods: Iterable[Mapping[str, Any]], resources: Sequence[str]
) -> tuple[list[GpuNode], list[Holding], bool]:
    """As `gpu_nodes`, of the cluster's nodes as it has them; and whether this account may see nodes."""
    listed = list(pods)
    try:
        return *gpu_nodes(api.items(path("api", "v1", "nodes")), listed, resources), True
    except ApiError as error:
        if error.status != 403:
            raise
        return *gpu_nodes(None, listed, resources), False


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
