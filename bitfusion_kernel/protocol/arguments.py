"""Splits the proxy's command line: connection file, `--bitfusion-*` options, the kernel's options. Pure."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

OPTION_PREFIX = "--bitfusion-"
_FILE_OPTIONS = ("-f", "--f", "--IPKernelApp.connection_file", "--connection-file")


class ProxyArguments:
    """The proxy's command line, split.

    Attributes:
        connection_file: The path that Jupyter gave.
        options: This project's own, `--bitfusion-NAME=value`, not parsed yet.
        kernel_options: All others. They go to the kernel unchanged: Jupyter clients append some, for example
            nbclient `--HistoryManager.hist_file=:memory:`.
    """

    def __init__(self, connection_file: str, options: list[str], kernel_options: list[str]) -> None:
        self.connection_file = connection_file
        self.options = options
        self.kernel_options = kernel_options

    def value(self, name: str) -> str | None:
        """The last value given for `--bitfusion-NAME=`."""
        return last_value(self.options, name)


def last_value(options: Iterable[str], name: str) -> str | None:
    """The last value that these options give for `--bitfusion-NAME=`; None if they give none."""
    prefix = f"{OPTION_PREFIX}{name}="
    found = [option[len(prefix) :] for option in options if option.startswith(prefix)]
    return found[-1] if found else None


def split_arguments(argv: list[str]) -> ProxyArguments:
    """Split the command line that a kernelspec's argv and the Jupyter client make.

    Raises:
        ValueError: No connection file is named. The text is for stderr.
    """
    connection_file = ""
    options: list[str] = []
    kernel_options: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _FILE_OPTIONS:
            connection_file = value if equals else next(words, "")
        elif word.startswith(OPTION_PREFIX):
            options.append(word)
        else:
            kernel_options.append(word)
    if not connection_file:
        raise ValueError(
            "no connection file was given (-f FILE). This program is started by Jupyter from a kernelspec;\n"
            "make one with `bitfusion-kernel install --user`, then choose the Bitfusion kernel in JupyterLab."
        )
    return ProxyArguments(connection_file, options, kernel_options)
