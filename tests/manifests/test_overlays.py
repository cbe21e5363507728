"""What every overlay must be, whatever else changes in it: consistent, restricted, named as the code says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from notebook_controller_patch.cli import settings_of
from notebook_controller_patch.settings import DEFAULT_NAME, DEFAULT_WEBHOOKS, PREFIX, Settings
from tests.manifests.built import (
    CONTROLLER,
    INSTALLED,
    MANIFESTS,
    NAMESPACES,
    OVERLAYS,
    POLICY,
    WEBHOOKS,
    Objects,
    container,
    of_kind,
    one,
    pod_template,
    rules,
)

CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
OPT_OUT = {"key": "bitfusion.io/admission", "operator": "NotIn", "values": ["ignore"]}
Overlays = Mapping[str, Objects]

installed = pytest.mark.parametrize("overlay", INSTALLED)


def settings(objects: Objects) -> Settings:
    """What the program makes of the Deployment's arguments and environment."""
    environ = {}
    for variable in container(objects)["env"]:
        assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
        environ[variable["name"]] = one(objects, "Deployment")["metadata"]["namespace"]
    return settings_of(container(objects)["args"], environ)


def test_every_folder_with_an_overlay_is_tested() -> None:
    assert {path.name for path in (MANIFESTS / "overlays").iterdir()} == set(OVERLAYS)


def test_every_yaml_file_belongs_to_a_kustomization() -> None:
    for folder in {path.parent for path in MANIFESTS.rglob("*.yaml")} - {MANIFESTS / "samples"}:
        text = (folder / "kustomization.yaml").read_text()
        for path in folder.glob("*.yaml"):
            assert path.name == "kustomization.yaml" or path.name in text, path


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_object_appears_twice(overlays: Overlays, overlay: str) -> None:
    names = [
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in overlays[overlay]
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_objects_are_in_the_overlays_namespace_or_in_none(overlays: Overlays, overlay: str) -> None:
    for item in overlays[overlay]:
        expected = None if item["kind"] in CLUSTER_WIDE else NAMESPACES[overlay]
        assert item["metadata"].get("namespace") == expected, item["metadata"]["name"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_objects_carry_the_recommended_labels(overlays: Overlays, overlay: str) -> None:
    for item in overlays[overlay]:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "kubeflow-bitfusion"
        if item["kind"] != "Namespace":
            assert labels["app.kubernetes.io/name"] == (
                POLICY if overlay == "validating-policy" else CONTROLLER
            )


@installed
def test_selectors_find_the_pods(overlays: Overlays, overlay: str) -> None:
    objects = overlays[overlay]
    labels = pod_template(objects)["metadata"]["labels"].items()
    selectors = [
        one(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        one(objects, "Service")["spec"]["selector"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(
            spread["labelSelector"]["matchLabels"]
            for spread in pod_template(objects)["spec"]["topologySpreadConstraints"]
        ),
    ]
    for selector in selectors:
        assert selector.items() <= labels
        # A selector of a Deployment can't be changed later: a version in it would make upgrades impossible.
        assert set(selector) == {"app.kubernetes.io/name"}


@installed
def test_every_image_can_be_replaced_through_kustomize(overlays: Overlays, overlay: str) -> None:
    base = yaml.safe_load((MANIFESTS / "base" / "kustomization.yaml").read_text())
    (image,) = base["images"]
    written = yaml.safe_load((MANIFESTS / "base" / "deployment.yaml").read_text())
    (only,) = written["spec"]["template"]["spec"]["containers"]
    assert only["image"] == image["name"]  # without a tag: the tag stands in one place
    assert container(overlays[overlay])["image"] == f"{image['name']}:{image['newTag']}"
    assert "initContainers" not in pod_template(overlays[overlay])["spec"]


def test_the_image_tag_is_the_projects_version() -> None:
    base = yaml.safe_load((MANIFESTS / "base" / "kustomization.yaml").read_text())
    project = (MANIFESTS.parent / "pyproject.toml").read_text()
    found = re.search(r'^version = "(.*)"$', project, re.MULTILINE)
    assert found
    assert base["images"][0]["newTag"] == found[1]


@installed
def test_pods_are_restricted(overlays: Overlays, overlay: str) -> None:
    pod = pod_template(overlays[overlay])["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(overlays[overlay])["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(set(volume) & {"configMap", "secret", "emptyDir"} for volume in pod["volumes"])


@installed
def test_pods_run_as_the_image_does(overlays: Overlays, overlay: str) -> None:
    containerfile = (MANIFESTS / "image" / "Containerfile").read_text()
    context = pod_template(overlays[overlay])["spec"]["securityContext"]
    user = f"{context['runAsUser']}:{context['runAsGroup']}"
    assert re.search(rf"^USER {user}$", containerfile, re.MULTILINE)
    # The arguments of the Deployment are those of the image's entry point.
    assert "command" not in container(overlays[overlay])
    assert re.search(r'^ENTRYPOINT \[.*"(\S*/)?bitfusion-notebook-controller"', containerfile, re.MULTILINE)


@installed
def test_the_mesh_stays_out_of_the_way(overlays: Overlays, overlay: str) -> None:
    metadata = pod_template(overlays[overlay])["metadata"]
    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"


@installed
def test_two_replicas_on_two_nodes_one_of_which_may_be_drained(overlays: Overlays, overlay: str) -> None:
    deployment = one(overlays[overlay], "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert one(overlays[overlay], "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    pod = deployment["template"]["spec"]
    keys = [spread["topologyKey"] for spread in pod["topologySpreadConstraints"]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    # A new replica is there before an old one goes; each may take as long as the program says it does.
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert pod["terminationGracePeriodSeconds"] > 20
    assert pod["priorityClassName"] == one(overlays[overlay], "PriorityClass")["metadata"]["name"]
    assert one(overlays[overlay], "PriorityClass")["value"] <= 1_000_000_000  # above is the system's


@installed
def test_probes_and_metrics_are_where_the_program_serves_them(overlays: Overlays, overlay: str) -> None:
    objects = overlays[overlay]
    ports = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
    assert ports == {
        "https-webhook": settings(objects).port,
        "http-monitoring": settings(objects).monitoring_port,
    }
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert container(objects)[probe]["httpGet"] == {"path": path, "port": "http-monitoring"}
    annotations = pod_template(objects)["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(settings(objects).monitoring_port)
    assert annotations["prometheus.io/path"] == "/metrics"
    served = {port["port"]: port["targetPort"] for port in one(objects, "Service")["spec"]["ports"]}
    assert served == {443: "https-webhook", 8080: "http-monitoring"}


@installed
def test_resources_are_asked_for_and_limited(overlays: Overlays, overlay: str) -> None:
    resources = container(overlays[overlay])["resources"]
    assert set(resources["requests"]) == set(resources["limits"]) == {"cpu", "memory"}


@installed
def test_only_what_is_needed_reaches_the_pods(overlays: Overlays, overlay: str) -> None:
    policy = one(overlays[overlay], "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    webhook, metrics = policy["ingress"]
    assert webhook == {"ports": [{"port": "https-webhook", "protocol": "TCP"}]}
    assert metrics["ports"] == [{"port": "http-monitoring", "protocol": "TCP"}]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"bitfusion.io/monitoring": "allowed"}}}]
    assert all(rule["ports"] for rule in policy["egress"])


@installed
def test_arguments_are_options_of_the_program(overlays: Overlays, overlay: str) -> None:
    found = settings(overlays[overlay])
    assert found.ignored == ()
    assert found.namespace == NAMESPACES[overlay]
    assert found.name == CONTROLLER == DEFAULT_NAME
    assert found.webhook_configuration == WEBHOOKS == DEFAULT_WEBHOOKS
    assert found.log_format == "json"
    if overlay == "cert-manager":
        assert (found.certificate_secret, found.certificate_folder) == (None, "/etc/bitfusion/certificate")
    else:
        assert (found.certificate_secret, found.certificate_folder) == (f"{CONTROLLER}-ca", None)


def test_cert_managers_arguments_differ_in_the_certificate_only(overlays: Overlays) -> None:
    ours, theirs = (container(overlays[name]) for name in ("kubeflow", "cert-manager"))
    about = ("--certificate-", "--webhook-configuration")
    assert [arg for arg in ours["args"] if not arg.startswith(about)] == [
        arg for arg in theirs["args"] if not arg.startswith(about)
    ]
    assert ours["env"] == theirs["env"]
    assert all(variable["name"].startswith(PREFIX) for variable in ours["env"])


@installed
def test_the_settings_name_what_is_there(overlays: Overlays, overlay: str) -> None:
    objects = overlays[overlay]
    found = settings(objects)
    one(objects, "Service", found.name)
    one(objects, "MutatingWebhookConfiguration", found.webhook_configuration)
    pod = pod_template(objects)["spec"]
    assert pod["serviceAccountName"] == one(objects, "ServiceAccount")["metadata"]["name"] == found.name
    # Who the reconciler is, so that its own writes pass admission untouched.
    assert found.username == f"system:serviceaccount:{NAMESPACES[overlay]}:{pod['serviceAccountName']}"
    mounts = {mount["mountPath"]: mount["name"] for mount in container(objects)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts.values()) == set(volumes)
    images = Path(found.images or "")
    configured = one(objects, "ConfigMap", volumes[mounts[str(images.parent)]]["configMap"]["name"])
    assert configured["metadata"]["name"] == "bitfusion-client-images"
    assert set(configured["data"]) == {images.name}
    if found.certificate_folder:
        secret = volumes[mounts[found.certificate_folder]]["secret"]["secretName"]
        serving = one(objects, "Certificate", f"{CONTROLLER}-serving")
        assert serving["spec"]["secretName"] == secret == f"{CONTROLLER}-serving"


@installed
def test_webhooks_call_the_paths_the_server_has(overlays: Overlays, overlay: str) -> None:
    objects = overlays[overlay]
    server = (MANIFESTS.parent / "notebook_controller_patch" / "admission" / "server.py").read_text()
    webhooks = one(objects, "MutatingWebhookConfiguration", WEBHOOKS)["webhooks"]
    assert [webhook["name"] for webhook in webhooks] == [
        "notebooks.bitfusion.io",
        "statefulsets.bitfusion.io",
    ]
    for webhook, path in zip(webhooks, ("/admit/notebooks", "/admit/statefulsets"), strict=True):
        assert webhook["clientConfig"] == {
            "service": {"name": CONTROLLER, "namespace": NAMESPACES[overlay], "path": path, "port": 443}
        }
        assert f'"{path}"' in server


@installed
def test_webhooks_never_stand_in_the_way(overlays: Overlays, overlay: str) -> None:
    for webhook in one(overlays[overlay], "MutatingWebhookConfiguration", WEBHOOKS)["webhooks"]:
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["sideEffects"] == "None"
        assert webhook["matchPolicy"] == "Equivalent"
        assert webhook["timeoutSeconds"] == 5
        assert webhook["admissionReviewVersions"] == ["v1"]
        (rule,) = webhook["rules"]
        assert rule["operations"] == ["CREATE", "UPDATE"]
        assert rule["scope"] == "Namespaced"
        assert rule["apiVersions"] == ["v1"]
        assert (rule["apiGroups"], rule["resources"]) in (
            (["kubeflow.org"], ["notebooks"]),
            (["apps"], ["statefulsets"]),
        )


@installed
def test_webhooks_see_only_what_may_concern_them(overlays: Overlays, overlay: str) -> None:
    for webhook in one(overlays[overlay], "MutatingWebhookConfiguration", WEBHOOKS)["webhooks"]:
        namespaces = webhook["namespaceSelector"]
        assert OPT_OUT in namespaces["matchExpressions"]
        assert OPT_OUT in webhook["objectSelector"]["matchExpressions"]
        if overlay == "standalone":
            names = next(
                item
                for item in namespaces["matchExpressions"]
                if item["key"] == "kubernetes.io/metadata.name"
            )
            assert names["operator"] == "NotIn"
            assert "kube-system" in names["values"]
        else:
            assert namespaces["matchLabels"] == {"app.kubernetes.io/part-of": "kubeflow-profile"}


def test_the_standalone_namespace_is_restricted_and_left_alone(overlays: Overlays) -> None:
    labels = one(overlays["standalone"], "Namespace", "bitfusion-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["bitfusion.io/admission"] == "ignore"


@installed
def test_rights_name_everything(overlays: Overlays, overlay: str) -> None:
    granted = list(rules(overlays[overlay]))
    assert granted
    for right in granted:
        assert "*" not in right
        assert right[4] not in ("escalate", "bind", "impersonate", "deletecollection")
    for role in of_kind(overlays[overlay], "ClusterRole"):
        assert not any("*" in part for rule in role.get("rules", []) for part in rule.values())
    for binding in of_kind(overlays[overlay], "ClusterRoleBinding") + of_kind(
        overlays[overlay], "RoleBinding"
    ):
        assert binding["roleRef"]["name"].startswith(CONTROLLER)
        (subject,) = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": CONTROLLER, "namespace": NAMESPACES[overlay]}


def test_with_cert_manager_no_secret_and_no_webhook_configuration_may_be_touched(overlays: Overlays) -> None:
    def resources(overlay: str) -> set[str]:
        return {resource for _, _, resource, _, _ in rules(overlays[overlay])}

    assert resources("kubeflow") - resources("cert-manager") == {"secrets", "mutatingwebhookconfigurations"}


@pytest.mark.parametrize("overlay", ["kubeflow", "cert-manager"])
def test_kubeflows_roles_take_ours_up(overlays: Overlays, overlay: str) -> None:
    aggregate = "rbac.authorization.kubeflow.org/aggregate-to-"
    for role, into in (
        ("admin", {"kubeflow-admin"}),
        ("edit", {"kubeflow-edit", "kubeflow-bitfusion-admin"}),
        ("view", {"kubeflow-view"}),
    ):
        labels = one(overlays[overlay], "ClusterRole", f"kubeflow-bitfusion-{role}")["metadata"]["labels"]
        assert {key[len(aggregate) :] for key in labels if key.startswith(aggregate)} == into


def test_cert_managers_objects_name_the_service_and_each_other(overlays: Overlays) -> None:
    objects = overlays["cert-manager"]
    authority = one(objects, "Certificate")["spec"]
    serving = one(objects, "Certificate", f"{CONTROLLER}-serving")["spec"]
    assert serving["dnsNames"] == [f"{CONTROLLER}.kubeflow.svc", f"{CONTROLLER}.kubeflow.svc.cluster.local"]
    assert one(objects, "Issuer", authority["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    issuer = one(objects, "Issuer", serving["issuerRef"]["name"])["spec"]
    assert issuer == {"ca": {"secretName": authority["secretName"]}}
    annotations = one(objects, "MutatingWebhookConfiguration", WEBHOOKS)["metadata"]["annotations"]
    assert annotations["cert-manager.io/inject-ca-from"] == f"kubeflow/{CONTROLLER}"


def test_a_renewal_of_the_serving_certificate_never_changes_what_the_apiserver_trusts(
    overlays: Overlays,
) -> None:
    objects = overlays["cert-manager"]
    authority = one(objects, "Certificate")["spec"]
    serving = one(objects, "Certificate", f"{CONTROLLER}-serving")["spec"]
    assert (authority["isCA"], "isCA" in serving) == (True, False)
    # Since 1.18 cert-manager would make a new key, which the certificates of before do not know.
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    hours = {name: int(authority[name].removesuffix("h")) for name in ("duration", "renewBefore")}
    assert hours["duration"] == 10 * 365 * 24
    # Whatever it has signed ends before it does.
    assert hours["renewBefore"] > int(serving["duration"].removesuffix("h"))
    # Whose key lies in a pod could sign for others.
    (volume,) = (each for each in pod_template(objects)["spec"]["volumes"] if "secret" in each)
    assert volume["secret"]["secretName"] == serving["secretName"] != authority["secretName"]


def test_cert_managers_authority_is_the_successor_of_the_ones_before(overlays: Overlays) -> None:
    # Name, key and Secret stay: see tests/manifests/test_certificate_changes.py.
    authority = one(overlays["cert-manager"], "Certificate")["spec"]
    assert (authority["commonName"], authority["secretName"]) == (CONTROLLER, f"{CONTROLLER}-certificate")
    assert authority["privateKey"] == {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"}
