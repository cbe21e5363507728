"""The name under which others see a kernel that holds or waits for GPUs. Pure.

Jupyter names the notebook in `JPY_SESSION_NAME`, and a user may give a name in `BITFUSION_LABEL`. A kernel
that a cell starts (papermill, nbclient) inherits the environment of the kernel around it: what that one was
called is told in two more variables, so that it is not taken for a name of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

LABEL = "BITFUSION_LABEL"
SESSION = "JPY_SESSION_NAME"
OUTER_LABEL = "BITFUSION_KERNEL_LABEL"
"""The label that the proxy around this kernel has made, in that kernel's environment."""
OUTER_SESSION = "BITFUSION_KERNEL_SESSION"
"""What SESSION was there."""


def notebook(environ: Mapping[str, str]) -> str:
    """What the notebook, or other document, of a kernel with this environment is called; may be empty."""
    session = environ.get(SESSION, "")
    name = os.path.basename(session)
    return f"a kernel started in {name}" if name and environ.get(OUTER_SESSION) == session else name


def leave_label(environ: MutableMapping[str, str]) -> None:
    """Put the label into an environment, for `bitfusion run` and the kernel; the user's own stays."""
    name = notebook(environ) or "a Jupyter kernel"
    if environ.get(LABEL, "") in ("", environ.get(OUTER_LABEL)):
        environ[LABEL] = environ[OUTER_LABEL] = name
    environ[OUTER_SESSION] = environ.get(SESSION, "")
