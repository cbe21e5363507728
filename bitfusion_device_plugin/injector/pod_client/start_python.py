"""Starts the `bitfusion` of the package beside it; where this Python is too old, has the next one do it.

    BITFUSION_OTHER_PYTHONS=PYTHONS python3 -I -S KIND/bitfusion [ARGUMENT...]

In a pod it is called `bitfusion`, so that a list of processes shows `bitfusion run -n 1 …` as everywhere.
KIND, the folder in which it lies, is ``stand-in`` or ``pods``.
PYTHONS are further ones to try, joined by colons. The starter finds them; which of them is new enough only a
Python can tell, and asking one beforehand would double the time of the start. So this file is written in the
words of Python 3.5; older ones are in no image that anybody runs.
"""

import os
import sys

OTHERS = "BITFUSION_OTHER_PYTHONS"
# By the folder's name: its package, what it is called, and what else there is to do about an old Python.
PROGRAMS = {
    "stand-in": (
        "bitfusion_pool",
        "the bitfusion stand-in",
        "; or ask your administrator for VMware's client in the map of clients",
    ),
    "pods": ("bitfusion_pods", "the bitfusion client", ""),
}
TOO_OLD = (
    "Error: the Python of this image is too old for {}: {} is {}. What to do: use an image with Python 3.10 "
    "or newer{}\n"
)


def start(others: str, arguments: "list[str]") -> None:
    """Become the command; does not return."""
    folder = os.path.dirname(os.path.realpath(__file__))
    package, name, else_do = PROGRAMS[os.path.basename(folder)]
    with open("/proc/self/environ", "rb") as given:
        if b"\0LC_CTYPE=" not in b"\0" + given.read():
            os.environ.pop("LC_CTYPE", None)  # Python's own addition, which programs would inherit
    if sys.version_info < (3, 10):  # noqa: UP036  # of whatever image a user takes
        start_with_another([path for path in others.split(":") if path], arguments)
        version = ".".join(str(part) for part in sys.version_info[:3])
        sys.stderr.write(TOO_OLD.format(name, sys.executable or "python3", version, else_do))
        sys.exit(1)
    command = os.path.join(folder, package, "bin", "bitfusion")
    sys.argv = [command, *arguments]
    with open(command) as file:
        code = compile(file.read(), command, "exec")
    exec(code, {"__name__": "__main__", "__file__": command})


def start_with_another(pythons: "list[str]", arguments: "list[str]") -> None:
    """Become the first of these that can be executed; comes back where none can."""
    while pythons:
        python = pythons.pop(0)
        try:
            os.environ[OTHERS] = ":".join(pythons)
            os.execv(python, [python, "-I", "-S", __file__, *arguments])
        except OSError:
            pass  # no program for this machine


start(os.environ.pop(OTHERS, ""), sys.argv[1:])
