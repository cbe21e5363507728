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
from tests.notebook_controller_patch.admission.reviews import AMOUNT
from tests.support.notebooks import form_notebook

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


def test_a_notebook_is_created_and_loses_its_gpu_without_a_warning(cluster: Any, notebooks: str) -> None:
    """Pipelines run kubectl with ``--warnings-as-errors`` and can do nothing about the client's choice."""
    namespace = notebooks.split("/")[5]
    asking = json.dumps(form_notebook("piped", {"bitfusion.io/gpu-50": "1"}, namespace=namespace))
    cluster.kubectl("create", "--warnings-as-errors", "-f", "-", input=asking)
    made = cluster.client.get(f"{notebooks}/piped")
    assert made["metadata"]["labels"]["bitfusion.io/requested"] == "true"
    # what was chosen stands there to be read
    assert made["metadata"]["annotations"]["bitfusion-client/os"] == "ubuntu22"
    assert made["metadata"]["annotations"]["bitfusion-client/version"] == "454"
    stopped = {"metadata": {"annotations": {"kubeflow-resource-stopped": "now"}}}
    cluster.client.merge(f"{notebooks}/piped", stopped)
    bare = form_notebook("piped", {"bitfusion.io/gpu-50": None}, namespace=namespace)
    spec = json.dumps({"spec": bare["spec"]})
    cluster.kubectl(
        "patch",
        "notebooks.kubeflow.org",
        "piped",
        "-n",
        namespace,
        "--warnings-as-errors",
        "--type=merge",
        "-p",
        spec,
    )
    assert "bitfusion-client/os" not in cluster.client.get(f"{notebooks}/piped")["metadata"]["annotations"]
    cluster.client.delete(f"{notebooks}/piped")


def test_a_warning_is_for_what_somebody_can_do_something_about(cluster: Any, notebooks: str) -> None:
    del cluster.client.warnings[:]
    cluster.client.create(
        notebooks, form_notebook("warned", {AMOUNT: "1"}, namespace=notebooks.split("/")[5])
    )
    assert cluster.client.warnings == []
    limits = {"spec": form_notebook("warned", {AMOUNT: "2"})["spec"]}
    cluster.client.merge(f"{notebooks}/warned", limits)
    assert [warning[:46] for warning in cluster.client.warnings] == [
        "this edit restarts the running notebook. A siz"
    ]
    cluster.client.delete(f"{notebooks}/warned")


def test_a_notebook_with_a_size_in_its_requests_alone_is_refused(cluster: Any, notebooks: str) -> None:
    new = form_notebook("mine", namespace=notebooks.split("/")[5])
    new["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["bitfusion.io/gpu-50"] = "1"
    with pytest.raises(Refused, match="is in the requests but not in the limits"):
        cluster.client.create(notebooks, new, dryRun="All")
