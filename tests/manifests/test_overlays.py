"""What every overlay must be, whatever else changes in it: consistent, restricted, named as the code says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from bitfusion_client.kubernetes.names import PODS_WEBHOOK
from bitfusion_cluster.webhooks import self_check
from bitfusion_cluster.webhooks.serving_settings import ServingSettings
from bitfusion_device_plugin.injector import settings as injector_options
from bitfusion_device_plugin.injector.injection.client_map import DEFAULT_CLIENTS, parse_clients
from bitfusion_device_plugin.injector.pods_webhook import PODS
from notebook_controller_patch import settings as controller_options
from notebook_controller_patch.admission.webhooks import NOTEBOOKS, STATEFULSETS
from tests.manifests.built import (
    CONTROLLER,
    INJECTOR,
    INSTALLED,
    MANIFESTS,
    NAMESPACES,
    OVERLAYS,
    POD_WEBHOOKS,
    POLICY,
    PROCESSES,
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
READERS: Mapping[str, Callable[[Sequence[str], Mapping[str, str]], ServingSettings]] = {
    CONTROLLER: controller_options.settings_of,
    INJECTOR: injector_options.settings_of,
}

installed = pytest.mark.parametrize("overlay", INSTALLED)
each_process = pytest.mark.parametrize("process", PROCESSES)


def settings(objects: Objects, process: str) -> ServingSettings:
    """What the program makes of the Deployment's arguments and environment."""
    environ = {}
    for variable in container(objects, process)["env"]:
        if "value" in variable:
            environ[variable["name"]] = variable["value"]
            continue
        assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
        environ[variable["name"]] = one(objects, "Deployment", process)["metadata"]["namespace"]
    return READERS[process](container(objects, process)["args"], environ)


def controller_settings(objects: Objects) -> controller_options.Settings:
    found = settings(objects, CONTROLLER)
    assert isinstance(found, controller_options.Settings)
    return found


def injector_settings(objects: Objects) -> injector_options.Settings:
    found = settings(objects, INJECTOR)
    assert isinstance(found, injector_options.Settings)
    return found


def test_every_folder_with_an_overlay_is_tested() -> None:
    assert {path.name for path in (MANIFESTS / "overlays").iterdir()} == set(OVERLAYS)


def test_every_yaml_file_belongs_to_a_kustomization() -> None:
    # Samples are applied file by file, but for those with a folder of their own.
    single = {MANIFESTS / "samples", MANIFESTS / "samples" / "monitoring"}
    for folder in {path.parent for path in MANIFESTS.rglob("*.yaml")} - single:
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
            names = (POLICY,) if overlay == "validating-policy" else PROCESSES
            assert labels["app.kubernetes.io/name"] in names


@installed
@each_process
def test_selectors_find_the_pods(overlays: Overlays, overlay: str, process: str) -> None:
    objects = overlays[overlay]
    labels = pod_template(objects, process)["metadata"]["labels"].items()
    selectors = [
        one(objects, "Deployment", process)["spec"]["selector"]["matchLabels"],
        one(objects, "Service", process)["spec"]["selector"],
        one(objects, "PodDisruptionBudget", process)["spec"]["selector"]["matchLabels"],
        one(objects, "NetworkPolicy", process)["spec"]["podSelector"]["matchLabels"],
        *(
            spread["labelSelector"]["matchLabels"]
            for spread in pod_template(objects, process)["spec"]["topologySpreadConstraints"]
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
    for folder, process in (("controller", CONTROLLER), ("injector", INJECTOR)):
        written = yaml.safe_load((MANIFESTS / "base" / folder / "deployment.yaml").read_text())
        (only,) = written["spec"]["template"]["spec"]["containers"]
        assert only["image"] == image["name"]  # without a tag: the tag stands in one place
        assert container(overlays[overlay], process)["image"] == f"{image['name']}:{image['newTag']}"
        assert "initContainers" not in pod_template(overlays[overlay], process)["spec"]


def test_the_image_tag_is_the_projects_version() -> None:
    base = yaml.safe_load((MANIFESTS / "base" / "kustomization.yaml").read_text())
    project = (MANIFESTS.parent / "pyproject.toml").read_text()
    found = re.search(r'^version = "(.*)"$', project, re.MULTILINE)
    assert found
    assert base["images"][0]["newTag"] == found[1]


@installed
@each_process
def test_pods_are_restricted(overlays: Overlays, overlay: str, process: str) -> None:
    pod = pod_template(overlays[overlay], process)["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(overlays[overlay], process)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(set(volume) & {"configMap", "secret", "emptyDir"} for volume in pod["volumes"])


@installed
def test_pods_run_as_the_image_does(overlays: Overlays, overlay: str) -> None:
    containerfile = (MANIFESTS / "images" / "notebook-controller" / "Containerfile").read_text()
    context = pod_template(overlays[overlay])["spec"]["securityContext"]
    user = f"{context['runAsUser']}:{context['runAsGroup']}"
    assert re.search(rf"^USER {user}$", containerfile, re.MULTILINE)
    # The arguments of the Deployment are those of the image's entry point; the injector is another command.
    assert "command" not in container(overlays[overlay])
    assert re.search(r'^ENTRYPOINT \[.*"(\S*/)?bitfusion-notebook-controller"', containerfile, re.MULTILINE)
    (command,) = container(overlays[overlay], INJECTOR)["command"]
    project = (MANIFESTS.parent / "pyproject.toml").read_text()
    assert f'{command} = "bitfusion_device_plugin.injector.settings:main"' in project


@installed
@each_process
def test_the_mesh_stays_out_of_the_way(overlays: Overlays, overlay: str, process: str) -> None:
    metadata = pod_template(overlays[overlay], process)["metadata"]
    assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"


@installed
@each_process
def test_two_replicas_on_two_nodes_one_of_which_may_be_drained(
    overlays: Overlays, overlay: str, process: str
) -> None:
    deployment = one(overlays[overlay], "Deployment", process)["spec"]
    assert deployment["replicas"] == 2
    assert one(overlays[overlay], "PodDisruptionBudget", process)["spec"]["maxUnavailable"] == 1
    pod = deployment["template"]["spec"]
    keys = [spread["topologyKey"] for spread in pod["topologySpreadConstraints"]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    # A new replica is there before an old one goes; each may take as long as the program says it does.
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert pod["terminationGracePeriodSeconds"] > 20
    assert pod["priorityClassName"] == one(overlays[overlay], "PriorityClass")["metadata"]["name"]
    assert one(overlays[overlay], "PriorityClass")["value"] <= 1_000_000_000  # above is the system's


@installed
@each_process
def test_probes_and_metrics_are_where_the_program_serves_them(
    overlays: Overlays, overlay: str, process: str
) -> None:
    objects = overlays[overlay]
    ports = {port["name"]: port["containerPort"] for port in container(objects, process)["ports"]}
    assert ports == {
        "https-webhook": settings(objects, process).port,
        "http-monitoring": settings(objects, process).monitoring_port,
    }
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert container(objects, process)[probe]["httpGet"] == {"path": path, "port": "http-monitoring"}
    annotations = pod_template(objects, process)["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(settings(objects, process).monitoring_port)
    assert annotations["prometheus.io/path"] == "/metrics"
    served = {port["port"]: port["targetPort"] for port in one(objects, "Service", process)["spec"]["ports"]}
    assert served == {443: "https-webhook", 8080: "http-monitoring"}


@installed
@each_process
def test_resources_are_asked_for_and_limited(overlays: Overlays, overlay: str, process: str) -> None:
    resources = container(overlays[overlay], process)["resources"]
    assert set(resources["requests"]) == set(resources["limits"]) == {"cpu", "memory"}


@installed
@each_process
def test_only_what_is_needed_reaches_the_pods(overlays: Overlays, overlay: str, process: str) -> None:
    policy = one(overlays[overlay], "NetworkPolicy", process)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    webhook, metrics = policy["ingress"]
    assert webhook == {"ports": [{"port": "https-webhook", "protocol": "TCP"}]}
    assert metrics["ports"] == [{"port": "http-monitoring", "protocol": "TCP"}]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"bitfusion.io/monitoring": "allowed"}}}]
    assert all(rule["ports"] for rule in policy["egress"])


@installed
@each_process
def test_arguments_are_options_of_the_program(overlays: Overlays, overlay: str, process: str) -> None:
    found = settings(overlays[overlay], process)
    assert found.ignored == ()
    assert found.namespace == NAMESPACES[overlay]
    assert found.name == process
    assert found.log_format == "json"
    if overlay == "cert-manager":
        assert (found.certificate_secret, found.certificate_folder) == (None, "/etc/bitfusion/certificate")
    else:
        assert (found.certificate_secret, found.certificate_folder) == (f"{process}-ca", None)


@installed
def test_names_are_the_programs_defaults(overlays: Overlays, overlay: str) -> None:
    controller, injector = (settings(overlays[overlay], process) for process in PROCESSES)
    assert controller.name == controller_options.DEFAULT_NAME
    assert controller.webhook_configuration == WEBHOOKS == controller_options.DEFAULT_WEBHOOKS
    assert injector.name == injector_options.DEFAULT_NAME
    assert injector.webhook_configuration == POD_WEBHOOKS == injector_options.DEFAULT_WEBHOOKS


@each_process
def test_cert_managers_arguments_differ_in_the_certificate_only(overlays: Overlays, process: str) -> None:
    ours, theirs = (container(overlays[name], process) for name in ("kubeflow", "cert-manager"))
    about = ("--certificate-", "--webhook-configuration")
    assert [arg for arg in ours["args"] if not arg.startswith(about)] == [
        arg for arg in theirs["args"] if not arg.startswith(about)
    ]
    assert ours["env"] == theirs["env"]


@installed
@each_process
def test_the_settings_name_what_is_there(overlays: Overlays, overlay: str, process: str) -> None:
    objects = overlays[overlay]
    found = settings(objects, process)
    one(objects, "Service", found.name)
    one(objects, "MutatingWebhookConfiguration", found.webhook_configuration)
    pod = pod_template(objects, process)["spec"]
    account = one(objects, "ServiceAccount", process)["metadata"]
    assert pod["serviceAccountName"] == account["name"] == found.name
    mounts = {mount["mountPath"]: mount["name"] for mount in container(objects, process)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts.values()) == set(volumes)
    if found.certificate_folder:
        secret = volumes[mounts[found.certificate_folder]]["secret"]["secretName"]
        serving = one(objects, "Certificate", f"{process}-serving")
        assert serving["spec"]["secretName"] == secret == f"{process}-serving"


@installed
def test_the_reconcilers_own_writes_pass_admission_untouched(overlays: Overlays, overlay: str) -> None:
    account = pod_template(overlays[overlay])["spec"]["serviceAccountName"]
    user = f"system:serviceaccount:{NAMESPACES[overlay]}:{account}"
    assert controller_settings(overlays[overlay]).username == user


@installed
def test_files_of_the_administrator_are_mounted_from_config_maps(overlays: Overlays, overlay: str) -> None:
    objects = overlays[overlay]
    injector = injector_settings(objects)
    assert injector.images == controller_settings(objects).images  # both choose the same client for an image
    for process, file, name in (
        (CONTROLLER, injector.images, "bitfusion-client-images"),
        (INJECTOR, injector.images, "bitfusion-client-images"),
        (INJECTOR, injector.clients, "bitfusion-clients"),
        (INJECTOR, injector.pods, "bitfusion-gpu-pods"),
        (INJECTOR, injector.sizes, "bitfusion-notebook-sizes"),
    ):
        mounts = {each["mountPath"]: each for each in container(objects, process)["volumeMounts"]}
        mount = mounts[str(Path(file or "").parent)]
        assert "subPath" not in mount  # or a change would never arrive
        volumes = {each["name"]: each for each in pod_template(objects, process)["spec"]["volumes"]}
        assert volumes[mount["name"]]["configMap"]["name"] == name
        assert set(one(objects, "ConfigMap", name)["data"]) == {Path(file or "").name}


def test_the_clients_that_are_installed_are_the_programs_default(overlays: Overlays) -> None:
    text = one(overlays["kubeflow"], "ConfigMap", "bitfusion-clients")["data"]["clients.yaml"]
    assert parse_clients(yaml.safe_load(text)) == DEFAULT_CLIENTS
    # The example in its comment can be used as it is.
    example = "\n".join(line[2:] for line in text.splitlines() if line.startswith(("# - ", "#   ")))
    (rule,) = parse_clients(yaml.safe_load(example))
    assert rule.kind == "vmware"


@installed
def test_webhooks_call_the_paths_the_server_has(overlays: Overlays, overlay: str) -> None:
    objects = overlays[overlay]
    webhooks = one(objects, "MutatingWebhookConfiguration", WEBHOOKS)["webhooks"]
    assert [webhook["name"] for webhook in webhooks] == [
        "notebooks.bitfusion.io",
        "statefulsets.bitfusion.io",
        self_check.WEBHOOK,
    ]
    of_pods = one(objects, "MutatingWebhookConfiguration", POD_WEBHOOKS)["webhooks"]
    assert [webhook["name"] for webhook in of_pods] == [PODS_WEBHOOK, self_check.WEBHOOK]
    for webhook, process, name in zip(
        (*webhooks, *of_pods),
        (CONTROLLER, CONTROLLER, CONTROLLER, INJECTOR, INJECTOR),
        (NOTEBOOKS, STATEFULSETS, self_check.SELF_CHECK, PODS, self_check.SELF_CHECK),
        strict=True,
    ):
        assert webhook["clientConfig"] == {
            "service": {
                "name": process,
                "namespace": NAMESPACES[overlay],
                "path": f"/admit/{name}",
                "port": 443,
            }
        }


@installed
@each_process
def test_the_self_check_is_asked_about_its_own_dry_run_alone(
    overlays: Overlays, overlay: str, process: str
) -> None:
    name = {CONTROLLER: WEBHOOKS, INJECTOR: POD_WEBHOOKS}[process]
    webhook = one(overlays[overlay], "MutatingWebhookConfiguration", name)["webhooks"][-1]
    assert webhook["name"] == self_check.WEBHOOK
    (rule,) = webhook["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["coordination.k8s.io"], ["leases"])
    assert (rule["operations"], rule["scope"]) == (["CREATE"], "Namespaced")
    assert webhook["objectSelector"] == {"matchLabels": {self_check.LABEL: process}}
    assert webhook["namespaceSelector"] == {
        "matchLabels": {"kubernetes.io/metadata.name": NAMESPACES[overlay]}
    }
    # Closed: nobody waits for it, and only so the API server says why it could not ask.
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Fail", "None")
    assert "matchConditions" not in webhook  # which servers before 1.28 drop


@installed
def test_webhooks_never_stand_in_the_way(overlays: Overlays, overlay: str) -> None:
    for webhook in one(overlays[overlay], "MutatingWebhookConfiguration", WEBHOOKS)["webhooks"][:-1]:
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
    for webhook in one(overlays[overlay], "MutatingWebhookConfiguration", WEBHOOKS)["webhooks"][:-1]:
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


@installed
def test_only_pods_that_ask_wait_for_the_injector(overlays: Overlays, overlay: str) -> None:
    webhook, _ = one(overlays[overlay], "MutatingWebhookConfiguration", POD_WEBHOOKS)["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["sideEffects"] == "None"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert webhook["timeoutSeconds"] == 5
    (rule,) = webhook["rules"]
    assert (rule["operations"], rule["resources"], rule["scope"]) == (["CREATE"], ["pods"], "Namespaced")
    assert [condition["name"] for condition in webhook["matchConditions"]] == ["asks-for-gpus"]
    assert OPT_OUT in webhook["objectSelector"]["matchExpressions"]
    namespaces = webhook["namespaceSelector"]
    assert OPT_OUT in namespaces["matchExpressions"]
    if overlay == "standalone":
        (names,) = (
            each for each in namespaces["matchExpressions"] if each["key"].startswith("kubernetes.io/")
        )
        assert names["operator"] == "NotIn"
        assert {"kube-system", NAMESPACES[overlay]} <= set(names["values"])
    else:
        assert namespaces["matchLabels"] == {"app.kubernetes.io/part-of": "kubeflow-profile"}
        # Kubeflow's own namespace, where this runs, is no profile.


def test_the_standalone_namespace_is_restricted_and_left_alone(overlays: Overlays) -> None:
    labels = one(overlays["standalone"], "Namespace", "bitfusion-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["bitfusion.io/admission"] == "ignore"


@installed
def test_rights_name_everything(overlays: Overlays, overlay: str) -> None:
    granted = [right for process in PROCESSES for right in rules(overlays[overlay], process)]
    assert {right[4] for right in rules(overlays[overlay], INJECTOR) if right[0] == "cluster"} <= {
        "get",
        "patch",
    }
    for right in granted:
        assert "*" not in right
        assert right[4] not in ("escalate", "bind", "impersonate", "deletecollection")
    for role in of_kind(overlays[overlay], "ClusterRole"):
        assert not any("*" in part for rule in role.get("rules", []) for part in rule.values())
    for binding in of_kind(overlays[overlay], "ClusterRoleBinding") + of_kind(
        overlays[overlay], "RoleBinding"
    ):
        (subject,) = binding["subjects"]
        assert subject["name"] in PROCESSES
        assert binding["roleRef"]["name"].startswith(subject["name"])
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", NAMESPACES[overlay])


def test_with_cert_manager_no_secret_and_no_webhook_configuration_may_be_touched(overlays: Overlays) -> None:
    def resources(overlay: str, process: str) -> set[str]:
        return {resource for _, _, resource, _, _ in rules(overlays[overlay], process)}

    touched = {"secrets", "mutatingwebhookconfigurations"}
    assert resources("kubeflow", CONTROLLER) - resources("cert-manager", CONTROLLER) == touched
    assert resources("kubeflow", INJECTOR) - resources("cert-manager", INJECTOR) == touched
    assert resources("cert-manager", INJECTOR) == {"notebooks", "leases", "events"}
    # of a Lease it keeps none, and may change none
    assert [right for right in rules(overlays["cert-manager"], INJECTOR) if right[0] == "namespace"] == [
        ("namespace", "coordination.k8s.io", "leases", "", "create"),
        ("namespace", "", "events", "", "create"),
    ]


@pytest.mark.parametrize("overlay", ["kubeflow", "cert-manager"])
def test_kubeflows_roles_take_ours_up(overlays: Overlays, overlay: str) -> None:
    aggregate = "rbac.authorization.kubeflow.org/aggregate-to-"
    for role, into in (
        ("admin", {"kubeflow-admin"}),
        ("edit", {"kubeflow-edit"}),
        ("view", {"kubeflow-view"}),
    ):
        labels = one(overlays[overlay], "ClusterRole", f"kubeflow-bitfusion-{role}")["metadata"]["labels"]
        assert {key[len(aggregate) :] for key in labels if key.startswith(aggregate)} == into
    # Not by aggregation, which would make the role again while it is being deleted.
    admin, edit = (
        one(overlays[overlay], "ClusterRole", f"kubeflow-bitfusion-{role}") for role in ("admin", "edit")
    )
    assert admin["rules"] == edit["rules"]
    assert "aggregationRule" not in admin


def test_cert_managers_objects_name_the_service_and_each_other(overlays: Overlays) -> None:
    objects = overlays["cert-manager"]
    authority = one(objects, "Certificate")["spec"]
    serving = one(objects, "Certificate", f"{CONTROLLER}-serving")["spec"]
    assert serving["dnsNames"] == [f"{CONTROLLER}.kubeflow.svc", f"{CONTROLLER}.kubeflow.svc.cluster.local"]
    assert one(objects, "Issuer", authority["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    issuer = one(objects, "Issuer", serving["issuerRef"]["name"])["spec"]
    assert issuer == {"ca": {"secretName": authority["secretName"]}}
    for name in (WEBHOOKS, POD_WEBHOOKS):
        annotations = one(objects, "MutatingWebhookConfiguration", name)["metadata"]["annotations"]
        assert annotations["cert-manager.io/inject-ca-from"] == f"kubeflow/{CONTROLLER}"
    injectors = one(objects, "Certificate", f"{INJECTOR}-serving")["spec"]
    assert injectors["issuerRef"] == serving["issuerRef"]
    assert injectors["dnsNames"] == [f"{INJECTOR}.kubeflow.svc", f"{INJECTOR}.kubeflow.svc.cluster.local"]


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
