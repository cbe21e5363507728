"""The command in a real cluster: the form's Job, and the doctor, who finds each fault that is planted."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from bitfusion_cluster.api.errors import ApiFailure
from bitfusion_cluster.api.events import about, event_object
from bitfusion_cluster.certificates.authority import new_authority
from bitfusion_cluster.doctor.finding import FAIL, OK, WARN, Finding
from bitfusion_cluster.doctor.seen import seen_by
from bitfusion_device_plugin.identity.events import no_token as no_token_said
from kubeflow_bitfusion.cli import main
from kubeflow_bitfusion.doctor_command import look
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.guide import DOCS, Reader, blocks
from tests.jupyter_ext.spawner.kubeflow_manifests import write_manifests
from tests.kubeflow_bitfusion.installed_cluster import (
    IMAGE,
    NODE,
    RUNS,
    SIZES,
    SYSTEM,
    Platform,
    all_is_well,
    offer,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

GROUP = "/apis/admissionregistration.k8s.io/v1"
PODS_HOOK = f"{GROUP}/mutatingwebhookconfigurations/bitfusion-pod-injection"
NOTEBOOKS_HOOK = f"{GROUP}/mutatingwebhookconfigurations/bitfusion-notebook-admission"
MAPS = f"/api/v1/namespaces/{SYSTEM}/configmaps"


@pytest.fixture(scope="module")
def platform(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Tests change it, and leave it as it was."""
    with all_is_well(cluster, tmp_path_factory.mktemp("platform")) as found:
        (found.folder / "sizes.yaml").write_text(SIZES)
        yield found


def form(platform: Platform, *options: str, account: str = "bitfusion-form") -> int:
    """As the Job runs it, with the rights of its account."""
    return main(["form", *options, f"--kubeconfig={platform.account(account)}"])


def apply(platform: Platform, *options: str) -> int:
    return form(platform, str(platform.folder / "sizes.yaml"), "--apply", f"--image={IMAGE}", *options)


def examined(platform: Platform) -> list[Finding]:
    return seen_as(platform)


def seen_as(platform: Platform, account: str = "") -> list[Finding]:
    """As an admin, or with the rights of one of our accounts."""
    api = platform.cluster.api(platform.account(account) if account else None)
    try:
        return list(look(seen_by(api, SYSTEM)))
    finally:
        api.close()


# The form


def test_the_job_puts_sizes_and_image_in_and_gives_back_what_was_before(
    platform: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    before = platform.form()
    assert apply(platform) == 0
    assert "now has them and shows them within two minutes" in capsys.readouterr().out
    written = platform.client.get(platform.form_path)
    assert IMAGE in platform.form()
    assert "gpu-3x100" in platform.form()
    assert apply(platform) == 0
    assert "already has them" in capsys.readouterr().out
    version = platform.client.get(platform.form_path)["metadata"]["resourceVersion"]
    assert version == written["metadata"]["resourceVersion"]
    assert form(platform, "--give-back") == 0
    assert (platform.form(), platform.kept()) == (before, None)
    assert form(platform, "--give-back") == 0
    assert "has no Bitfusion entries" in capsys.readouterr().out


def test_an_admins_later_change_stays(platform: Platform) -> None:
    before = platform.form()
    apply(platform)
    try:
        platform.write_form(platform.form().replace("mount: /home/jovyan", "mount: /home/user"))
        form(platform, "--give-back")
        assert "mount: /home/user" in platform.form()
        assert "bitfusion" not in platform.form()
    finally:
        platform.write_form(before)


def test_two_writers_do_not_undo_each_other(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    from bitfusion_cluster.api.client import KubernetesApi

    before, merge, times = platform.form(), KubernetesApi.merge, []

    def late(self: KubernetesApi, path: str, body: Any, *more: Any) -> dict[str, Any]:
        times.append(path)
        if len(times) == 1:  # somebody is faster
            platform.write_form(platform.form().replace("mount: /home/jovyan", "mount: /home/user"))
        return merge(self, path, body, *more)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(KubernetesApi, "merge", late)
            assert apply(platform) == 0
        assert len(times) == 2
        assert "mount: /home/user" in platform.form()
        assert IMAGE in platform.form()
    finally:
        form(platform, "--give-back")
        platform.write_form(before)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("only the key spawner_ui_config.yaml", {"data": {"other": "x"}}),
        ("only the annotation bitfusion.io/form-before", {"metadata": {"annotations": {"other": "x"}}}),
        ("not change labels", {"metadata": {"labels": {"other": "x"}}}),
    ],
)
def test_the_policy_holds_the_account_to_the_forms_file(
    platform: Platform, what: str, change: Object
) -> None:
    api = platform.cluster.api(platform.account("bitfusion-form"))
    with pytest.raises(ApiFailure, match=what):
        api.merge(platform.form_path, change)
    with pytest.raises(ApiFailure, match="change only ConfigMaps jupyter-web-app-config…"):
        api.merge(f"{MAPS}/bitfusion-clients", {"data": {"spawner_ui_config.yaml": ""}})
    with pytest.raises(ApiFailure, match="cannot create resource"):
        api.create(MAPS, {"metadata": {"name": "jupyter-web-app-config-x"}})
    with pytest.raises(ApiFailure, match="cannot get resource"):
        api.get(f"/api/v1/namespaces/{SYSTEM}/secrets/bitfusion-injector-ca")
    api.close()


def test_no_form_is_told(platform: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    admin = f"--kubeconfig={platform.cluster.kubeconfig}"
    assert main(["form", "--give-back", "--namespace=ada", admin]) == 1
    assert "There is no Kubeflow notebook form in namespace ada" in capsys.readouterr().err
    assert main(["form", "--give-back", "--namespace=ada", "--if-there", admin]) == 0
    assert "Nothing was done." in capsys.readouterr().out


def test_a_size_that_no_rule_serves_stops_the_job(
    platform: Platform, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = platform.form()
    (tmp_path / "sizes.yaml").write_text("sizes: [{label: Half, share: 50}]\n")
    (tmp_path / "pods.yaml").write_text(
        platform.client.get(f"{MAPS}/bitfusion-gpu-pods")["data"]["pods.yaml"]
    )
    assert form(platform, f"{tmp_path}/sizes.yaml", "--apply", f"--pods={tmp_path}/pods.yaml") == 1
    assert "is a size that no rule in pods.yaml serves" in capsys.readouterr().err
    assert platform.form() == before
    (tmp_path / "sizes.yaml").write_text("# none\n")
    assert form(platform, f"{tmp_path}/sizes.yaml", "--apply", f"--pods={tmp_path}/pods.yaml") == 0
    assert "stays as Kubeflow has it" in capsys.readouterr().out


def test_the_pods_are_let_in_where_restricted_is_enforced(platform: Platform) -> None:
    for each in platform.objects:
        if each["kind"] in RUNS:
            done = platform.cluster.try_kubectl(
                "create", "--dry-run=server", "-f", "-", input=json.dumps(each)
            )
            assert (done.returncode, done.stderr) == (0, ""), each["metadata"]["name"]


@pytest.fixture
def reader(platform: Platform, tmp_path: Path) -> Reader:
    found = Reader(platform.cluster, tmp_path)
    (found.folder / "sizes.yaml").write_text(SIZES)
    return found


@pytest.mark.runs("docs/how-to/form-job.md")
def test_the_forms_page(platform: Platform, reader: Reader) -> None:
    again, by_hand, back, file, hub = blocks(page=DOCS / "how-to" / "form-job.md")
    before = platform.form()
    reader.run(again)
    reader.run(by_hand)
    reader.run(back)
    assert platform.form() == before
    write_manifests(reader.folder, "1.10")
    reader.run(file)
    assert "configMapGenerator" in (reader.folder / "bitfusion-form" / "kustomization.yaml").read_text()
    # The chart of JupyterHub is somebody else's: what it would be given is looked at.
    (reader.bridge / "helm").write_text('#!/bin/sh\necho "$*" > "$BRIDGE/helm.log"\n')
    (reader.bridge / "helm").chmod(0o755)
    reader.run(hub)
    assert (reader.bridge / "helm.log").read_text().startswith("upgrade hub jupyterhub/jupyterhub --values ")
    values = yaml.safe_load((reader.folder / "profiles.yaml").read_text())
    assert [each["display_name"] for each in values["singleuser"]["profileList"]][-1] == "GPU × 3"


# The doctor


@pytest.fixture(scope="module")
def well(platform: Platform) -> Iterator[Platform]:
    """With the form's sizes in it."""
    apply(platform)
    yield platform
    form(platform, "--give-back")


def test_all_is_well(well: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    assert [each for each in examined(well) if each.state != OK] == []
    kubeconfig = f"--kubeconfig={well.cluster.kubeconfig}"
    assert main(["doctor", kubeconfig]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "Nothing to do" in out
    assert main(["doctor", kubeconfig, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert {each["check"] for each in data["findings"]} >= {"Kubernetes", "injector call", "form", "GPUs"}


def test_the_doctors_own_account_sees_all_but_the_trial(well: Platform) -> None:
    (only,) = (each for each in seen_as(well, "bitfusion-doctor") if each.state != OK)
    assert (only.check, only.state) == ("trial notebook", WARN)
    assert only.seen == "not checked: bitfusion-doctor may not create pods in namespace ada"


def test_missing_rights_are_told(well: Platform) -> None:
    rest = [each for each in seen_as(well, "default") if each.state != OK]
    assert {each.check for each in rest} == {"not checked"}
    assert any("namespaces: default may not list namespaces" in each.seen for each in rest)
    assert all("components/doctor" in each.todo for each in rest)


class Fault(NamedTuple):
    """What is planted, and how the doctor must find it: the check, its state, words of what to do."""

    plant: Callable[[Platform], Callable[[], object]]
    check: str
    state: str
    seen: str
    todo: str
    is_healed: bool = False
    """Whether a program of ours that runs puts it right again within seconds."""


def changed(path: str, *operations: Object) -> Callable[[Platform], Callable[[], object]]:
    """A JSON patch, and the object back as it was."""

    def plant(platform: Platform) -> Callable[[], object]:
        back = platform.restored(path)
        api = platform.cluster.api()
        api.patch(path, operations)
        api.close()
        return back

    return plant


def deleted(*paths: str) -> Callable[[Platform], Callable[[], object]]:
    def plant(platform: Platform) -> Callable[[], object]:
        now = [(path, platform.client.get(path)) for path in paths]
        for path in paths:
            platform.client.delete(path)

        def back() -> None:
            for path, before in now:
                for name in ("resourceVersion", "uid"):
                    before["metadata"].pop(name)
                platform.client.create(path.rpartition("/")[0], before)

        return back

    return plant


def file(name: str, key: str, text: str) -> Callable[[Platform], Callable[[], object]]:
    """Another text in one of our ConfigMaps."""

    def plant(platform: Platform) -> Callable[[], object]:
        path = f"{MAPS}/{name}"
        before = platform.client.get(path)["data"]
        platform.client.merge(path, {"data": {key: text}})
        return lambda: platform.client.merge(path, {"data": before})

    return plant


def made(collection: str, body: Object) -> Callable[[Platform], Callable[[], object]]:
    def plant(platform: Platform) -> Callable[[], object]:
        platform.client.create(collection, body)
        return lambda: platform.client.delete(f"{collection}/{body['metadata']['name']}")

    return plant


def merged(path: str, change: Object, back: Object) -> Callable[[Platform], Callable[[], object]]:
    def plant(platform: Platform) -> Callable[[], object]:
        platform.client.merge(path, change)
        return lambda: platform.client.merge(path, back)

    return plant


def without_gpus(platform: Platform) -> Callable[[], object]:
    offer(platform.cluster, {"nvidia.com/gpu": "0"})
    return lambda: offer(platform.cluster, {"nvidia.com/gpu": "4"})


def no_image(platform: Platform) -> Callable[[], object]:
    """The pods of the injector as a kubelet leaves them that cannot pull."""
    selector = "app.kubernetes.io/name=bitfusion-injector"
    pods = f"/api/v1/namespaces/{SYSTEM}/pods"
    found = platform.client.get(pods, labelSelector=selector)["items"]

    def set_ready(ready: bool) -> None:
        state = {"running": {}} if ready else {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}
        container = {"name": "injector", "ready": ready, "image": "", "imageID": "", "restartCount": 0}
        condition = {"type": "Ready", "status": str(ready)}
        status = {"conditions": [condition], "containerStatuses": [{**container, "state": state}]}
        for pod in found:
            name = pod["metadata"]["name"]
            patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
            platform.cluster.kubectl("patch", "pod", "-n", SYSTEM, name, *patch)
        deployment = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/bitfusion-injector"
        wanted = 2 if ready else 0
        wait_until(
            lambda: platform.client.get(deployment)["status"].get("readyReplicas", 0) == wanted, limit_s=20
        )

    set_ready(False)
    return lambda: set_ready(True)


def ended_certificate(platform: Platform) -> Callable[[], object]:
    old = new_authority("old", datetime.now(timezone.utc) - timedelta(days=365 * 40)).certificate
    value = base64.b64encode(old).decode()
    where = "/webhooks/{}/clientConfig/caBundle"
    return changed(
        NOTEBOOKS_HOOK, *({"op": "add", "path": where.format(at), "value": value} for at in range(3))
    )(platform)


def no_sizes_in_the_form(platform: Platform) -> Callable[[], object]:
    form(platform, "--give-back")
    return lambda: apply(platform)


def no_token(platform: Platform) -> Callable[[], object]:
    """As `bitfusion-identity` tells it."""
    uid = platform.client.get(ADA)["metadata"]["uid"]
    said = no_token_said("none of the servers responded")
    event = event_object(about("v1", "Namespace", "ada", "ada", uid), said, "bitfusion-identity")
    backs = [made(f"{ADA}/events", event)(platform), right_without_policy(platform)]
    return lambda: [back() for back in backs]


def right_without_policy(platform: Platform) -> Callable[[], object]:
    """As part of the component `profiles` alone would be."""
    template: Object = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "i", "image": "i"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    backs = [
        made(path, body)(platform)
        for path, body in (
            (
                f"/apis/apps/v1/namespaces/{SYSTEM}/deployments",
                {"metadata": {"name": "bitfusion-identity"}, "spec": spec},
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles",
                {"metadata": {"name": "bitfusion-identity-profiles"}, "rules": []},
            ),
        )
    ]
    return lambda: [back() for back in backs]


def replaced(path: str, value: object) -> Object:
    return {"op": "replace", "path": path, "value": value}


ADA, BEN = "/api/v1/namespaces/ada", "/api/v1/namespaces/ben"
ENFORCE = "pod-security.kubernetes.io/enforce"
CARD = {"nvidia.com/gpu.present": "true"}
POLICY = f"{GROUP}/validatingadmissionpolicies/bitfusion-injector-account"
BINDING = f"{GROUP}/validatingadmissionpolicybindings/bitfusion-injector-account"
EDITOR = "/apis/rbac.authorization.k8s.io/v1/namespaces/ada/rolebindings/default-editor"
CLOSED = {"metadata": {"name": "deny"}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}}
QUOTA = {"metadata": {"name": "kf-resource-quota"}, "spec": {"hard": {"nvidia.com/gpu": "4"}}}
FULL = {"metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
TAINT = {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}

FAULTS = {
    "the image cannot be pulled": Fault(
        no_image, "injector", FAIL, "0 of 2 ready: ImagePullBackOff", "make images"
    ),
    "the webhooks are gone": Fault(
        deleted(PODS_HOOK), "injector webhooks", FAIL, "is not there", "apply the installation again"
    ),
    "the injector fails open": Fault(
        changed(PODS_HOOK, replaced("/webhooks/0/failurePolicy", "Ignore")),
        "injector webhooks",
        WARN,
        "failurePolicy of pods.bitfusion.io is Ignore, not Fail",
        "apply the installation again",
    ),
    "every pod is asked about": Fault(
        changed(PODS_HOOK, {"op": "remove", "path": "/webhooks/0/matchConditions"}),
        "injector webhooks",
        FAIL,
        "every pod waits for the injector",
        "without-match-conditions",
    ),
    "no CA": Fault(
        changed(
            NOTEBOOKS_HOOK,
            *({"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": ""} for at in range(3)),
        ),
        "controller certificate",
        FAIL,
        "caBundle is empty",
        "logs",
        is_healed=True,
    ),
    "the CA has ended": Fault(
        ended_certificate, "controller certificate", FAIL, "its CA ended on", "logs", is_healed=True
    ),
    "the port is closed": Fault(
        changed(PODS_HOOK, replaced("/webhooks/1/clientConfig/service/port", 444)),
        "injector call",
        FAIL,
        "does not reach it: .*444",
        "let the API server connect to their TCP port 8443",
    ),
    "the self-check is gone": Fault(
        changed(PODS_HOOK, {"op": "remove", "path": "/webhooks/1"}),
        "injector call",
        WARN,
        "does not call it",
        "apply the installation again",
    ),
    "a policy is not bound": Fault(
        deleted(BINDING),
        "policies",
        FAIL,
        "not bound, so they have no effect: bitfusion-injector-account",
        "apply",
    ),
    "a policy is missing": Fault(
        deleted(POLICY),
        "policies",
        WARN,
        "missing: bitfusion-injector-account",
        "components/restrict-account",
    ),
    "no client": Fault(
        file("bitfusion-clients", "clients.yaml", "[]"), "engine", FAIL, "names no client", "apply it again"
    ),
    "a wrong rule": Fault(
        file("bitfusion-gpu-pods", "pods.yaml", "rules: 1"), "engine", FAIL, "rules", "apply it again"
    ),
    "no GPU": Fault(without_gpus, "GPUs", FAIL, "no node offers nvidia.com/gpu", "device plugin"),
    "a taint": Fault(
        merged(NODE, {"spec": TAINT}, {"spec": {"taints": None}}),
        "GPUs",
        FAIL,
        "taint team:NoSchedule is not tolerated by rule whole",
        "add the toleration",
    ),
    "a cordoned node": Fault(
        merged(NODE, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None, "taints": None}}),
        "GPUs",
        FAIL,
        "cordoned",
        "uncordon",
    ),
    "no driver": Fault(
        made("/api/v1/nodes", {"metadata": {"name": "gpu-2", "labels": CARD}}),
        "GPUs",
        WARN,
        "gpu-2 has a card and offers no nvidia.com/gpu",
        "device plugin",
    ),
    "a pool without units": Fault(
        file("bitfusion-clients", "clients.yaml", "- {os: '*', version: '*', kind: stand-in, image: i}"),
        "pool",
        FAIL,
        "no node offers bitfusion.io/gpu",
        "manifests/device-plugin/kubeflow",
    ),
    "a quota by a wrong key": Fault(
        made(f"{ADA}/resourcequotas", QUOTA),
        "quotas",
        WARN,
        "ada/kf-resource-quota does not limit GPUs by nvidia.com/gpu",
        "write requests.nvidia.com/gpu: the Profile ada",
    ),
    "a full quota": Fault(
        made(f"{BEN}/resourcequotas", FULL), "trial notebook", FAIL, "exceeded quota: full", "describe quota"
    ),
    "nobody is served": Fault(
        changed(PODS_HOOK, replaced("/webhooks/0/namespaceSelector", {"matchLabels": {"no": "body"}})),
        "namespaces",
        FAIL,
        "none is served",
        "create a Profile, or label a namespace",
    ),
    "one profile is left out": Fault(
        changed(
            PODS_HOOK,
            replaced("/webhooks/0/namespaceSelector/matchLabels/kubernetes.io~1metadata.name", "ada")
            | {"op": "add"},
        ),
        "namespaces",
        WARN,
        "profiles that are not served: ben",
        "label",
    ),
    "Pod Security": Fault(
        merged(
            ADA, {"metadata": {"labels": {ENFORCE: "restricted"}}}, {"metadata": {"labels": {ENFORCE: None}}}
        ),
        "trial notebook",
        FAIL,
        'refused in ada: .*violates PodSecurity "restricted:latest"',
        f"kubectl label namespace ada {ENFORCE}=baseline",
    ),
    "no right to make pods": Fault(
        deleted(EDITOR),
        "rights of notebooks",
        FAIL,
        "default-editor may not create pods.* in ada",
        "kubeflow-edit",
    ),
    "a closed network": Fault(
        made("/apis/networking.k8s.io/v1/namespaces/ben/networkpolicies", CLOSED),
        "network",
        WARN,
        "ben: deny closes TCP port 8778 out of notebooks",
        "egress rule for notebooks: TCP port 8778",
    ),
    "no sizes in the form": Fault(
        no_sizes_in_the_form, "form", FAIL, "offers no Bitfusion size", "form sizes.yaml --apply"
    ),
    "another list in the form": Fault(
        file("bitfusion-notebook-sizes", "sizes.yaml", "sizes: [{label: GPU}, {label: Two, number: 2}]"),
        "form",
        WARN,
        "it does not offer Two and offers GPU × 3",
        "form sizes.yaml --apply",
    ),
    "a size without a rule": Fault(
        file("bitfusion-notebook-sizes", "sizes.yaml", "sizes: [{label: Half, share: 50}]"),
        "sizes",
        FAIL,
        "no rule of pods.yaml serves Half",
        "add a rule",
    ),
    "a wrong list of sizes": Fault(
        file("bitfusion-notebook-sizes", "sizes.yaml", "sizes: [{label: Half, share: 500}]"),
        "sizes",
        FAIL,
        'share "500" must be',
        "correct ConfigMap bitfusion-notebook-sizes",
    ),
    "no token of the pool": Fault(
        no_token,
        "identity",
        FAIL,
        "no token for ada: .*none of the servers",
        "logs deployment/bitfusion-identity",
    ),
    "a right without its policy": Fault(
        right_without_policy, "identity", FAIL, "may create Secrets in every namespace", "components/profiles"
    ),
}


@contextmanager
def planted(platform: Platform, fault: Fault) -> Iterator[None]:
    back = fault.plant(platform)
    try:
        yield
    finally:
        back()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_its_remedy_named(well: Platform, name: str) -> None:
    fault = FAULTS[name]

    def fits() -> list[Finding]:
        if fault.is_healed:
            fault.plant(well)
        found = examined(well)
        return [each for each in found if each.check == fault.check and re.search(fault.seen, each.seen)]

    with planted(well, fault):
        # the API server itself learns of another webhook or policy a moment later
        (found,) = wait_until(fits, "it is found", 10)
    assert found.state == fault.state
    assert fault.todo in found.todo


def test_there_are_enough_faults_and_all_is_well_again(well: Platform) -> None:
    assert len(FAULTS) >= 15
    wait_until(lambda: all(each.state == OK for each in examined(well)), "all is well again", 10)


@pytest.mark.runs("docs/how-to/doctor.md")
def test_the_doctors_page(well: Platform, reader: Reader) -> None:
    table, elsewhere, script = blocks(page=DOCS / "how-to" / "doctor.md")
    with ExitStack() as faults:
        for name in ("the image cannot be pulled", "a taint", "a quota by a wrong key"):
            faults.enter_context(planted(well, FAULTS[name]))
        reader.run(table, fails=True)
        assert reader.run(script, fails=True).count("\n") == 3
    other = reader.folder / ".kube" / "other"
    other.parent.mkdir()
    other.write_text(well.cluster.kubeconfig.read_text())
    said = reader.run(elsewhere, fails=True)
    assert "(namespace bitfusion-system).\n" in said
