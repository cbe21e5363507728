"""The form's Jobs and the doctor's pod on a real node, in the image that the manifests name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jupyter_ext.spawner.kustomize import CONFIG_FILE
from tests.cluster.node import Node
from tests.cluster.project_images import project_image
from tests.jupyter_ext.spawner.kubeflow_manifests import build, write_manifests
from tests.manifests.built import build_own
from tests.manifests.installed import RESTRICTED
from tests.support.waiting import wait_until

SYSTEM = "kubeflow"
SIZES = "sizes: [{label: GPU}]\n"
NOTEBOOK = "registry.example.com/team/notebook:1.0"
NAMES = ("bitfusion-form", "bitfusion-form-give-back", "bitfusion-doctor", "bitfusion-form-account")
MAPS = ("bitfusion-notebook-sizes", "bitfusion-gpu-pods")
COMPONENTS = ("form-job", "form-give-back", "restrict-form", "doctor")


@pytest.mark.long
@pytest.mark.apart
@pytest.mark.timeout(240)
def test_the_jobs_put_the_sizes_in_and_give_them_back(node: Node, tmp_path: Path) -> None:
    cluster = node.cluster
    image = project_image("notebook-controller", say=lambda line: None)
    node.import_image(image, image.name)
    sizes = {"name": MAPS[0], "namespace": SYSTEM, "behavior": "replace", "literals": [f"sizes.yaml={SIZES}"]}
    objects = {
        (each["kind"], each["metadata"]["name"]): each
        for each in build_own(cluster, ["overlays/kubeflow"], COMPONENTS, configMapGenerator=[sizes])
        if each["metadata"]["name"] in (*NAMES, *MAPS)
    }
    runs = {name: objects.pop(("Job", name)) for name in NAMES[:2]}
    doctor = objects.pop(("Pod", "bitfusion-doctor"))
    runs["bitfusion-form"]["spec"]["template"]["spec"]["containers"][0]["env"][1]["value"] = NOTEBOOK
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM, "labels": RESTRICTED}})
    write_manifests(tmp_path, "1.10")
    form = build(tmp_path / "applications/jupyter/jupyter-web-app/upstream/overlays/istio")
    for each in form:
        if each["kind"] == "Deployment":
            each["spec"] |= {"replicas": 0, "selector": {"matchLabels": {"app": "jupyter-web-app"}}}
            each["spec"]["template"]["metadata"] = {"labels": {"app": "jupyter-web-app"}}
    config = next(each for each in form if CONFIG_FILE in (each.get("data") or {}))
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{config['metadata']['name']}"
    try:
        cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([*form, *objects.values()]))

        def run(name: str) -> str:
            cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(runs[name]))
            job = f"/apis/batch/v1/namespaces/{SYSTEM}/jobs/{name}"

            def ended() -> object:
                return cluster.client.get(job).get("status", {}).get("conditions")

            wait_until(ended, lambda: cluster.kubectl("-n", SYSTEM, "describe", f"job/{name}"), 90)
            return cluster.kubectl("-n", SYSTEM, "logs", f"job/{name}")

        assert "now has them and shows them within two minutes" in run("bitfusion-form")
        written = cluster.client.get(path)["data"][CONFIG_FILE]
        assert 'limitsKey: "bitfusion.io/gpu-amount"' in written
        assert f"- {NOTEBOOK}\n" in written
        assert "has been restored" in run("bitfusion-form-give-back")
        assert cluster.client.get(path)["data"][CONFIG_FILE] == config["data"][CONFIG_FILE]

        cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(doctor))
        pod = f"/api/v1/namespaces/{SYSTEM}/pods/bitfusion-doctor"
        wait_until(lambda: cluster.client.get(pod)["status"]["phase"] in ("Failed", "Succeeded"), limit_s=60)
        told = cluster.kubectl("-n", SYSTEM, "logs", "bitfusion-doctor")
        assert "not installed in namespace kubeflow" in told  # nothing else of ours is here
        assert "→ install it" in told
        assert cluster.client.get(pod)["status"]["phase"] == "Failed"
    finally:
        left = yaml.safe_dump_all(
            [each for each in objects.values() if each["metadata"].get("namespace") is None]
        )
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=left)
        cluster.kubectl("delete", "namespace", SYSTEM, limit_s=120)
