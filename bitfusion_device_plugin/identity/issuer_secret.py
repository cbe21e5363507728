"""Writes an issuer's files into the Secret that is there for them, for a pool in the cluster itself.

    python3 -m bitfusion_device_plugin.identity.issuer_secret FOLDER NAMESPACE SECRET

An init container of the pool that `manifests/engines/simulated` installs. The account needs one right, to
patch this one Secret; who made it, kubectl or helm, removes it.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bitfusion_client.errors import BitfusionError
from bitfusion_client.one_line import one_line
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import ApiFailure
from bitfusion_cluster.api.paths import secrets_path
from bitfusion_device_plugin.identity.sources import NoIdentity, read_files


def secret_data(folder: str) -> dict[str, Any]:
    """What the Secret gets. Raises NoIdentity where a file is missing."""
    files = read_files(folder)
    return {"data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}}


def main(arguments: Sequence[str], connect: Callable[[], KubernetesApi] = KubernetesApi.load) -> int:
    """Return the exit status: 1 with one line on stderr, and the kubelet tries again."""
    if len(arguments) != 3:
        print("usage: issuer_secret FOLDER NAMESPACE SECRET", file=sys.stderr)
        return 2
    folder, namespace, secret = arguments
    try:
        data = secret_data(folder)
        connect().merge(f"{secrets_path(namespace)}/{secret}", data)
    except (ApiFailure, BitfusionError, NoIdentity) as error:
        why = one_line(str(error), 400)
        print(f"The files of {folder} are not in Secret {namespace}/{secret}: {why}", file=sys.stderr)
        return 1
    print(f"The files of {folder} are in Secret {namespace}/{secret}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
