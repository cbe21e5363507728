"""The agent's own pod at the API: deleted, and its Secret with it, where nobody else is there to do that."""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.pod.this_pod import this_pod
from bitfusion_pods.api.account import this_account
from bitfusion_pods.api.client import Api, ApiError, ApiUnreachable, pods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def delete(folder: str, environ: Mapping[str, str], log: Callable[[str], None]) -> None:
    """By the account whose token is mounted, if that may; else the next command, or the owner's end, does it.

    Args:
        folder: With the files that say which pod it is.
        environ: That of process 1.
        log: Gets one line.
    """
    this = this_pod(folder)
    if this is None or not (this.namespace and this.name and this.uid):
        return
    try:
        only_this = {"preconditions": {"uid": this.uid}}
        Api(this_account(environ)).delete(pods(this.namespace, this.name), only_this)
    except (ApiError, ApiUnreachable, BitfusionError) as error:
        log(f"the pod stays: {error}")
    else:
        log("the pod is deleted")
