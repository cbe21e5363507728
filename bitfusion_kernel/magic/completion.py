"""What Tab offers on a `%bitfusion` line: subcommands, and the options of `request`. Pure.

Used by the proxy while there is no kernel, and by the IPython extension once there is one.
"""

from __future__ import annotations

from bitfusion_kernel.magic.cell import MAGIC
from bitfusion_kernel.magic.commands import RESET, SUBCOMMANDS
from bitfusion_kernel.settings.table import REQUEST_SETTINGS

_OPTIONS = [*(flag for setting in REQUEST_SETTINGS for flag in setting.install_flags), RESET]


def complete(code: str, cursor: int) -> tuple[list[str], int] | None:
    """What may stand before the cursor, and where that begins; None if the line is none of ours.

    Positions count code points, as in Jupyter's messages.
    """
    line = code[: max(cursor, 0)].rpartition("\n")[2].lstrip()
    if line and MAGIC.startswith(line):
        return [MAGIC], cursor - len(line)
    magic, *before = line.split()[: None if line[-1:].isspace() else -1] or [""]
    if magic != MAGIC:
        return None
    word = "" if line[-1:].isspace() else line.split()[-1]
    return [each for each in _candidates(before) if each.startswith(word)], cursor - len(word)


def _candidates(before: list[str]) -> list[str]:
    """What may follow these words after `%bitfusion`."""
    if not before or before == ["help"]:
        return list(SUBCOMMANDS)
    if before[0] != "request" or (before[-1] in _OPTIONS and before[-1] != RESET):
        return []  # or the value of an option
    return [option for option in _OPTIONS if option not in before]
