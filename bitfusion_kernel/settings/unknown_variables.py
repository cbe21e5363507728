"""Environment variables that look like a setting and are none, so that a slip of the pen is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from bitfusion_kernel.settings.table import ENVIRONMENT_PREFIX, SETTINGS

_OF_OTHERS = ("POOL_", "KERNEL_", "CONTROLLER_", "TEST_")
"""What follows the prefix in variables of this project that are no settings."""

_MEANT = {
    "N": "gpus",
    "GPU": "gpus",
    "NUM_GPUS": "gpus",
    "P": "partial",
    "SHARE": "partial",
    "FRACTION": "partial",
    "M": "memory",
    "MEM": "memory",
    "GPU_MEMORY": "memory",
    "SERVERS": "server_list",
}
"""Names that people try, as other tools and the client's options have them."""

_ALIKE = 0.75
_MOST = 3


def hints(environ: Mapping[str, str]) -> list[str]:
    """One line for each such variable, three at most. Empty variables count as not set."""
    found = []
    for name in sorted(environ):
        if name.upper().startswith(ENVIRONMENT_PREFIX) and environ[name].strip():
            word = name[len(ENVIRONMENT_PREFIX) :].upper()
            line = "" if _is_known(name) or _is_anothers(word) else _hint(name, word)
            if line:
                found.append(line)
    return found[:_MOST]


def _is_known(name: str) -> bool:
    return any(name == setting.variable and not setting.file_only for setting in SETTINGS)


def _is_anothers(word: str) -> bool:
    """Ours for other purposes, or what Kubernetes makes of a service: X_SERVICE_HOST, X_PORT_1_TCP."""
    return word.startswith(_OF_OTHERS) or "SERVICE_" in word or "PORT" in word.split("_")


def _hint(name: str, word: str) -> str:
    import difflib  # only few environments hold such a variable

    names = {setting.name.upper(): setting for setting in SETTINGS}
    alike = difflib.get_close_matches(word, names, 1, _ALIKE)
    meant = _MEANT.get(word, "").upper() or (alike[0] if alike else "")
    if not meant:
        return ""
    if names[meant].file_only:
        return f"{name} has no effect. The setting `{names[meant].name}` can only be set in a config file."
    return f"{name} has no effect. Did you mean {names[meant].variable}?"
