"""Where the checks look: paths of the API, and the names of our own objects as the manifests have them."""

from __future__ import annotations

from bitfusion_cluster.api.paths import config_map_path, webhook_configuration_path

CONTROLLER, INJECTOR, IDENTITY = "bitfusion-notebook-controller", "bitfusion-injector", "bitfusion-identity"
POD_WEBHOOKS = webhook_configuration_path("bitfusion-pod-injection")
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
NETWORK_POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"
KUBEFLOW_GROUP = "/apis/kubeflow.org/v1"
PART_OF = "app.kubernetes.io/part-of"
OURS = "kubeflow-bitfusion"
PROFILE = "kubeflow-profile"


def deployments(namespace: str) -> str:
    """The Deployments of a namespace."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


def daemon_sets() -> str:
    """The DaemonSets of all namespaces: the device plugin has one of its own."""
    return "/apis/apps/v1/daemonsets"


def pods(namespace: str) -> str:
    """The pods of a namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def clients(namespace: str) -> str:
    """The map of clients."""
    return config_map_path(namespace, "bitfusion-clients")


def gpu_pod_settings(namespace: str) -> str:
    """The settings of GPU pods."""
    return config_map_path(namespace, "bitfusion-gpu-pods")


def sizes(namespace: str) -> str:
    """The list of sizes."""
    return config_map_path(namespace, "bitfusion-notebook-sizes")
