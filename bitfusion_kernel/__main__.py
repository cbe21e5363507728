"""The file that an installed kernelspec starts as the proxy: `python -I -S …/bitfusion_kernel/__main__.py`.

Installed kernelspecs hold the path of this file and its options: both stay as they are.

`-I -S` skips `site` and with it every `.pth` file (one chain of them costs 25 ms a process), so the
folders of this package and of pyzmq are put on the path here. `python -m bitfusion_kernel` works, too.
"""

from __future__ import annotations

import os
import sys


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
    if not any(os.path.isdir(os.path.join(folder, "zmq")) for folder in sys.path):
        import site  # a distribution's own layout: let Python look

        site.main()


if __name__ == "__main__":
    if sys.flags.no_site:
        _complete_path()
    from bitfusion_kernel.proxy.process import main

    main(sys.argv[1:])
