"""`bitfusion-pool status --kubernetes`: hands what the pool says of itself to a report.

The pool knows nothing of Kubernetes. The report, `bitfusion_device_plugin/units_report`, is a program that
knows of the pool what `status --json` says; it takes the place of this process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

import bitfusion_pool
from bitfusion_client.errors import BitfusionError, ClientFailed, UsageError
from bitfusion_client.one_line import one_line
from bitfusion_client.version import PACKAGE
from bitfusion_pool.admin.status_json import status_json
from bitfusion_pool.client.pools.pool_choice import choose_pool, open_pool

OWN_POOL = (
    "only your own pool is named here, and no pod uses it (BITFUSION_POOL or --dir names another, "
    "with the pool in the cluster see docs/how-to/see-who-holds-what.md)"
)
REPORT = "bitfusion_device_plugin/units_report/__main__.py"


def become_report(options: argparse.Namespace, environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the report; a pool that cannot be asked is a line of that.

    Raises:
        UsageError: Options contradict each other.
        ClientFailed: The report is not there: this is a part of the distribution only.
    """
    if options.kubernetes and (options.context or options.kubeconfig):
        raise UsageError("--context and --kubeconfig are for kubectl, which is not asked when a file is read")
    named = {"objects": options.kubernetes, "context": options.context, "kubeconfig": options.kubeconfig}
    words = [f"--{name}={value}" for name, value in named.items() if value]
    words += ["--json"] if options.json else []
    root = os.path.dirname(os.path.dirname(os.path.abspath(bitfusion_pool.__file__)))
    if not os.path.exists(f"{root}/{REPORT}"):
        raise ClientFailed(
            "", f"{root}/{REPORT} is missing", f"a whole {PACKAGE} has it: pip install . in a checkout"
        )
    # -I: no folder that the caller stands in or names for others decides what is imported
    os.execv(sys.executable, [sys.executable, "-I", f"{root}/{REPORT}", *words, *_pool(environ)])


def _pool(environ: Mapping[str, str]) -> list[str]:
    """The options by which the report learns what the pool shows, or why nothing is shown of it."""
    try:
        named = environ.get("BITFUSION_POOL_DIR") or environ.get("BITFUSION_POOL_CONFIG")
        if not named and choose_pool(environ).is_own:
            return [f"--no-pool={OWN_POOL}"]
        with open_pool(environ) as pool:
            status = status_json(pool.snapshot())
    except BitfusionError as error:
        return [f"--no-pool={one_line(error)}"]
    file = os.memfd_create("pool", 0)  # the report inherits it; a pool's pod may write to no folder
    with open(file, "w", encoding="utf-8", closefd=False) as text:
        json.dump(status, text)
    return [f"--pool=/proc/self/fd/{file}"]
