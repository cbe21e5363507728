"""`bitfusion health`: what this pod may do in the cluster, and whether a GPU pod would be admitted."""

from __future__ import annotations

import os
import sys

from bitfusion_client.command.health_report import Report
from bitfusion_client.command.log_output import write_text
from bitfusion_client.errors import BitfusionError, ClusterUnusable, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.gpu_pods.size_rules import gpu_resources
from bitfusion_client.kubernetes.raw_objects import labels_of, mapping
from bitfusion_client.pod import pod_contract
from bitfusion_pods.api.client import Api, ApiError, path, pods
from bitfusion_pods.command.asking import in_words, seen_gpus
from bitfusion_pods.command.keys import make_keys
from bitfusion_pods.command.making import dry_pod, is_added_twice
from bitfusion_pods.command.notebook_pod import read_notebook_pod
from bitfusion_pods.command.where import here
from bitfusion_pods.places import network_policies
from bitfusion_pods.pod.secret import agent_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_pods.command.notebook_pod import NotebookPod
    from bitfusion_pods.command.where import Where

NEEDED = (
    *(("create", "", "pods"), ("delete", "", "pods"), ("get", "", "pods"), ("list", "", "pods")),
    *(("watch", "", "pods"), ("create", "", "secrets")),
)
WANTED = (
    (("get", "apps", "statefulsets"), "PodDefaults and sidecars of the running pod are copied"),
    (("get", "", "persistentvolumeclaims"), "every volume is treated as one that only this node can mount"),
    (("list", "", "events"), "fewer reasons can be shown for a wait"),
)
"""Without these it works; what is less good then."""
OF_RIGHTS, OF_POD, OF_NETWORK, OF_GPUS = "Rights", "GPU pod", "Network", "GPUs"
CONNECT = "--connect"
OUT, INTO = "out of this pod to GPU pods", "into GPU pods from this pod"
OPEN_OUT = (
    "ask your administrator for an egress rule to pods with the label bitfusion.io/gpu-pod-of, as in "
    "docs/how-to/jupyterhub-gpu-pods.md"
)
OPEN_INTO = (
    "ask your administrator to apply in this namespace "
    "manifests/components/gpu-pods-network-policy/network-policy.yaml"
)


def health(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Reports for the cluster and for localhost, on stdout; status 1 if a check is FATAL.

    Raises:
        BitfusionError: There is no cluster; the report for localhost is written first.
        Interrupted: A signal has ended the trial of a pod.
    """
    if unknown := [word for word in args if word != CONNECT]:
        raise UsageError(f'health takes only {CONNECT}, not "{unknown[0]}"')
    reports, problem = [], None
    try:
        where = here(environ)
        reports.append(_cluster(where, environ, tries=bool(args)))
    except BitfusionError as error:
        problem = error
    reports.append(_machine())
    for report in reports:
        write_text(1, report.text())
    if problem is not None:
        raise problem
    return 1 if any(report.totals["FATAL"] for report in reports) else 0


def _cluster(where: Where, environ: Mapping[str, str], *, tries: bool) -> Report:
    report = Report(f"Health report for server: {where.account.host}:{where.account.port}")
    api = Api(where.account)
    try:
        report.group(OF_RIGHTS)
        if not report.check("Check API server", lambda: _version(api)):
            return report
        for right in NEEDED:
            _check_right(report, api, where, right, "")
        for right, without in WANTED:
            _check_right(report, api, where, right, without)
        notebook = _check_pod(report, api, where)
        closed = "" if notebook is None else _check_network(report, api, where, notebook)
        _check_gpus(report, api, where)
        if tries and notebook is not None:
            from bitfusion_pods.command.trial_pod import try_pod

            try:
                try_pod(report, api, where, notebook, environ, closed)
            except BitfusionError as error:
                report.add("FATAL", f"Check trial: {error}")
    finally:
        api.close()
    return report


def _version(api: Api) -> str:
    with in_words():
        return str(api.get("/version").get("gitVersion", ""))[:40]


def _check_right(report: Report, api: Api, where: Where, right: tuple[str, str, str], without: str) -> None:
    verb, group, resource = right
    spec = {
        "resourceAttributes": {
            "namespace": where.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
        }
    }
    words = f"Check right to {verb} {resource} in {where.namespace}"
    try:
        with in_words():
            answer = api.create(
                path("apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"), {"spec": spec}
            )
        allowed = mapping(answer.get("status")).get("allowed") is True
    except ClusterUnusable as error:
        report.add("FATAL", f"{words}: {error}")
        return
    if allowed:
        report.add("PASS", words)
    elif without:
        report.add("MARGINAL", f"{words}: missing; {without}")
    else:
        report.add(
            "FATAL",
            f"{words}: missing. Ask your administrator for a role like Kubeflow's kubeflow-edit "
            "for the service account of this pod",
        )


def _check_pod(report: Report, api: Api, where: Where) -> NotebookPod | None:
    """The notebook's pod, of which a GPU pod may be made; None: it is one, or cannot be read."""
    report.group(OF_POD)
    found: list[NotebookPod] = []

    def read() -> str:
        with in_words():
            found.append(read_notebook_pod(api, where))
        return f"{where.namespace}/{where.name}, container {found[0].container}"

    if not report.check("Check this pod", read):
        return None

    def keys() -> str:
        make_keys(where.folder)
        return "openssl creates them for each run"

    def admitted() -> str:
        request, made = dry_pod(where, found[0])
        way = pods(where.namespace, dryRun="All")
        with in_words():
            try:
                pod = api.create(way, made)
            except ApiError as error:
                if not is_added_twice(error, found[0]):
                    raise
                pod = api.create(way, dry_pod(where, found[0], template_only=True)[1])
            secret = agent_secret(pod, found[0].pod, where.settings.to_text(), {})
            api.create(path("api", "v1", "namespaces", where.namespace, "secrets", dryRun="All"), secret)
        return f"a pod with {request.describe()} would be admitted"

    if pod_contract.LABEL_GPU_POD_OF in labels_of(found[0].pod):
        report.add("SKIPPED", "Check a GPU pod: this pod is one")
        return None
    report.check("Check keys and certificates", keys)
    report.check("Check a GPU pod", admitted)
    return found[0]


def _check_network(report: Report, api: Api, where: Where, notebook: NotebookPod) -> str:
    """What NetworkPolicies say against the connection to a GPU pod; empty: nothing, as far as is known."""
    report.group(OF_NETWORK)
    way = path("apis", "networking.k8s.io", "v1", "namespaces", where.namespace, "networkpolicies")
    try:
        with in_words():
            found = api.find_readable(way)
        gpu_pod = dry_pod(where, notebook)[1]
    except BitfusionError as error:
        report.add("SKIPPED", f"Check NetworkPolicies: {error}")
        return ""
    if found is None:
        report.add("SKIPPED", "Check NetworkPolicies: this account may not see them")
        return ""
    said, port = [], where.settings.port
    for which, of, peer, words, cure in (
        (network_policies.EGRESS, notebook.pod, gpu_pod, OUT, OPEN_OUT),
        (network_policies.INGRESS, gpu_pod, notebook.pod, INTO, OPEN_INTO),
    ):
        judged = network_policies.direction(found.get("items"), which, of, peer, where.namespace, port)
        text = f"Check NetworkPolicies {words}, TCP port {port}"
        if judged.is_open:
            report.add("PASS", f"{text}: " + (f"allowed by {judged.names}" if judged.policies else "none"))
        elif judged.is_open is None:
            report.add("INFO", f"{text}: depends on addresses or labels of namespaces, in {judged.names}")
        else:
            said.append(f"{judged.names} ({words})")
            report.add("MARGINAL", f"{text}: not allowed by {judged.names}. What to do: {cure}")
    return f"not allowed by {', '.join(said)}" if said else ""


def _check_gpus(report: Report, api: Api, where: Where) -> None:
    report.group(OF_GPUS)
    for rule in where.settings.rules:
        report.add("INFO", f"Size {rule.name}: {rule.describe()}")
    try:
        with in_words():
            found, _, sees_nodes = seen_gpus(api, (), gpu_resources(where.settings.rules))
    except ClusterUnusable as error:
        report.add("FATAL", f"Check nodes with GPUs: {error}")
        return
    if not sees_nodes:
        report.add("SKIPPED", "Check nodes with GPUs: this account may not see nodes")
        return
    count = sum(node.gpus or 0 for node in found)
    words = f"Check nodes with GPUs: {len(found)}, {count} GPUs"
    report.add("PASS" if count else "MARGINAL", words)


def _machine() -> Report:
    report = Report("Health report for localhost")
    report.group("Software Versions")
    version = ".".join(map(str, sys.version_info[:3]))
    report.add("PASS" if sys.version_info >= (3, 10) else "FATAL", f"Check Python version >= 3.10: {version}")
    report.group("System Resources")

    def private() -> str:
        folder = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
        if not os.access(folder, os.W_OK):
            raise ClusterUnusable("", f"{folder} cannot be written")
        return folder

    report.check("Check folder for sockets", private)
    return report
