"""Which notebook of a cluster a holder is, and what of its words is believed."""

from __future__ import annotations

import pytest

from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import FIRST_TOKEN_NAME, Holder
from bitfusion_pool.ledger.holder_place import HolderPlace, device_sizes, gpu_part, holder_place


@pytest.mark.parametrize(
    ("user", "host", "place"),
    [
        ("cluster/team-a", "team-a/mnist", HolderPlace("team-a", "mnist")),
        ("cluster/team-a", "team-a/odd/name", HolderPlace("team-a", "odd/name")),
        ("cluster/team-a", "laptop", HolderPlace("team-a")),
        ("cluster/team-a", "", HolderPlace("team-a")),
        ("cluster/team-a", "team-b/mnist", HolderPlace("team-a", "", "team-b/mnist")),
        ("cluster/team-a", "/mnist", HolderPlace("team-a", "", "/mnist")),
        ("ada", "team-a/mnist", HolderPlace("")),
        ("/team-a", "team-a/mnist", HolderPlace("")),
    ],
)
def test_a_notebook_is_believed_within_the_namespace_of_its_token(
    user: str, host: str, place: HolderPlace
) -> None:
    assert holder_place(Holder("x", user, 1, host, FIRST_TOKEN_NAME)) == place


def test_a_user_of_the_machine_is_in_no_namespace_whatever_the_name() -> None:
    assert holder_place(Holder("x", "cluster/team-a", 1, "team-a/mnist", 1000)) == HolderPlace("")


def test_a_share_of_a_device_that_is_gone_or_shrank_is_a_whole_one() -> None:
    sizes = device_sizes([Server("s", "a", 1, (Device(0, "V100", 16000), Device(1, "V100", 100)))])
    parts = [gpu_part(sizes, *share) for share in (("a:1", 0, 4000), ("a:1", 1, 200), ("b:1", 0, 7))]
    assert parts == [0.25, 1.0, 1.0]
