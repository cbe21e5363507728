"""Names and arithmetic of Bitfusion in Kubernetes: a container's limits and an object's annotations.

A size is spelled in limits by exactly one of
- ``bitfusion.io/gpu-amount: 2``, alone (whole GPUs) or with ``gpu-percent: 50`` or ``gpu-memory: 8Gi``: the
  keys of VMware's device plugin;
- a key that explains itself: ``bitfusion.io/gpu-50: 2`` (2 GPUs × 50 %), ``bitfusion.io/gpu-8gib: 1`` or
  ``bitfusion.io/gpu-8000mib: 1``: one key is all a form can write.
The annotation ``bitfusion.io/request``, options as on the command line or JSON, overrides the limits.
``bitfusion.io/gpu`` (percent × amount) is what is scheduled and counted in quotas; it is never read as a
request.
"""

from __future__ import annotations

from bitfusion_client.decimals import plain_number, shift_point
from bitfusion_client.errors import BitfusionError, InvalidRequest, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.quantities import format_mib, quantity_to_count, quantity_to_mib
from bitfusion_client.request import GpuRequest
from bitfusion_client.request_rules import ALLOWED_FILTER

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = "bitfusion.io/"
RESOURCE_UNITS = "bitfusion.io/gpu"
RESOURCE_AMOUNT = "bitfusion.io/gpu-amount"
RESOURCE_PERCENT = "bitfusion.io/gpu-percent"
RESOURCE_MEMORY = "bitfusion.io/gpu-memory"
SIZE_PREFIX = "bitfusion.io/gpu-"

# VMware's, read by its injector
ANNOTATION_MANAGEMENT = "auto-management/bitfusion"
ANNOTATION_STATUS = "auto-management/status"
ANNOTATION_CLIENT_OS = "bitfusion-client/os"
ANNOTATION_CLIENT_VERSION = "bitfusion-client/version"
ANNOTATION_FILTER = "bitfusion-client/filter"
MANAGEMENT_INJECTION = "injection"  # inject the client, leave the command alone
STATUS_INJECTED = "injected"
# this project's
ANNOTATION_REQUEST = "bitfusion.io/request"
ANNOTATION_PENDING = "bitfusion.io/pending"  # on a Notebook: the change that its next start will apply
ANNOTATION_RETRY = "bitfusion.io/retry"  # touched to make a StatefulSet try a refused pod again
LABEL_REQUESTED = "bitfusion.io/requested"  # "true" on objects that ask for GPUs: object selectors
LABEL_ADMISSION = "bitfusion.io/admission"  # "ignore" on a Notebook: it is left alone
ADMISSION_IGNORE = "ignore"
# what a StatefulSet's template takes over from its Notebook
COPIED_PREFIXES = ("auto-management/", "bitfusion-client/")
COPIED_ANNOTATIONS = (ANNOTATION_REQUEST,)

UNITS_PER_GPU = 100
LONGEST_REQUEST = 4096  # characters of the annotation: admission may not be kept busy with one

ALLOWED_SIZE_KEY = (
    "is no known size; known are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 (percent), "
    "gpu-8gib and gpu-8000mib"
)
ALLOWED_PERCENT = "must be a whole number from 1 to 100"
HOW_TO_REQUEST = "options are written as for the bitfusion command: -n 2, or -n 1 -p 0.5"
ALLOWED_PAIR = "gpu-percent and gpu-memory exclude each other"
ALLOWED_WITH_AMOUNT = f"needs {RESOURCE_AMOUNT} beside it"
ALLOWED_ONE_KEY = "only one size may be given; there is also "
ALLOWED_LENGTH = f"must be at most {LONGEST_REQUEST} characters"
ALLOWED_TOTAL = "needs the memory of one of the pool's GPUs to be counted in units; it is not known"


@dataclass(frozen=True, slots=True)
class KubernetesRequest:
    """A request as Kubernetes spells it: limits of one container (values are text) and annotations."""

    limits: dict[str, str]
    annotations: dict[str, str]


def is_size_resource(name: str) -> bool:
    """Whether a resource name asks for Bitfusion GPUs, known size or not; the scheduled unit does not."""
    return name.startswith(SIZE_PREFIX)


def is_copied_annotation(name: str) -> bool:
    """Whether a Notebook's annotation is carried to the template of its StatefulSet."""
    return name.startswith(COPIED_PREFIXES) or name in COPIED_ANNOTATIONS


def request_from_kubernetes(
    limits: Mapping[str, object] | None, annotations: Mapping[str, str] | None = None
) -> GpuRequest | None:
    """What a container asks for, None if nothing. An amount of 0 is refused: the key is then left out.

    Called by admission with text from anybody: every problem is InvalidRequest whose field is the key.
    """
    notes = annotations or {}
    text = notes.get(ANNOTATION_REQUEST, "")
    if isinstance(text, str) and not text.strip():
        request = _from_limits(limits or {})
    else:
        request = parse_request_annotation(text)
    if request is None or request.filters or ANNOTATION_FILTER not in notes:
        return request
    return _with_filters(request, parse_filter_annotation(notes.get(ANNOTATION_FILTER, "")))


def request_to_kubernetes(request: GpuRequest) -> KubernetesRequest:
    """The shortest spelling that `request_from_kubernetes` reads as the same request.

    What limits cannot say (servers, a time limit, fractions of a percent, filters with blanks) goes into the
    annotation; the limits then still carry the size, percents rounded up, so that forms and quotas see it.
    """
    amount = str(request.gpus)
    exact = True
    if request.memory_mib is not None:
        limits = {SIZE_PREFIX + format_mib(request.memory_mib).lower() + "b": amount}
    elif request.partial is not None:
        percent = shift_point(plain_number(request.partial), 2)
        whole, _, fraction = percent.partition(".")
        exact = not fraction
        limits = {f"{SIZE_PREFIX}{int(whole) + bool(fraction)}": amount}
    else:
        limits = {RESOURCE_AMOUNT: amount}
    plain_filters = all(" " not in value for _, value in request.filters)
    if not exact or not plain_filters or request.servers or request.timeout is not None:
        return KubernetesRequest(limits, {ANNOTATION_REQUEST: format_request_annotation(request)})
    if request.filters:
        shown = " ".join(f"{key}={value}" for key, value in request.filters)
        return KubernetesRequest(limits, {ANNOTATION_FILTER: shown})
    return KubernetesRequest(limits, {})


def units(request: GpuRequest, total_mib: int | None = None) -> int:
    """`bitfusion.io/gpu` of a request: percent × GPUs, rounded up; 100 are one whole GPU.

    `total_mib`, the memory of one GPU of the pool, is needed for requests by memory (InvalidRequest without
    it, and for more memory than a GPU has).
    """
    if request.memory_mib is None:
        share = 1.0 if request.partial is None else request.partial
        # the same rounding as of memory: 0.29 × 100 is 29
        exact = round(share * UNITS_PER_GPU * request.gpus, 6)
        return max(1, -int(-exact // 1))
    if not total_mib or total_mib < 1:
        raise InvalidRequest("memory_mib", request.memory_mib, ALLOWED_TOTAL, RESOURCE_MEMORY)
    if request.memory_mib > total_mib:
        allowed = f"must be at most {total_mib} MiB, the memory of one GPU"
        raise InvalidRequest("memory_mib", request.memory_mib, allowed, RESOURCE_MEMORY)
    return -(-request.memory_mib * request.gpus * UNITS_PER_GPU // total_mib)


def _from_limits(limits: Mapping[str, object]) -> GpuRequest | None:
    given = {name: limits[name] for name in sorted(limits) if is_size_resource(name)}
    keys = [name for name in given if name not in (RESOURCE_AMOUNT, RESOURCE_PERCENT, RESOURCE_MEMORY)]
    counts = {
        name: quantity_to_count(given[name], name) for name in (RESOURCE_AMOUNT, *keys) if name in given
    }
    sizes = {name: _size_of_key(name) for name in keys}
    asked = list(counts)
    if len(asked) > 1:
        raise InvalidRequest(asked[1], given[asked[1]], ALLOWED_ONE_KEY + asked[0])
    pair = [name for name in (RESOURCE_PERCENT, RESOURCE_MEMORY) if name in given]
    if pair and asked and asked[0] != RESOURCE_AMOUNT:
        raise InvalidRequest(pair[0], given[pair[0]], ALLOWED_ONE_KEY + asked[0])
    if pair and RESOURCE_AMOUNT not in given:
        raise InvalidRequest(pair[0], given[pair[0]], ALLOWED_WITH_AMOUNT)
    if len(pair) > 1:
        raise InvalidRequest(RESOURCE_MEMORY, given[RESOURCE_MEMORY], ALLOWED_PAIR)
    if not asked:
        return None
    name = asked[0]
    partial, memory_mib = sizes.get(name, (None, None))
    if RESOURCE_PERCENT in pair:
        partial = _percent(given[RESOURCE_PERCENT])
    elif RESOURCE_MEMORY in pair:
        memory_mib = quantity_to_mib(given[RESOURCE_MEMORY], RESOURCE_MEMORY)
    try:
        return GpuRequest(counts[name], partial, memory_mib)
    except InvalidRequest as error:
        key = name if error.field == "gpus" else (pair or [name])[0]
        raise InvalidRequest(key, given[key], error.allowed) from None


def _size_of_key(name: str) -> tuple[float | None, int | None]:
    size = name[len(SIZE_PREFIX) :]
    for unit, factor in (("gib", 1024), ("mib", 1)):
        number = size[: -len(unit)]
        if size.endswith(unit) and _plain_whole(number):
            return None, int(number) * factor
    if _plain_whole(size) and 1 <= int(size) <= 100:
        return int(size) / 100, None
    raise InvalidRequest(name, name[len(GROUP) :], ALLOWED_SIZE_KEY)


def _plain_whole(text: str) -> bool:
    # no leading zeros: one size, one key
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= 15


def _percent(value: object) -> float:
    try:
        percent = quantity_to_count(value, RESOURCE_PERCENT)
    except InvalidRequest:
        percent = 0
    if not 1 <= percent <= 100:
        raise InvalidRequest(RESOURCE_PERCENT, value, ALLOWED_PERCENT)
    return percent / 100


def parse_request_annotation(text: object) -> GpuRequest:
    """``-n 2 -p 0.5`` or ``{"gpus": 2, "partial": 0.5}``. Raises InvalidRequest naming the annotation."""
    if not isinstance(text, str):
        raise InvalidRequest(ANNOTATION_REQUEST, text, "must be text")
    if len(text) > LONGEST_REQUEST:
        raise InvalidRequest(ANNOTATION_REQUEST, text, ALLOWED_LENGTH)
    try:
        if text.lstrip().startswith("{"):
            import json  # brings `re`; most annotations are options

            data = json.loads(text)
            return GpuRequest.from_json(data)
        from bitfusion_client.command_line import parse_request_text

        return parse_request_text(text)
    except UsageError as error:
        raise InvalidRequest(ANNOTATION_REQUEST, text, f"{error}; {HOW_TO_REQUEST}") from None
    except BitfusionError as error:
        raise InvalidRequest(ANNOTATION_REQUEST, text, str(error)) from None
    except (ValueError, RecursionError):
        raise InvalidRequest(ANNOTATION_REQUEST, text, "is not JSON") from None


def format_request_annotation(request: GpuRequest) -> str:
    """One line of options that `parse_request_annotation` reads."""
    import shlex  # brings `re`; only Kubernetes writes this

    from bitfusion_client.command_line import format_options

    return shlex.join(format_options(request))


def parse_filter_annotation(text: object) -> tuple[tuple[str, str], ...]:
    """``key=value`` items separated by blanks, as upstream's injector splits them. Raises InvalidRequest."""
    if not isinstance(text, str):
        raise InvalidRequest(ANNOTATION_FILTER, text, ALLOWED_FILTER)
    pairs = []
    for item in text.split():
        key, equals, value = item.partition("=")
        if not equals:
            raise InvalidRequest(ANNOTATION_FILTER, item, ALLOWED_FILTER)
        pairs.append((key, value))
    return tuple(pairs)


def _with_filters(request: GpuRequest, filters: tuple[tuple[str, str], ...]) -> GpuRequest:
    try:
        return GpuRequest(
            request.gpus, request.partial, request.memory_mib, filters, request.servers, request.timeout
        )
    except InvalidRequest as error:
        raise InvalidRequest(ANNOTATION_FILTER, error.value, error.allowed) from None
