"""Which namespaces are served, as a table; the setting's parser with anything at all."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_device_plugin.identity.served import is_served, parse_profiles

KUBEFLOW = ("app.kubernetes.io/part-of", "kubeflow-profile")
PROFILE = dict([KUBEFLOW])
SERVE, DO_NOT = {"bitfusion.io/identity": "true"}, {"bitfusion.io/identity": "false"}
LEFT_ALONE = {"bitfusion.io/admission": "ignore"}

ROWS = [
    # labels of the namespace, with the profiles' label set, without it
    ({}, False, False),
    (PROFILE, True, False),
    ({KUBEFLOW[0]: "kubeflow"}, False, False),
    ({"part-of": KUBEFLOW[1]}, False, False),
    ({**PROFILE, **DO_NOT}, False, False),
    ({**PROFILE, "bitfusion.io/identity": "no"}, True, False),  # neither word: as if it were not there
    ({**PROFILE, **LEFT_ALONE}, False, False),
    ({**PROFILE, "bitfusion.io/admission": "other"}, True, False),
    (SERVE, True, True),
    ({**SERVE, **LEFT_ALONE}, True, True),  # the device plugin's own namespace
    (DO_NOT, False, False),
    ({**PROFILE, **SERVE, **LEFT_ALONE}, True, True),
]


@pytest.mark.parametrize(("labels", "with_profiles", "without"), ROWS)
def test_a_namespace_says_so_itself_or_is_a_profile_that_does_not_say_otherwise(
    labels: dict[str, str], with_profiles: bool, without: bool
) -> None:
    assert is_served(labels, KUBEFLOW) is with_profiles
    assert is_served(labels, None) is without


def test_opt_in_is_the_same_rule_with_the_namespaces_own_label() -> None:
    for labels, _, without in ROWS:
        if LEFT_ALONE.items() <= labels.items():
            continue
        assert is_served(labels, ("bitfusion.io/identity", "true")) is without


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            "",
            "=",
            "a",
            "a=",
            "=b",
            "a=b=c",
            "a=b,c=d",
            "a!=b",
            "a in (b)",
            "!a",
            "-a=b",
            "a=b-",
            "a/=b",
            "/a=b",
        ),
        *(
            "a/b/c=d",
            "A.b/c=d",
            "a" * 64 + "=b",
            "a=" + "b" * 64,
            "a" * 254 + "/b=c",
            "ä=b",
            "a=b\n",
            "a=b'",
            "a b=c",
        ),
    ],
)
def test_what_is_no_label_is_refused_with_an_example(wrong: str) -> None:
    with pytest.raises(ValueError, match="must be one label, KEY=VALUE, such as app"):
        parse_profiles(wrong)


inner = st.text(string.ascii_letters + string.digits, min_size=1, max_size=20)
names = st.builds("{}{}{}".format, inner, st.sampled_from(["", "-", "_", ".", "-.-"]), inner)
prefixes = st.lists(
    st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=9), min_size=1, max_size=4
)


@given(st.none() | prefixes, names, names)
def test_every_label_of_kubernetes_comes_back(prefix: list[str] | None, name: str, value: str) -> None:
    key = name if prefix is None else f"{'.'.join(prefix)}/{name}"
    assert parse_profiles(f"{key}={value}") == (key, value)
    assert is_served({key: value}, parse_profiles(f"{key}={value}"))


@given(st.text(max_size=40) | st.text("ab=/.,!'- ", max_size=12))
def test_whatever_is_given_is_a_label_or_told(given_text: str) -> None:
    with contextlib.suppress(ValueError):
        key, value = parse_profiles(given_text)
        assert f"{key}={value}" == given_text
        assert "'" not in given_text, "it stands between quotes in the policy"


@given(
    st.dictionaries(
        st.sampled_from([KUBEFLOW[0], "bitfusion.io/identity", "x"]), st.none() | st.text(max_size=5)
    )
)
def test_no_label_of_any_value_is_a_crash(labels: dict[str, object]) -> None:
    assert is_served(labels, KUBEFLOW) in (True, False)
