"""Values of any shape, with the words of pods and events in them, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.pods.places.recorded import NO_GPU_NODE, clock

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        [
            "True",
            "False",
            "Failed",
            "Pending",
            "program",
            "PodScheduled",
            "Pulling",
            "FailedMount",
            NO_GPU_NODE,
            clock(3),
        ]
    )
)
keys = st.sampled_from(
    [
        "metadata",
        "uid",
        "spec",
        "status",
        "conditions",
        "type",
        "reason",
        "message",
        "phase",
        "state",
        "waiting",
    ]
) | st.text(max_size=3)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=25,
)


def broken(value: object, by: object, path: list[int]) -> object:
    """The value with something else at one place in it."""
    if not path or not isinstance(value, (dict, list)) or not value:
        return by
    at = path[0] % len(value)
    if isinstance(value, list):
        return [broken(item, by, path[1:]) if number == at else item for number, item in enumerate(value)]
    return {
        key: broken(item, by, path[1:]) if number == at else item
        for number, (key, item) in enumerate(value.items())
    }
