"""Where this command runs: the notebook's pod, what the admin has decided, and what the notebook may hold."""

from __future__ import annotations

import os

from bitfusion_client.errors import BitfusionError, ClusterUnusable, WrongSetting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.gpu_pods.settings import DEFAULT_SETTINGS, settings_from_text
from bitfusion_client.pod import pod_contract
from bitfusion_client.pod.this_pod import this_pod
from bitfusion_pods.api.account import this_account
from bitfusion_pods.environment import GPU_POD_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.gpu_pods.settings import PodSettings
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pods.api.account import Account

SETTINGS_VARIABLE = "BITFUSION_PODS_SETTINGS"
"""The path of a file of settings (JSON) where no injector has written one."""
CONTAINER_VARIABLE = "BITFUSION_PODS_CONTAINER"
"""The container in which this runs, where no injector tells it and the pod has several."""
FOLDER_VARIABLE = "BITFUSION_TEST_POD_ROOT"
"""Another folder than `/bitfusion`; set by tests."""

LONGEST_SETTINGS = 1 << 20
ALREADY_THERE = (
    "this is already a GPU pod ({}). What to do: run the program itself, without `bitfusion`, "
    "or run this in a terminal of the notebook"
)


@dataclass(frozen=True, slots=True)
class Where:
    """The notebook's pod, as its files say.

    Attributes:
        account: For the API.
        settings: The admin's.
        namespace: Of the pod.
        name: Of the pod.
        notebook: The Notebook's; empty where there is none.
        container: Empty where nobody says; a pod with one container needs nobody.
        budget: What all programs of this container may hold together; None without a bound.
        folder: What the injector has put here, `/bitfusion`; there may be none.
    """

    account: Account
    settings: PodSettings
    namespace: str
    name: str
    notebook: str
    container: str
    budget: GpuRequest | None
    folder: str


def here(environ: Mapping[str, str]) -> Where:
    """This pod. Raises ClusterUnusable and WrongSetting."""
    folder = environ.get(FOLDER_VARIABLE) or pod_contract.CLIENT_FOLDER
    account, settings = this_account(environ), _settings(environ, folder)
    files = this_pod(folder)
    if files is None or files.client != pod_contract.PODS:
        name = environ.get("HOSTNAME") or os.uname().nodename
        container = environ.get(CONTAINER_VARIABLE, "")
        return Where(account, settings, account.namespace(), name, "", container, None, folder)
    names = files.namespace, files.name, files.notebook, files.container
    return Where(account, settings, *names, _budget(files.request, folder), folder)


def check_no_gpu_pod(environ: Mapping[str, str]) -> None:
    """Raise ClusterUnusable in a program of a GPU pod: no pod is made for a pod that may go at any moment."""
    gpu_pod = environ.get(GPU_POD_VARIABLE)
    if gpu_pod:
        raise ClusterUnusable.from_text(None, ALREADY_THERE.format(gpu_pod))


def _settings(environ: Mapping[str, str], folder: str) -> PodSettings:
    given = environ.get(SETTINGS_VARIABLE)
    path = given or os.path.join(folder, pod_contract.POD_FOLDER, pod_contract.SETTINGS_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST_SETTINGS)
    except FileNotFoundError:
        if not given:
            return DEFAULT_SETTINGS
        raise WrongSetting(SETTINGS_VARIABLE, given, "there is no such file", "the environment") from None
    except (OSError, ValueError) as error:
        raise WrongSetting("settings for GPU pods", path, str(error), path) from None
    return settings_from_text(text, path)


def _budget(text: str, folder: str) -> GpuRequest:
    from bitfusion_client.command.command_line import parse_request_text

    try:
        return parse_request_text(text)
    except BitfusionError as error:
        path = os.path.join(folder, pod_contract.POD_FOLDER, pod_contract.REQUEST_FILE)
        raise WrongSetting("the pod's budget", text, f"is not a valid pod size ({error})", path) from None
