"""The form's `gpus`: what the dropdown offers, and a whole file in which only that part is replaced."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.names import is_size_resource
from jupyter_ext.spawner.form_config import FormGpus, form_gpus, gpus_part, replace_gpus
from jupyter_ext.spawner.sizes import example, parse_sizes
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import Document, parse_document
from tests.jupyter_ext.spawner.spawner_configs import NEWER, OLDER

OURS = [
    {"limitsKey": "bitfusion.io/gpu-amount", "uiName": "BITFUSION"},
    {"limitsKey": "bitfusion.io/gpu-50", "uiName": "BITFUSION 50 %"},
    {"limitsKey": "bitfusion.io/gpu-25", "uiName": "BITFUSION 25 %"},
    {"limitsKey": "bitfusion.io/gpu-8gib", "uiName": "BITFUSION 8 GiB"},
]
NVIDIA = {"limitsKey": "nvidia.com/gpu", "uiName": "NVIDIA"}
AMD = {"limitsKey": "amd.com/gpu", "uiName": "AMD"}
GAUDI = {"limitsKey": "habana.ai/gaudi", "uiName": "Intel Gaudi"}
HALF = "sizes:\n- {label: BITFUSION, share: 50 %}\n"


def plan(sizes: str, config: str | None = None) -> FormGpus:
    listed = parse_sizes(parse_document(sizes, "sizes.yaml"))
    return form_gpus(listed, None if config is None else existing(config))


def existing(config: str) -> Document:
    return parse_document(config, "spawner_ui_config.yaml")


def replaced(config: str, sizes: str = HALF) -> str:
    return replace_gpus(existing(config), plan(sizes, config)).text


def problem(config: str, sizes: str = HALF) -> str:
    with pytest.raises(WrongFile) as caught:
        replaced(config, sizes)
    assert "\n" not in caught.value.user_message
    return caught.value.user_message


def read(text: str) -> Any:
    return yaml.safe_load(text)["spawnerFormDefaults"]


def defaults(gpus: str) -> str:
    return "spawnerFormDefaults:\n  gpus:\n" + "".join(f"    {line}\n" for line in gpus.splitlines())


def test_the_part_alone_is_yaml_that_the_form_can_read() -> None:
    assert read(gpus_part(plan(example()))) == {
        "gpus": {"readOnly": False, "value": {"num": "none", "vendor": "", "vendors": OURS}}
    }


@pytest.mark.parametrize(
    ("config", "others"),
    [(NEWER, [NVIDIA, AMD, GAUDI]), (OLDER, [NVIDIA, AMD])],
    ids=["1.8 and later", "up to 1.7"],
)
def test_the_vendors_an_admin_has_stay_above_the_sizes(config: str, others: list[object]) -> None:
    text = replaced(config, example())
    assert read(text)["gpus"]["value"] == {"num": "none", "vendor": "", "vendors": [*others, *OURS]}


@pytest.mark.parametrize("config", [NEWER, OLDER], ids=["1.8 and later", "up to 1.7"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_everything_outside_gpus_stays_letter_by_letter(config: str, line_end: str) -> None:
    config = config.replace("\n", line_end)
    text = replaced(config)
    start = config.index("  gpus:")
    rest = config.index(line_end + "  ####", start) if "####" in config else config.index("  affinityConfig:")
    assert text.startswith(config[:start] + "  gpus:" + line_end)
    assert text.endswith(config[rest:])
    assert text.count("\n") == text.count(line_end)
    assert replaced(text) == text  # a second time changes nothing


def test_the_new_part_is_one_block_with_a_word_where_it_comes_from() -> None:
    start, end = NEWER.index("  gpus:"), NEWER.index("\n\n  ##########################\n  # Volumes")
    text = replaced(NEWER, "sizes:\n- label: BITFUSION\n  share: 50 %\n  default: true\n")
    assert text[start : end - len(NEWER) + len(text)] == (
        "  gpus:\n"
        "    # Written by `kubeflow-bitfusion form` from sizes.yaml: edit that list and run it again.\n"
        "    readOnly: false\n"
        "    value:\n"
        "      # what is preselected; users pick number × vendor\n"
        '      num: "1"\n'
        '      vendor: "bitfusion.io/gpu-50"\n'
        "      vendors:\n"
        '      - limitsKey: "nvidia.com/gpu"\n'
        '        uiName: "NVIDIA"\n'
        '      - limitsKey: "amd.com/gpu"\n'
        '        uiName: "AMD"\n'
        '      - limitsKey: "habana.ai/gaudi"\n'
        '        uiName: "Intel Gaudi"\n'
        '      - limitsKey: "bitfusion.io/gpu-50"\n'
        '        uiName: "BITFUSION"'
    )


def test_vendors_of_the_list_replace_those_of_the_file() -> None:
    form = plan(HALF + "other_vendors:\n- {label: MIG, key: nvidia.com/mig-1g.5gb}", NEWER)
    assert [item["uiName"] for item in form.vendors] == ["MIG", "BITFUSION"]
    assert [item["uiName"] for item in plan(HALF + "other_vendors: []", NEWER).vendors] == ["BITFUSION"]


def test_sizes_that_are_gone_from_the_list_are_told() -> None:
    config = defaults(
        "value:\n  vendors:\n  - {limitsKey: bitfusion.io/gpu-memory, uiName: old}\n"
        "  - {limitsKey: bitfusion.io/gpu-50, uiName: B}\n  - {limitsKey: a/b, uiName: C}\n"
    )
    form = plan(HALF, config)
    assert form.removed == ("bitfusion.io/gpu-memory",)
    assert [item["limitsKey"] for item in form.vendors] == ["a/b", "bitfusion.io/gpu-50"]


THREES = "sizes:\n- {label: B, number: 3, share: 50 %, default: true}\n"
DEFAULT_TWO = "sizes:\n- {label: B, share: 50 %, default: true, gpus: 2}\n"


@pytest.mark.parametrize(
    ("sizes", "num", "vendor", "expected"),
    [
        (HALF, '"none"', '""', ("none", "")),
        (HALF, '"2"', "nvidia.com/gpu", ("2", "nvidia.com/gpu")),
        (HALF, "2", "nvidia.com/gpu", ("2", "nvidia.com/gpu")),
        (HALF, '"2"', '""', ("2", "")),
        # preselected was a size, which the list does not preselect any more
        (HALF, '"2"', "bitfusion.io/gpu-50", ("none", "")),
        (HALF, '"2"', "bitfusion.io/gpu-25", ("none", "")),
        (HALF + "other_vendors: []", '"2"', "nvidia.com/gpu", ("none", "")),
        (DEFAULT_TWO, '"none"', '""', ("2", "bitfusion.io/gpu-50")),
        (THREES, '"none"', '""', ("1", "bitfusion.io/gpu-3x50")),
        (THREES.replace("default", "gpus: 4, default"), '"none"', '""', ("4", "bitfusion.io/gpu-3x50")),
        (DEFAULT_TWO, '"4"', "nvidia.com/gpu", ("2", "bitfusion.io/gpu-50")),
    ],
)
def test_what_is_preselected(sizes: str, num: str, vendor: str, expected: tuple[str, str]) -> None:
    vendors = "[{limitsKey: nvidia.com/gpu, uiName: NVIDIA}, {limitsKey: bitfusion.io/gpu-25, uiName: B25}]"
    form = plan(sizes, defaults(f"value:\n  num: {num}\n  vendor: {vendor}\n  vendors: {vendors}"))
    assert (form.num, form.vendor) == expected


@pytest.mark.parametrize(
    ("written", "kept"), [("readOnly: true\n", True), ("readOnly: false\n", False), ("", False)]
)
def test_read_only_stays_as_it_is(written: str, kept: bool) -> None:
    config = defaults(written + "value: {}")
    assert read(replaced(config))["gpus"]["readOnly"] is kept


def test_fields_of_some_fork_stay_with_their_vendor() -> None:
    config = defaults('value:\n  vendors:\n  - {max: [4, "x"], uiName: N, limitsKey: a/b, "odd key": null}')
    assert read(replaced(config))["gpus"]["value"]["vendors"][0] == {
        "limitsKey": "a/b",
        "uiName": "N",
        "max": [4, "x"],
        "odd key": None,
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("spawnerFormDefaults:\n  cpu: {value: '1'} # one\n", "# next document's end\n"),
        ("spawnerFormDefaults:\n    cpu:\n        value: |\n            two\n            lines\n", ""),
        ("spawnerFormDefaults:\n  cpu:\n    value:", ""),
        ("spawnerFormDefaults:\n  cpu:\n  - a\n  - b\n\n", "other: 1\n"),
    ],
)
def test_a_file_without_gpus_gets_them_at_the_end(before: str, after: str) -> None:
    text = replaced(before + after)
    found = yaml.safe_load(text)
    assert found["spawnerFormDefaults"].pop("gpus")["value"]["vendors"][0]["uiName"] == "BITFUSION"
    assert found == yaml.safe_load(before + after)
    assert text.startswith(before.rstrip())
    assert text.endswith(after)


@pytest.mark.parametrize(
    "gpus",
    [
        "value: {num: none, vendors: []}  # all in a line",
        "value:\n  num: >-\n    none\n\n\nreadOnly: false",
        "value:\n  vendors:\n  - limitsKey: |-\n      a/b\n    uiName: 'it''s'",
        "value:\n  num:",
        "value:\n  vendors: []\n  # the last word",
        "readOnly: false\n# no value",
        "value:",
        "",
    ],
)
@pytest.mark.parametrize(
    "after", ["", "  cpu: {value: '1'}\n", "\n\n  # about cpu\n  cpu: 1\n", "other: 1\n"]
)
def test_gpus_are_replaced_however_they_were_written(gpus: str, after: str) -> None:
    config = defaults(gpus) + after
    found, wanted = yaml.safe_load(replaced(config)), yaml.safe_load(config)
    assert found["spawnerFormDefaults"].pop("gpus")["value"]["vendors"][-1]["uiName"] == "BITFUSION"
    del wanted["spawnerFormDefaults"]["gpus"]
    assert found == wanted


NOT_THE_FORM = "spawner_ui_config.yaml: has no spawnerFormDefaults, so it is not the form's configuration"
TWO_TEXTS = "(a mapping) must have a limitsKey and a uiName, both text"
SHARED = (
    "shares text with another value, which a change would alter, too; write it without anchors, aliases "
    "and merges (<<)"
)


@pytest.mark.parametrize(
    ("config", "aliases"),
    [
        ("spawnerFormDefaults: {}", ()),
        ("{spawnerFormDefaults: {gpus: {}}}", ()),
        ('{"spawnerFormDefaults": {"cpu": 1, "gpus": {"value": {}}}, "more": 2}', ()),
        ("spawnerFormDefaults: {cpu: 1, gpus: {value: {}}, more: 2}  # one\n", ()),
        ("spawnerFormDefaults:\n  cpu: 1\n  gpus: {value: {num: none}}\n  more: 2\n", ()),
        ("a: &a\n  value: {}\nspawnerFormDefaults:\n  gpus: *a\n", ()),
        ("spawnerFormDefaults:\n  gpus: &a\n    value: {}\n  more: *a\n", ("*a (line 4)",)),
        ("spawnerFormDefaults:\n  gpus:\n    value: {num: &n none}\n  more: *n\n", ("*n (line 4)",)),
        ("a: &a []\nspawnerFormDefaults:\n  gpus:\n    value:\n      vendors: *a\n", ()),
        ("a: &a {gpus: {value: {}}}\nspawnerFormDefaults:\n  <<: *a\n  more: 2\n", ()),
        ("a: &a {gpus: {value: {}}, cpu: 1}\nspawnerFormDefaults: *a\n", ("*a (line 2)",)),
    ],
)
def test_gpus_are_replaced_in_braces_and_where_they_are_shared(config: str, aliases: tuple[str, ...]) -> None:
    result = replace_gpus(existing(config), plan(HALF, config))
    found, wanted = yaml.safe_load(result.text), yaml.safe_load(config)
    assert found["spawnerFormDefaults"].pop("gpus")["value"]["vendors"][-1]["uiName"] == "BITFUSION"
    wanted["spawnerFormDefaults"] = {**wanted["spawnerFormDefaults"]}  # of its own, where it is an alias
    wanted["spawnerFormDefaults"].pop("gpus", None)
    assert found == wanted
    assert result.aliases == aliases
    assert replaced(result.text) == result.text


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", NOT_THE_FORM),
        ("a: 1", NOT_THE_FORM),
        (
            "spawnerFormDefaults:\n  gpus:\n    value: {since: &a 2026-01-01}\n  more: *a\n",
            f"spawner_ui_config.yaml, gpus {SHARED}",
        ),
        (
            "spawnerFormDefaults:\n  gpus: []\n",
            "spawner_ui_config.yaml, gpus (line 2): (a list) must be a mapping",
        ),
        (
            "spawnerFormDefaults:\n  gpus:\n    value: 8\n",
            'spawner_ui_config.yaml, gpus.value (line 3): "8" must be a mapping',
        ),
        (
            defaults("value:\n  vendors: many"),
            'spawner_ui_config.yaml, gpus.value.vendors (line 4): "many" must be a list',
        ),
        (
            defaults("value:\n  vendors:\n  - {limitsKey: a/b, uiName: A}\n  - {limitsKey: c/d}"),
            f"spawner_ui_config.yaml, vendor 2 (line 6): {TWO_TEXTS}",
        ),
        (
            defaults("value:\n  vendors:\n  - {limitsKey: a/b, uiName: A, since: 2026-01-01}"),
            f"spawner_ui_config.yaml, vendor 1 (line 5): {TWO_TEXTS}",
        ),
        (
            defaults("value:\n  vendors:\n  - {limitsKey: a/b, uiName: bitfusion}"),
            'sizes.yaml, size 1 (line 2): label "BITFUSION" is also the label of a/b; '
            "users could not tell them apart",
        ),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_refused(config: str, message: str) -> None:
    assert problem(config) == message


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            "sizes:\n- {label: B, gpus: 2}",
            'sizes.yaml, size 1 (line 2): gpus "2" must be left out: users pick the number beside the size; '
            "only the size with default: true preselects one. GPUs that belong to the size itself are its "
            "number",
        ),
        (
            "sizes:\n- {label: B, gpus: 3, default: true}",
            'sizes.yaml, size 1 (line 2): gpus "3" must be 1, 2, 4 or 8, the numbers that the form offers; '
            "any other "
            "number can be part of the size itself",
        ),
    ],
)
def test_a_number_that_the_form_does_not_have_is_refused(sizes: str, message: str) -> None:
    assert problem(NEWER, sizes) == message


@given(
    st.lists(
        st.one_of(
            st.integers(1, 99).map(lambda share: f"share: {share} %"),
            st.integers(1, 4096).map(lambda mib: f"memory: {mib}Mi"),
            st.just("gpus: 1"),
            st.integers(2, 1024).map(lambda number: f"number: {number}"),
            st.integers(2, 1024).map(lambda number: f"number: {number}\n  share: 50"),
        ),
        min_size=1,
        max_size=8,
        unique=True,
    )
)
def test_no_list_of_sizes_makes_the_forms_list_of_notebooks_fail(sizes: list[str]) -> None:
    """The form adds up int() of each configured key's limit; only counts may stand there."""
    text = "sizes:\n" + "".join(f"- label: size {index}\n  {size}\n" for index, size in enumerate(sizes))
    keys = [str(item["limitsKey"]) for item in plan(text).vendors]
    assert len(set(keys)) == len(sizes)
    assert all(is_size_resource(key) for key in keys)
    assert not {"bitfusion.io/gpu-memory", "bitfusion.io/gpu-percent"} & set(keys)
