"""Starts ipykernel as `-m ipykernel_launcher` does, with `%bitfusion` among what IPython always loads.

    python kernel_start.py -m ipykernel_launcher -f CONNECTION_FILE OPTIONS...

The proxy puts this file before the `-m` of a Python kernel. So the magic is loaded by no list of extensions
that a config file or `--ext` can set, and from here: our packages are imported while the notebook's folder is
not on the path, so nothing that lies beside the notebook takes their place. A cell finds `sys.argv` and
`sys.path` as ipykernel_launcher leaves them. This file is compiled anew by every kernel.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = os.path.abspath(__file__)
_MODULES = {"ipykernel_launcher": "ipykernel_launcher", "ipykernel": "ipykernel.__main__"}
"""What may follow `-m`, and what runs then."""

_EXTENSION = "bitfusion_kernel.ipython_magic"


def command(argv: list[str]) -> list[str]:
    """A kernel's command line with this file in it, if it is one of ipykernel's; used by the proxy."""
    for index in range(len(argv) - 1):
        if argv[index] == "-m" and argv[index + 1] in _MODULES:
            return [*argv[:index], FILE, *argv[index:]]
    return argv


def main() -> None:
    """Become the kernel. Called where this file runs as a program."""
    if sys.path and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(FILE)):
        del sys.path[0]  # IPython puts the notebook's folder on the path, behind the standard library
    _import_our_packages()
    from importlib.util import find_spec

    module = find_spec(_MODULES[sys.argv[2]])
    sys.argv[:3] = [module.origin if module is not None and module.origin else FILE]
    from ipykernel.kernelapp import IPKernelApp

    app: Any = IPKernelApp.instance()
    app.default_extensions = [*app.default_extensions, _EXTENSION]  # "always loaded (not configurable)"
    app.initialize()
    app.start()


def _import_our_packages() -> None:
    """From the folder that holds this one, which need not be on the path; their modules are found by them."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    folder = os.path.dirname(os.path.dirname(os.path.dirname(FILE)))
    for name in ("bitfusion_client", "bitfusion_kernel"):
        spec = PathFinder.find_spec(name, [folder])
        if spec is not None and spec.loader is not None:
            sys.modules[name] = package = module_from_spec(spec)
            spec.loader.exec_module(package)


if __name__ == "__main__":
    main()
