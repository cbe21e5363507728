"""The settings of the server's extension, in Jupyter's own configuration."""

from __future__ import annotations

import os

from traitlets import Float, Unicode, default
from traitlets.config import Configurable

from bitfusion_client.pod.pod_contract import CLIENT_FOLDER, POD_FOLDER, SIZES_FILE
from jupyter_ext.server.pool_look import Pace

INJECTED_SIZES = f"{CLIENT_FOLDER}/{POD_FOLDER}/{SIZES_FILE}"
"""Where the injector puts the list of the form, if it has one."""


class BitfusionServer(Configurable):
    """What the Jupyter server shows of the GPU pool, and how often it looks at it."""

    client = Unicode(
        "",
        help="The `bitfusion` command that is asked for the pool, a path or a name on PATH. Empty: as a "
        "kernel without such a setting finds it, by BITFUSION_CLIENT, on PATH, in its place in a pod, or the "
        "embedded pool's. Kernels have a setting of their own, BitfusionKernel.client.",
    ).tag(config=True)

    sizes_file = Unicode(
        "",
        help="The path of a list of GPU sizes, sizes.yaml as for the notebook forms "
        "(`kubeflow-bitfusion form --example`); it is read again when it has changed. PyYAML must be "
        "installed, unless the file is JSON. Default: in a Kubernetes pod the list that the injector has "
        "been given, if any. Empty, or a file that cannot be read: the sizes are made from the pool.",
    ).tag(config=True)

    @default("sizes_file")
    def _injected_sizes(self) -> str:
        return INJECTED_SIZES if os.path.exists(INJECTED_SIZES) else ""

    look_when_waiting = Float(
        2.0,
        min=0.1,
        help="Seconds between two queries of the pool while somebody is waiting or the pool is out of reach.",
    ).tag(config=True)

    look_else = Float(
        15.0, min=0.1, help="Seconds between two queries of the pool while nobody is waiting."
    ).tag(config=True)

    look_until_unasked = Float(
        30.0, min=1.0, help="Seconds after a page's last request during which the pool is still queried."
    ).tag(config=True)

    look_limit = Float(60.0, min=0.1, help="Seconds that the client may take to report the pool.").tag(
        config=True
    )

    def pace(self) -> Pace:
        """The intervals, for the look at the pool."""
        return Pace(self.look_when_waiting, self.look_else, self.look_until_unasked)
