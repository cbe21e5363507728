"""Finished choices: each size a number of times, for forms that show a list where Kubeflow's has a number.

`kubespawner_profiles` and `workspace_kind` are made of them. A choice without GPUs comes first in both, as
the form has its "none": JupyterHub and Notebooks v2 preselect something in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitfusion_client.kubernetes.sizes import parse_sizes as parse_limits
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.request_rules import MOST_GPUS
from jupyter_ext.spawner.sizes import Size, SizeList, as_read
from jupyter_ext.spawner.wrong_file import WrongFile

NUMBERS = (1, 2, 4, 8)  # as in Kubeflow's form
MOST_NUMBERS = 16
MOST_PRESETS = 200  # more than anybody reads; a WorkspaceKind of so many has 60 kB

WITHOUT_GPUS = "No GPU"
WITHOUT_GPUS_ID = "no-gpu"

ALLOWED_NUMBERS = (
    f"must be whole numbers from 1 to {MOST_GPUS}, joined by commas, each once and {MOST_NUMBERS} at most"
)
ALLOWED_LABEL = "is the name of the choice without GPUs; users could not tell them apart"


@dataclass(frozen=True, slots=True)
class Preset:
    """A size and how many times: what stands in the limits, and what that means.

    Attributes:
        size: Of the administrator's list.
        number: The amount under the size's key.
        request: What the limits ask for, as the injector reads them.
        preselected: Whether this is the number of its size that is preselected.
    """

    size: Size
    number: int
    request: GpuRequest
    preselected: bool

    @property
    def limits(self) -> dict[str, str]:
        """What the container gets: ``{"bitfusion.io/gpu-50": "2"}``."""
        return {self.size.key: str(self.number)}


def presets(sizes: SizeList, numbers: Sequence[int] = NUMBERS) -> tuple[tuple[Preset, ...], ...]:
    """Of each size, in the list's order, the presets in ascending number.

    A size that is several GPUs by itself is offered as it is, the others in each of `numbers`; and what is
    preselected is offered in any case.

    Raises WrongFile: there are too many, or a size has the label of the choice without GPUs.
    """
    found = tuple(_of_size(size, numbers) for size in sizes.sizes)
    count = sum(map(len, found))
    if count > MOST_PRESETS:
        allowed = f"make {count} choices, a size and a number each; {MOST_PRESETS} at most can be offered"
        raise WrongFile(sizes.source, "sizes", None, f"{allowed}: use fewer sizes, or fewer --numbers")
    for place, size in zip(sizes.places, sizes.sizes, strict=True):
        if as_read(size.label) == as_read(WITHOUT_GPUS):
            raise WrongFile(sizes.source, f"{place}: label", size.label, ALLOWED_LABEL)
    return found


def parse_numbers(text: str) -> tuple[int, ...]:
    """``1,2,4`` as numbers, ascending. Raises ValueError, whose text is what is allowed."""
    words = [word.strip() for word in text.split(",")]
    plain = all(word.isascii() and word.isdigit() and len(word) <= len(str(MOST_GPUS)) for word in words)
    numbers = sorted({int(word) for word in words}) if plain else []
    if not numbers or len(numbers) < len(words) or len(numbers) > MOST_NUMBERS:
        raise ValueError(ALLOWED_NUMBERS)
    if not 1 <= numbers[0] <= numbers[-1] <= MOST_GPUS:
        raise ValueError(ALLOWED_NUMBERS)
    return tuple(numbers)


def says_number(size: Size) -> bool:
    """Whether the size is several GPUs by itself, so that no other number is offered for it."""
    return size.number > 1


def _of_size(size: Size, numbers: Sequence[int]) -> tuple[Preset, ...]:
    offered = sorted({*((1,) if says_number(size) else numbers), size.preselected})
    return tuple(
        Preset(size, number, _meaning(size, number), number == size.preselected) for number in offered
    )


def _meaning(size: Size, number: int) -> GpuRequest:
    request = parse_limits({size.key: str(number)})
    assert request is not None  # the key is one of ours
    return request
