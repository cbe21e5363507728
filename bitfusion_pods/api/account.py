"""Which cluster this pod is in and who it is there, from what the kubelet puts into every pod."""

from __future__ import annotations

import os

from bitfusion_client.errors import ClusterUnusable, PrintedError
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
FOLDER_VARIABLE = "BITFUSION_PODS_ACCOUNT"
"""Another folder with `token`, `ca.crt` and `namespace`: for a pod whose own account is mounted elsewhere."""

LONGEST_TOKEN = 1 << 16
NO_TOKEN = (
    "this pod may not use the cluster's API, which is needed to create GPU pods: {}. What to do: ask your "
    "administrator for a service account whose token is mounted (automountServiceAccountToken)"
)
NO_CLUSTER = (
    "this is not a pod of a Kubernetes cluster. What to do: run it in one, such as a Kubeflow notebook"
)


@dataclass(frozen=True, slots=True)
class Account:
    """A pod's access to its cluster.

    Attributes:
        host: Name or address of the API server.
        port: Its port.
        folder: With `token`, `ca.crt` and `namespace`; the kubelet renews the token there.
    """

    host: str
    port: int
    folder: str

    @property
    def authority(self) -> str:
        """The file of the certificates that the server's is checked against."""
        return os.path.join(self.folder, "ca.crt")

    def token(self) -> str:
        """The token as it is now. Raises ClusterUnusable."""
        return self._read("token")

    def namespace(self) -> str:
        """The pod's. Raises ClusterUnusable."""
        return self._read("namespace")

    def _read(self, name: str) -> str:
        path = os.path.join(self.folder, name)
        try:
            with open(path, encoding="ascii") as file:
                return file.read(LONGEST_TOKEN).strip()
        except (OSError, ValueError) as error:
            raise unusable(path, getattr(error, "strerror", None) or "it is not text") from None


def unusable(path: str, why: str) -> PrintedError:
    """Of a file that every pod with an account has."""
    return ClusterUnusable.from_text(None, NO_TOKEN.format(f"{path}: {why}"))


def this_account(environ: Mapping[str, str]) -> Account:
    """That of the pod in which this runs. Raises ClusterUnusable where there is none."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ClusterUnusable.from_text(None, NO_CLUSTER)
    return Account(host, int(port) if port.isdecimal() else 443, environ.get(FOLDER_VARIABLE) or FOLDER)
