"""The file that an installed kernelspec starts as the proxy, by `start` or as a program.

Installed kernelspecs hold the path of this file and its options: both stay as they are.

`-I -S` skips `site` and with it every `.pth` file (one chain of them costs 25 ms a process), so the
folders of this package and of pyzmq are put on the path here; the user's site only where pyzmq lies nowhere
else, and last the folders of PYTHONPATH, which module systems, Nix and users of `pip --target` set.
`python -m bitfusion_kernel` works, too.
"""

from __future__ import annotations

import gc
import os
import sys

_NEEDED = ("zmq", "traitlets")


def _package_folders() -> list[str]:
    """The folder this package is imported from and the site-packages of the running interpreter.

    Under `-S` a virtual environment is not recognised before Python 3.14; its `pyvenv.cfg` lies one
    folder above the interpreter.
    """
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    beside = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    prefix = beside if os.path.exists(os.path.join(beside, "pyvenv.cfg")) else sys.prefix
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return [own, os.path.join(prefix, "lib", version, "site-packages")]


def _complete_path() -> None:
    for folder in _package_folders():
        if folder not in sys.path:
            sys.path.append(folder)
    if not _all_found():
        _let_python_look()
    for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if folder and os.path.abspath(folder) not in sys.path:
            sys.path.append(os.path.abspath(folder))


def _let_python_look() -> None:
    import site  # a distribution's own layout: let Python look

    site.main()
    closed = sys.prefix != sys.base_prefix and sys.base_prefix not in site.PREFIXES
    if not (_all_found() or closed or os.environ.get("PYTHONNOUSERSITE") or os.getuid() != os.geteuid()):
        site.addsitedir(site.getusersitepackages())  # `-I` leaves it out


def _all_found() -> bool:
    """Whether everything that the proxy imports can be found."""
    return all(any(os.path.isdir(os.path.join(folder, name)) for folder in sys.path) for name in _NEEDED)


def start() -> None:
    """Run the proxy with the arguments of this process; newer kernelspecs import this module and call it."""
    gc.disable()  # 4 % of the way to the first reply; `Proxy.serve` turns it on again
    if sys.flags.no_site:
        _complete_path()
    from bitfusion_kernel.proxy.process import main

    main(sys.argv[1:])


if __name__ == "__main__":
    start()
