"""The table of the kernel's settings: name, default, allowed values and help of each.

The kernelspec's options, the environment variables, the options of `bitfusion-kernel install`, the traits of
Jupyter's config files and the table in docs/reference/kernel-settings.md are all made from these rows. The
services' table (`bitfusion_client.settings_table`) knows no traits, no repeated options and no parts of a
request.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, WrongSetting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_kernel.protocol.arguments import OPTION_PREFIX
from bitfusion_kernel.settings import values

if TYPE_CHECKING:
    from collections.abc import Callable

ENVIRONMENT_PREFIX = "BITFUSION_"
DEFAULT_ACQUIRE = values.ACQUIRE[0]
DEFAULT_SILENT_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One row.

    Attributes:
        name: As config files spell it; options and environment variables are made from it.
        parse: Reads its value (`values`).
        config_types: The Python types that a config file may give, the one of an unset value first.
        example: A value as an option or a variable spells it.
        default: What holds without a value, in words.
        allowed: Follows the wrong value in an error message.
        help: What the setting does.
        request_field: Its name in GpuRequest; empty for a setting that is not a part of the request.
        install_flags: How `bitfusion-kernel install` and the bitfusion client spell a part of the request.
        metavar: What stands for the value in the help of `bitfusion-kernel install`.
        repeatable: Whether an option may be given several times, each adding to the value.
        file_only: Whether only a config file can give it.
    """

    name: str
    parse: Callable[[object], object]
    config_types: tuple[type, ...]
    example: str
    default: str
    allowed: str
    help: str
    request_field: str = ""
    install_flags: tuple[str, ...] = ()
    metavar: str = ""
    repeatable: bool = False
    file_only: bool = False

    @property
    def option(self) -> str:
        """As the kernelspec's argv spells it."""
        return OPTION_PREFIX + self.name

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.name.upper()


def _setting_names(value: object) -> tuple[str, ...]:
    """The names; where one of `SIZES` is among them, the other is, too."""
    names = values.words(value)
    if any(name not in BY_NAME or name == "locked" for name in names):
        raise ValueError
    return (*names, *(size for size in SIZES if size not in names and {*names} & {*SIZES}))


SETTINGS = (
    Setting(
        *("gpus", values.gpus, (int,), "2", "1"),
        "must be a whole number, at least 1",
        "GPUs, all from one server",
        *("gpus", ("-n", "--num_gpus"), "N"),
    ),
    Setting(
        *("partial", values.partial, (float,), "0.5", "whole GPUs"),
        "must be greater than 0.0 and at most 1.0",
        "share of each GPU's memory",
        *("partial", ("-p", "--partial"), "F"),
    ),
    Setting(
        *("memory", values.memory, (str, int), "8Gi", "whole GPUs"),
        "must be an amount of memory, such as 8Gi, 8GB or 8192 (MiB)",
        "memory of each GPU, instead of a share",
        *("memory_mib", ("-m", "--gpu_memory"), "MEMORY"),
    ),
    Setting(
        *("filter", values.filters, (list, str), "device.name=Tesla", "none"),
        "must be key=value (several: repeat the option, or separate them by ; in the environment)",
        "only servers and devices with this property",
        *("filters", ("--filter",), "KEY=VALUE"),
        repeatable=True,
    ),
    Setting(
        *("server_list", values.servers, (list, str), "10.0.0.1:56001;10.0.0.2:56001", "all servers"),
        "must be host:port; several are joined by ;",
        "only these servers",
        *("servers", ("--server_list",), "HOST:PORT;..."),
    ),
    Setting(
        *("timeout", values.timeout, (str, float), "30m", "the client's own (30m)"),
        "must be a duration like 90 (seconds), 30m or 2m30s",
        "how long a cell waits for GPUs",
        *("timeout", ("--timeout",), "DURATION"),
    ),
    Setting(
        *("acquire", values.acquire, (str,), "start", DEFAULT_ACQUIRE),
        "must be first_cell, start, start_and_wait or manual",
        "when GPUs are asked for: by the first cell, at kernel start (start_and_wait: ready only with "
        "them), or by `%bitfusion acquire`",
    ),
    Setting(
        *("client", values.absolute_path, (str,), "/usr/bin/bitfusion", "found automatically"),
        "must be the absolute path of the `bitfusion` command",
        "path of the bitfusion client",
    ),
    Setting(
        *("silent_wait", values.seconds, (float,), "5", "5"),
        "must be a number of seconds, 0 or more",
        "seconds that silent requests (start-up code of VS Code) wait for the kernel",
    ),
    Setting(
        *("idle_release", values.idle_release, (str, float), "20m", "off"),
        "must be a duration of at least one minute, like 20m or 1h30m (or 90: seconds), or off",
        "after how long without work a kernel's GPU is given back; its variables are lost",
    ),
    Setting(
        *("log_states", values.on_off, (str, bool), "on", "off"),
        "must be on or off",
        "each change of the kernel's state is a line of JSON in Jupyter's log",
    ),
    Setting(
        *("locked", _setting_names, (list,), '["gpus", "partial"]', "nothing"),
        "must be a list of names of settings",
        "settings that neither environment nor `%bitfusion request` may change",
        file_only=True,
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
REQUEST_SETTINGS = tuple(setting for setting in SETTINGS if setting.request_field)
SIZES = ("partial", "memory")
"""Two spellings of one thing: a value of one replaces an earlier value of the other, a lock holds both."""


def parse_value(name: str, value: object, source: str = "") -> object:
    """The typed value of one setting, from text or from a config file's value.

    Args:
        name: As in the table.
        value: What was given.
        source: Where it was given, for the error message.

    Raises:
        WrongSetting: There is no such setting, or the value is not allowed.
    """
    setting = BY_NAME.get(name)
    if setting is None:
        raise WrongSetting(name, value, "is not a setting; settings are " + ", ".join(BY_NAME), source)
    try:
        return setting.parse(value)
    except InvalidRequest as error:
        raise WrongSetting(name, value, error.allowed, source) from None
    except (TypeError, ValueError):
        raise WrongSetting(name, value, setting.allowed, source) from None
