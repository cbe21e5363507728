"""The sizes of GPUs that a cluster has, as data: which requests a rule serves, and how a pod asks for them.

A rule says whom it serves, and has fragments of a pod (`fragments`). The first rule of the admin's list that
serves a request is taken, so of several slices the smallest stands first::

    name: mig-1g.5gb
    serves: {gpus: {most: 1}, share: {most: 0.14}, memory: {most: 5Gi}}
    container: {resources: {limits: {nvidia.com/mig-1g.5gb: "{gpus}"}}}
    keeps_memory: true

Pure. `bitfusion run` fills a rule, the injector reads them, the form's list of sizes is checked against them.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, NeverSatisfiable
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.gpu_pods.fragments import (
    GPUS,
    MEMORY_MIB,
    PERCENT,
    SHARE,
    extended_resources,
    filled,
    parse_container_fragment,
    parse_pod_fragment,
    placeholders_in,
)
from bitfusion_client.gpu_pods.values import (
    Place,
    boolean,
    fields,
    gpu_memory,
    items,
    line,
    share,
    whole,
)
from bitfusion_client.request.decimals import plain_number, shift_point
from bitfusion_client.request.quantities import format_mib
from bitfusion_client.request.request_rules import MOST_GPUS, MOST_MEMORY_MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from bitfusion_client.gpu_pods.fragments import Fragment
    from bitfusion_client.request.gpu_request import GpuRequest

MOST_RULES = 64
LONGEST_RULE_NAME = 60
LONGEST_NOTE = 200

FIELDS = ("name", "serves", "gpu_memory", "pod", "container", "isolated", "keeps_memory", "note")
SERVES = ("whole", "share", "memory", "gpus")
RANGE = ("least", "most")
WHERE_IT_MAY_BE = ("nodeSelector", "affinity", "tolerations")
"""What a fragment of a pod says of nodes."""

SHARED = "shared, not isolated: others compute on the same GPU and may use its time and memory"
ALLOWED_SERVES = "must have at least one of whole, share and memory"
ALLOWED_RANGE = "must be true, or least and most"
TURNED_ROUND = "has a minimum above its maximum"
NEEDS_GPU_MEMORY = (
    "is missing: the memory of one GPU, such as 40Gi, is needed to calculate "
    "{made} from {given}; or remove {taken}"
)
NO_FILTERS = "does not apply to GPU pods, which get what the rule for their size sets; leave it out"


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `least` to `most`, both included."""

    least: float
    most: float

    def has(self, number: float) -> bool:
        """Whether a number is one of them."""
        return self.least <= number <= self.most


@dataclass(frozen=True, slots=True)
class SizeRule:
    """One row of the admin's list.

    Attributes:
        name: For messages.
        gpus: How many GPUs it serves at once.
        whole: Whether it serves whole GPUs.
        share: Which shares; None: no shares.
        memory: Which amounts of memory, in MiB; None: none.
        gpu_memory: MiB of one GPU; None where nobody has said, and nothing needs it.
        pod: Fragment of the pod.
        container: Fragment of the program's container.
        isolated: Whether nobody else computes on what it gives.
        keeps_memory: Whether somebody keeps the program to its share of the memory (HAMi, MIG, MPS). Where
            nobody does, this client keeps TensorFlow, PyTorch and JAX to it.
        note: What the user is told of it; empty for nothing.
    """

    name: str
    gpus: Range
    whole: bool
    share: Range | None
    memory: Range | None
    gpu_memory: int | None
    pod: Fragment
    container: Fragment
    isolated: bool = True
    keeps_memory: bool = False
    note: str = ""

    @property
    def resources(self) -> tuple[str, ...]:
        """The GPU resources that its pods ask for, ``nvidia.com/gpu``: those of quotas and of nodes.

        Empty where a GPU is asked for by annotations (KAI) or by a claim (DRA).
        """
        return extended_resources(self.container)

    def serves(self, request: GpuRequest) -> bool:
        """Whether a request is one of its sizes."""
        if not self.gpus.has(request.gpus):
            return False
        if request.memory_mib is not None:
            fits = self.gpu_memory is None or request.memory_mib <= self.gpu_memory
            return fits and self.memory is not None and self.memory.has(request.memory_mib)
        if is_whole(request):
            return self.whole
        return self.share is not None and self.share.has(request.partial or 0)

    def describe(self) -> str:
        """``1 GPU: shares up to 14 %, memory up to 5Gi``, for a list of what there is."""
        sizes = ["whole"] if self.whole else []
        if self.share is not None:
            sizes.append("shares" + _shown(self.share, 0, 1, _percent))
        if self.memory is not None:
            most = self.gpu_memory or MOST_MEMORY_MIB
            memory = Range(self.memory.least, min(self.memory.most, most))
            sizes.append("memory" + _shown(memory, 1, MOST_MEMORY_MIB, _mib))
        least, most = int(self.gpus.least), int(self.gpus.most)
        several = f"{least} to {most} GPUs" if most < MOST_GPUS else f"{least} or more GPUs"
        count = several if least < most else "1 GPU" if most == 1 else f"{most} GPUs"
        return f"{count}: {', '.join(sizes)}"

    def to_json(self) -> dict[str, Any]:
        """What `parse_rule` reads as the same rule."""
        serves: dict[str, Any] = {"gpus": {"least": int(self.gpus.least), "most": int(self.gpus.most)}}
        if self.whole:
            serves["whole"] = True
        if self.share is not None:
            # every share is above 0, and a least of 0 is none
            least = {"least": self.share.least} if self.share.least else {}
            serves["share"] = {**least, "most": self.share.most}
        if self.memory is not None:
            least = {"least": int(self.memory.least)} if self.memory.least > 1 else {}
            serves["memory"] = {**least, "most": int(self.memory.most)}
        answer: dict[str, Any] = {"name": self.name, "serves": serves}
        if self.gpu_memory is not None:
            answer["gpu_memory"] = self.gpu_memory
        if self.pod:
            answer["pod"] = self.pod
        if self.container:
            answer["container"] = self.container
        answer |= {"isolated": self.isolated, "keeps_memory": self.keeps_memory}
        return {**answer, "note": self.note} if self.note else answer


@dataclass(frozen=True, slots=True)
class FilledRule:
    """A rule with the numbers of one request in it.

    Attributes:
        rule: The rule.
        pod: Its fragment of the pod, without placeholders.
        container: That of the program's container.
        holds: Whether its pod holds what was asked for; False: it is one without a GPU.
    """

    rule: SizeRule
    pod: Fragment
    container: Fragment
    holds: bool = True

    def without_gpu(self) -> FilledRule:
        """For a pod that may be on the same nodes, and asks for no GPU in any way.

        Nor sees it one that its image asks for, where NVIDIA's runtime is the default.
        """
        spec = {name: part for name, part in self.pod.get("spec", {}).items() if name in WHERE_IT_MAY_BE}
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
        return FilledRule(self.rule, {"spec": spec}, {"env": env}, holds=False)

    @property
    def note(self) -> str:
        """What the user is told of this size; empty for nothing."""
        return self.rule.note or ("" if self.rule.isolated else SHARED)

    @property
    def keeps_memory(self) -> bool:
        """Whether somebody else keeps the program to its share of the memory."""
        return self.rule.keeps_memory

    @property
    def resources(self) -> tuple[str, ...]:
        """The GPU resources that the pod asks for."""
        return self.rule.resources


class NoSuchSize(NeverSatisfiable):
    """No rule of the admin's serves this request."""

    headline = "This cluster does not offer GPUs in this size."
    next_step = (
        "choose one of these sizes (`%bitfusion request -n 1`), or ask your administrator to add another."
    )

    def __init__(self, asked: object, answered: str = "", next_step: str = "") -> None:
        """`answered`: the sizes that there are."""
        super().__init__(asked, answered, next_step)


WHOLE_GPUS = SizeRule(
    name="whole",
    gpus=Range(1, MOST_GPUS),
    whole=True,
    share=None,
    memory=None,
    gpu_memory=None,
    # the usual taint of GPU nodes; a pod that asks for no GPU never has this rule
    pod={"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}},
    container={"resources": {"limits": {"nvidia.com/gpu": GPUS}}},
)
DEFAULT_RULES = (WHOLE_GPUS,)
"""Where the admin has said nothing: whole GPUs, by NVIDIA's device plugin."""


def rule_for(request: GpuRequest, rules: Sequence[SizeRule]) -> FilledRule:
    """The first rule that serves a request, with its numbers.

    Raises:
        NoSuchSize: None does; its answer lists the sizes that there are.
        InvalidRequest: The request names servers or filters, which GPU pods do not know.
    """
    for name, value in (("filters", request.filters), ("servers", request.servers)):
        if value:
            shown = " ".join("=".join(each) if isinstance(each, tuple) else each for each in value)
            raise InvalidRequest(name, shown, NO_FILTERS)
    for rule in rules:
        if rule.serves(request):
            numbers = _numbers(request, rule.gpu_memory)
            return FilledRule(rule, filled(rule.pod, numbers), filled(rule.container, numbers))
    raise NoSuchSize(request, "there are " + "; ".join(dict.fromkeys(rule.describe() for rule in rules)))


def check_sizes(requests: Iterable[GpuRequest], rules: Sequence[SizeRule]) -> list[GpuRequest]:
    """Those requests that no rule serves: for a form's list of sizes, whose choice would never run."""
    return [request for request in requests if not any(rule.serves(request) for rule in rules)]


def gpu_resources(rules: Iterable[SizeRule]) -> tuple[str, ...]:
    """The GPU resources that pods of all these rules ask for."""
    return tuple(dict.fromkeys(name for rule in rules for name in rule.resources))


def is_whole(request: GpuRequest) -> bool:
    """Whether whole GPUs are asked for; a share of 1 is one."""
    return request.memory_mib is None and request.partial in (None, 1)


def parse_rules(data: object, place: Place) -> tuple[SizeRule, ...]:
    """The admin's rules; `DEFAULT_RULES` where there are none. Raises WrongSetting."""
    rules = tuple(
        parse_rule(each, place.item(index))
        for index, each in enumerate(items(data, place, MOST_RULES, "rules"))
    )
    for index, rule in enumerate(rules):
        if rule.name in [other.name for other in rules[:index]]:
            raise place.item(index).field("name").wrong(rule.name, "is already the name of an earlier rule")
    return rules or DEFAULT_RULES


def parse_rule(data: object, place: Place) -> SizeRule:
    """One rule. Raises WrongSetting."""
    given = fields(data, place, FIELDS)
    name = line(given.get("name"), place.field("name"), LONGEST_RULE_NAME)
    serves, where = fields(given.get("serves"), place.field("serves"), SERVES), place.field("serves")
    serves = {kind: value for kind, value in serves.items() if value is not False}
    if not set(serves) & {"whole", "share", "memory"}:
        raise where.wrong(given.get("serves"), ALLOWED_SERVES)
    rule = SizeRule(
        name=name,
        gpus=_range(serves.get("gpus", {}), where.field("gpus"), _gpus, 1, MOST_GPUS),
        whole=boolean(serves.get("whole", False), where.field("whole")),
        share=_range(serves["share"], where.field("share"), share, 0, 1) if "share" in serves else None,
        memory=(
            _range(serves["memory"], where.field("memory"), gpu_memory, 1, MOST_MEMORY_MIB)
            if "memory" in serves
            else None
        ),
        gpu_memory=(
            gpu_memory(given["gpu_memory"], place.field("gpu_memory")) if "gpu_memory" in given else None
        ),
        pod=parse_pod_fragment(given.get("pod"), place.field("pod")),
        container=parse_container_fragment(given.get("container"), place.field("container")),
        isolated=boolean(given.get("isolated", True), place.field("isolated")),
        keeps_memory=boolean(given.get("keeps_memory", False), place.field("keeps_memory")),
        note=line(given["note"], place.field("note"), LONGEST_NOTE) if "note" in given else "",
    )
    _check_numbers(rule, place)
    return rule


def _check_numbers(rule: SizeRule, place: Place) -> None:
    """Whether each number in its fragments can be made of each request that it serves."""
    if rule.gpu_memory is not None:
        return
    used = placeholders_in([rule.pod, rule.container])
    missing = place.field("gpu_memory")
    if MEMORY_MIB in used and (rule.whole or rule.share is not None):
        told = NEEDS_GPU_MEMORY.format(made="an amount of memory", given="a share", taken="whole and share")
        raise missing.wrong(None, told)
    if used & {PERCENT, SHARE} and rule.memory is not None:
        raise missing.wrong(
            None, NEEDS_GPU_MEMORY.format(made="a share", given="an amount of memory", taken="memory")
        )


def _numbers(request: GpuRequest, total_mib: int | None) -> dict[str, str]:
    part = 1.0 if request.partial is None else request.partial
    numbers = {GPUS: str(request.gpus)}
    if request.memory_mib is not None:
        numbers[MEMORY_MIB] = str(request.memory_mib)
        part = request.memory_mib / total_mib if total_mib else 0.0
    elif total_mib:
        numbers[MEMORY_MIB] = str(max(1, request.memory_per_gpu(total_mib)))
    if part:
        # never less than was asked for, and 0.29 is 29 %, not 30
        numbers[PERCENT] = str(max(1, min(100, _up(part * 100))))
        numbers[SHARE] = plain_number(min(1.0, max(_up(part * 10_000), 1) / 10_000))
    return numbers


def _up(number: float) -> int:
    return -int(-round(number, 6) // 1)


def _gpus(value: object, place: Place) -> int:
    return whole(value, place, 1, MOST_GPUS)


def _range(
    value: object, place: Place, parse: Callable[[object, Place], float], least: float, most: float
) -> Range:
    """The range of one kind of size: true for all, or bounds. A share may be as small as one likes."""
    if value is True:
        return Range(least, most)
    if not isinstance(value, dict):
        raise place.wrong(value, ALLOWED_RANGE)
    bounds = fields(value, place, RANGE)
    low = parse(bounds["least"], place.field("least")) if "least" in bounds else least
    high = parse(bounds["most"], place.field("most")) if "most" in bounds else most
    if low > high:
        raise place.wrong(value, TURNED_ROUND)
    return Range(low, high)


def _shown(numbers: Range, least: float, most: float, unit: Callable[[float], str]) -> str:
    if numbers.least <= least:
        return "" if numbers.most >= most else f" up to {unit(numbers.most)}"
    if numbers.least == numbers.most:
        return f" of {unit(numbers.most)}"
    if numbers.most >= most:
        return f" from {unit(numbers.least)}"
    return f" from {unit(numbers.least)} to {unit(numbers.most)}"


def _percent(part: float) -> str:
    return f"{shift_point(plain_number(part), 2)} %"


def _mib(mib: float) -> str:
    return format_mib(int(mib))
