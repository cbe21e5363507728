"""A name that somebody wrote stays one segment of the path, and leads to nobody else's object."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from urllib3.util import parse_url

from bitfusion_cluster.api.paths import notebook_path, pod_path, statefulset_path

ODD = ("../../ben/notebooks/x", "x?watch=1", "x#y", "a/b", "%2e%2e/x", "ü", "\ud800", "x y", "")


@pytest.mark.parametrize("path", [notebook_path, pod_path, statefulset_path])
@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_stays_in_its_namespace(path: Callable[[str, str], str], name: str) -> None:
    start = path("ann", "")
    # as the client sends it, which takes `..` out of paths
    url = parse_url("https://localhost" + path("ann", name))
    assert (url.path or "").startswith(start)
    assert "/" not in (url.path or "")[len(start) :]
    assert (url.query, url.fragment) == (None, None)


def test_an_ordinary_name_is_as_it_is() -> None:
    assert notebook_path("team-a", "nb.1") == "/apis/kubeflow.org/v1/namespaces/team-a/notebooks/nb.1"
