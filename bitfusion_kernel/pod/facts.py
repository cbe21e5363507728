"""What the injector has written about the pod in which this process runs, in `/bitfusion/pod`.

Outside such pods, and that is almost everywhere, the answer costs one look at a folder that is not there.
"""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.pod import pod_contract
from bitfusion_client.pod.this_pod import this_pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.pod.this_pod import ThisPod
    from bitfusion_kernel.pod.budget import Budget

ROOT_VARIABLE = "BITFUSION_TEST_POD_ROOT"
"""Another folder than `/bitfusion`. Set by tests only: where a client is injected the folder is read-only."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod: what its files say, and the budget that is read from them; `root` is their folder."""

    files: ThisPod
    budget: Budget
    root: str


def pod_root(environ: Mapping[str, str]) -> str:
    """The folder that the injector mounts."""
    return environ.get(ROOT_VARIABLE) or pod_contract.CLIENT_FOLDER


def read_pod(environ: Mapping[str, str]) -> Pod | None:
    """The pod, or None where no client was injected.

    Raises:
        WrongSetting: The pod's budget cannot be read; an administrator must look at the injector.
    """
    root = pod_root(environ)
    files = this_pod(root)
    if files is None:
        return None
    from bitfusion_client.command.command_line import parse_request_text
    from bitfusion_client.errors import BitfusionError, WrongSetting
    from bitfusion_kernel.pod.budget import Budget

    try:
        request = parse_request_text(files.request)
    except BitfusionError as error:
        problem = f"is not a valid pod size ({error}); ask your administrator"
        path = os.path.join(root, pod_contract.POD_FOLDER, pod_contract.REQUEST_FILE)
        raise WrongSetting("the pod's budget", files.request, problem, path) from None
    return Pod(files, Budget(request, int(files.units) if _is_whole(files.units) else 0), root)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
