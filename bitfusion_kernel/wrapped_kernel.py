"""The kernel of any language that runs behind the proxy: its command, environment and cached kernel_info.

They stand in two files in the kernelspec's folder. `bitfusion-kernel install` writes them, each proxy reads
them when it starts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

KERNEL_FILE = "wrapped_kernel.json"
KERNEL_INFO_FILE = "kernel_info.json"


class WrappedKernel:
    """The kernel behind the proxy.

    Attributes:
        argv: Its command line, with `{connection_file}` where the file's path goes.
        env: Variables that its own kernelspec sets.
        language: As in its kernelspec, `python` or another.
        kernel_info: The content of its `kernel_info_reply`.
        interrupt_mode: `signal` or `message`, as in its kernelspec. Empty stands for a signal to Python and a
            message to any other language, of which older installations say nothing.
    """

    def __init__(
        self,
        argv: list[str],
        env: dict[str, str],
        language: str,
        kernel_info: dict[str, Any],
        interrupt_mode: str = "",
    ) -> None:
        self.argv = argv
        self.env = env
        self.language = language
        self.kernel_info = kernel_info
        self.interrupt_mode = interrupt_mode or ("signal" if language == "python" else "message")

    @classmethod
    def load(cls, spec_folder: str | None) -> WrappedKernel:
        """Read the files in a kernelspec's folder.

        A file that is missing or broken, or no folder at all, stands for the running interpreter's ipykernel.
        """
        kernel = _read(spec_folder, KERNEL_FILE)
        kernel_info = _read(spec_folder, KERNEL_INFO_FILE)
        argv, env, language = kernel.get("argv"), kernel.get("env"), kernel.get("language")
        return cls(
            argv if argv and isinstance(argv, list) and _all_text(argv) else _ipykernel_command(),
            env if isinstance(env, dict) and _all_text(env.values()) else {},
            language if language and isinstance(language, str) else "python",
            kernel_info or _python_kernel_info(),
            str(kernel.get("interrupt_mode", "")),
        )

    def files(self) -> dict[str, dict[str, Any]]:
        """The name and the content of the files that `load` reads."""
        kernel = {
            "argv": self.argv,
            "env": self.env,
            "language": self.language,
            "interrupt_mode": self.interrupt_mode,
        }
        return {KERNEL_FILE: kernel, KERNEL_INFO_FILE: self.kernel_info}

    def command(self, connection_file: str, options: list[str]) -> list[str]:
        """The kernel's command line; `options` are what the Jupyter client appended to the proxy's."""
        return [word.replace("{connection_file}", connection_file) for word in self.argv] + options


def _ipykernel_command() -> list[str]:
    """The command in ipykernel's own kernelspec; frozen modules would hide breakpoints from the debugger."""
    options = ["-Xfrozen_modules=off"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *options, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


def _all_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _read(folder: str | None, name: str) -> dict[str, Any]:
    if not folder:
        return {}
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _python_kernel_info() -> dict[str, Any]:
    """What is known of an ipykernel without asking it, for a proxy that was started without a kernelspec."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    return {
        "status": "ok",
        "protocol_version": "5.3",
        "implementation": "ipython",
        "implementation_version": "0",
        "language_info": {
            "name": "python",
            "version": version,
            "mimetype": "text/x-python",
            "codemirror_mode": {"name": "ipython", "version": 3},
            "pygments_lexer": "ipython3",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        },
        "banner": f"Python {version} on Bitfusion",
        "help_links": [],
        "debugger": False,
        "supported_features": [],
    }
