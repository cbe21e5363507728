"""A request as Kubernetes spells it: the limits of a container and the annotations of its object.

Size keys in the limits say how much, see `sizes`. The annotation ``bitfusion.io/request``
overrides them, and ``bitfusion-client/filter`` adds filters, see `annotations`.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.annotations import (
    format_filter_annotation,
    format_request_annotation,
    parse_filter_annotation,
    parse_request_annotation,
)
from bitfusion_client.kubernetes.names import ANNOTATION_FILTER, ANNOTATION_REQUEST
from bitfusion_client.kubernetes.sizes import format_size, parse_sizes
from bitfusion_client.request.gpu_request import GpuRequest

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class KubernetesRequest:
    """Limits of one container, whose values are text, and annotations."""

    limits: dict[str, str]
    annotations: dict[str, str]


def request_from_kubernetes(
    limits: Mapping[str, object] | None, annotations: Mapping[str, str] | None = None
) -> GpuRequest | None:
    """What a container asks for, None if nothing.

    Admission, the reconciler and the form's hook call it with values from anybody: whatever is wrong is an
    InvalidRequest whose field is the key or the annotation.
    """
    notes = annotations or {}
    if is_overridden(notes):
        request: GpuRequest | None = parse_request_annotation(notes[ANNOTATION_REQUEST])
    else:
        request = parse_sizes(limits or {})
    if request is None or request.filters or ANNOTATION_FILTER not in notes:
        return request
    return _with_filters(request, parse_filter_annotation(notes[ANNOTATION_FILTER]))


def is_overridden(annotations: Mapping[str, object]) -> bool:
    """Whether the annotation of a request, right or wrong, stands in place of the limits."""
    text = annotations.get(ANNOTATION_REQUEST, "")
    return not isinstance(text, str) or bool(text.strip())


def request_to_kubernetes(request: GpuRequest) -> KubernetesRequest:
    """The shortest spelling that `request_from_kubernetes` reads as the same request.

    What limits and the filter annotation cannot say (servers, a time limit, fractions of a percent, filters
    with blanks) goes into the request annotation. The limits then still carry the size, percents rounded up,
    so that forms and quotas see it.
    """
    limits, exact = format_size(request)
    filters = format_filter_annotation(request.filters)
    if not exact or filters is None or request.servers or request.timeout is not None:
        return KubernetesRequest(limits, {ANNOTATION_REQUEST: format_request_annotation(request)})
    return KubernetesRequest(limits, {ANNOTATION_FILTER: filters} if filters else {})


def _with_filters(request: GpuRequest, filters: tuple[tuple[str, str], ...]) -> GpuRequest:
    try:
        return GpuRequest(
            request.gpus, request.partial, request.memory_mib, filters, request.servers, request.timeout
        )
    except InvalidRequest as error:
        raise InvalidRequest(ANNOTATION_FILTER, error.value, error.allowed) from None
