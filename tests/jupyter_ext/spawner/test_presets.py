"""Sizes with their numbers: which there are, what each stands for, and what cannot be offered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.names import RESOURCE_AMOUNT
from bitfusion_client.request.gpu_request import GpuRequest
from jupyter_ext.spawner.presets import ALLOWED_NUMBERS, Preset, parse_numbers, presets
from jupyter_ext.spawner.sizes import SizeList, example, parse_sizes
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import parse_document


def listed(text: str) -> SizeList:
    return parse_sizes(parse_document(text, "sizes.yaml"))


def test_each_size_of_the_example_is_offered_in_each_number() -> None:
    groups = presets(listed(example()))
    assert [[preset.request.describe() for preset in group] for group in groups] == [
        ["1 GPU", "2 GPUs", "4 GPUs", "8 GPUs"],
        ["1 GPU × 50 %", "2 GPUs × 50 %", "4 GPUs × 50 %", "8 GPUs × 50 %"],
        ["1 GPU × 25 %", "2 GPUs × 25 %", "4 GPUs × 25 %", "8 GPUs × 25 %"],
        ["1 GPU × 8192 MiB", "2 GPUs × 8192 MiB", "4 GPUs × 8192 MiB", "8 GPUs × 8192 MiB"],
    ]
    assert groups[1][2].limits == {"bitfusion.io/gpu-50": "4"}
    assert all([preset.preselected for preset in group] == [True, False, False, False] for group in groups)


def test_the_number_of_the_default_is_offered_and_preselected() -> None:
    (group,) = presets(listed("sizes:\n- {label: B, share: 50 %, default: true, gpus: 3}"), (1, 2))
    own = group[-1]
    assert own.preselected
    assert own.request == GpuRequest(3, 0.5)
    assert sum(preset.preselected for preset in group) == 1


def test_a_size_of_several_gpus_is_offered_as_it_is() -> None:
    sizes = listed("sizes:\n- {label: B, share: 50 %, number: 3}")
    assert presets(sizes) == ((Preset(sizes.sizes[0], 1, GpuRequest(3, 0.5), True),),)
    assert presets(sizes)[0][0].limits == {"bitfusion.io/gpu-3x50": "1"}
    sizes = listed("sizes:\n- {label: B, share: 50 %, number: 3, default: true, gpus: 2}")
    assert [preset.request.gpus for preset in presets(sizes)[0]] == [3, 6]
    assert [preset.preselected for preset in presets(sizes)[0]] == [False, True]


def test_a_size_may_not_be_called_as_the_choice_without_gpus() -> None:
    with pytest.raises(WrongFile) as refused:
        presets(listed("sizes:\n- label: A\n  share: 10 %\n- label: no  gpu\n"))
    assert str(refused.value) == (
        'sizes.yaml, size 2 (line 4): label "no gpu" is the name of the choice without GPUs; '
        "users could not tell them apart"
    )


def test_more_choices_than_anybody_reads_are_refused() -> None:
    text = "sizes:\n" + "".join(f"- {{label: B{share}, share: {share} %}}\n" for share in range(1, 52))
    assert sum(map(len, presets(listed(text), (1, 2, 3)))) == 153
    with pytest.raises(WrongFile) as refused:
        presets(listed(text))
    assert str(refused.value) == (
        "sizes.yaml, sizes make 204 choices, a size and a number each; 200 at most can be offered: use "
        "fewer sizes, or fewer --numbers"
    )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1", (1,)), ("1,2,4,8", (1, 2, 4, 8)), (" 8, 1 ", (1, 8)), ("1024", (1024,))],
)
def test_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_numbers(text) == numbers


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "0", "1025", "-1", "1.5", "2,2", "1 2", "²", "9" * 5000, ",".join("1" * 17)]
)
def test_wrong_numbers_are_told_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="must be whole numbers from 1 to 1024") as refused:
        parse_numbers(text)
    assert str(refused.value) == ALLOWED_NUMBERS


@given(st.text(alphabet="0123456789, -x²") | st.text())
def test_any_text_is_numbers_or_refused_in_these_words(text: str) -> None:
    words = ""
    numbers: tuple[int, ...] = ()
    try:
        numbers = parse_numbers(text)
    except ValueError as refused:
        words = str(refused)
    if words:
        assert words == ALLOWED_NUMBERS
        return
    assert 1 <= len(numbers) <= 16
    assert list(numbers) == sorted(set(numbers))
    assert parse_numbers(",".join(map(str, numbers))) == numbers


def test_whole_gpus_have_the_key_of_amounts() -> None:
    ((first, *_), *_) = presets(listed(example()))
    assert first.limits == {RESOURCE_AMOUNT: "1"}
