"""Refusals and warnings as a user meets them: through a real apiserver, posted as the form posts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE
from tests.cluster.our_controller import our_controller
from tests.notebook_controller_patch.admission.refusals import REFUSALS
from tests.notebook_controller_patch.admission.reviews import AMOUNT, REQUEST
from tests.support.notebooks import IMAGE, form_notebook

DENIED = 'admission webhook "notebooks.bitfusion.io" denied the request: '


@pytest.fixture(scope="module")
def notebooks(cluster: Cluster) -> Iterator[str]:
    """The path of the Notebooks of a user's namespace, as the form writes it, while the webhooks run."""
    with our_controller(cluster):
        yield f"/apis/kubeflow.org/v1beta1/namespaces/{cluster.new_namespace(PROFILE, 'user')}/notebooks"


def posted(
    cluster: Cluster, path: str, limits: Any = None, annotations: Any = None, name: str = "mine"
) -> Object:
    """The form's dry run: nothing is kept."""
    namespace = path.split("/")[5]
    return cluster.client.create(
        path, form_notebook(name, limits, annotations, namespace=namespace), dryRun="All"
    )


@pytest.mark.parametrize(("limits", "annotations", "message"), REFUSALS)
def test_a_refusal_in_the_forms_error_bar(
    cluster: Any, notebooks: str, limits: Any, annotations: Any, message: Any
) -> None:
    with pytest.raises(Refused) as caught:
        posted(cluster, notebooks, limits, annotations)
    assert caught.value.status == 422
    assert caught.value.reason == "Invalid"
    assert caught.value.message.startswith(DENIED + message)
    if message.endswith("."):
        assert caught.value.message == DENIED + message


def test_a_refusal_by_kubectl(cluster: Any, notebooks: str) -> None:
    wrong = form_notebook("mine", {AMOUNT: "0"}, namespace=notebooks.split("/")[5])
    failed = cluster.try_kubectl("create", "-f", "-", input=json.dumps(wrong))
    assert failed.returncode == 1
    told = 'The request is invalid: error when creating "STDIN": '
    assert failed.stderr.strip() == told + DENIED + REFUSALS[0][2]


def test_a_chosen_client_is_told_as_a_warning(cluster: Any, notebooks: str) -> None:
    del cluster.client.warnings[:]
    made = posted(cluster, notebooks, {"bitfusion.io/gpu-50": "1"}, {REQUEST: "-n 1 -p 0.25"})
    assert made["metadata"]["labels"]["bitfusion.io/requested"] == "true"
    assert cluster.client.warnings == [
        f"Bitfusion client chosen for the image {IMAGE}: "
        "bitfusion-client/os=ubuntu22, bitfusion-client/version=454"
    ]
