"""Names of the identity controller: labels and annotations of namespaces and Secrets, its own name."""

from __future__ import annotations

DEFAULT_NAME = "bitfusion-identity"

# Of a namespace.
LABEL_IDENTITY = "bitfusion.io/identity"
OPTED_IN = "true"
LIMIT_PREFIX = "bitfusion.io/limit-"

# Of a Secret that is ours.
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_PART_OF = "app.kubernetes.io/part-of"
PART_OF = "kubeflow-bitfusion"
ANNOTATION_TOKEN = "bitfusion.io/identity-token"  # its id, which is no secret
ANNOTATION_WANTED = "bitfusion.io/identity-wanted"  # what it was made of: the pool's files and the limits
ANNOTATION_DATA = "bitfusion.io/identity-data"  # the hash of what was written
ANNOTATION_RENEW = "bitfusion.io/identity-renew"
ANNOTATION_EXPIRES = "bitfusion.io/identity-expires"

ROLE_FOLDERS = {"kubeflow": "manifests/namespace/kubeflow"}  # by the controller's own namespace
OTHER_ROLE_FOLDER = "manifests/namespace/standalone"


def role_command(namespace: str, own_namespace: str) -> str:
    """What an administrator types to let the controller keep one namespace's Secret."""
    folder = ROLE_FOLDERS.get(own_namespace, OTHER_ROLE_FOLDER)
    return f"kubectl apply --namespace {namespace} -k {folder}"
