"""The table of the kernel's settings: name, default, allowed values and help of each.

The kernelspec's options, the environment variables, the options of `bitfusion-kernel install`, the traits of
Jupyter's config files and the table in docs/kernel.md are all made from these rows. The services' table
(`bitfusion_client.settings_table`) knows no traits, no repeated options and no parts of a request.
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
    names = values.words(value)
    if any(name not in BY_NAME or name == "locked" for name in names):
        raise ValueError
    return names


SETTINGS = (
    Setting(
        name="gpus",
        parse=values.gpus,
        config_types=(int,),
        example="2",
        default="1",
        allowed="must be a whole number, at least 1",
        help="GPUs, all from one server",
        request_field="gpus",
        install_flags=("-n", "--num_gpus"),
        metavar="N",
    ),
    Setting(
        name="partial",
        parse=values.partial,
        config_types=(float,),
        example="0.5",
        default="whole GPUs",
        allowed="must be greater than 0.0 and at most 1.0",
        help="share of each GPU's memory",
        request_field="partial",
        install_flags=("-p", "--partial"),
        metavar="F",
    ),
    Setting(
        name="memory",
        parse=values.memory,
        config_types=(str, int),
        example="8Gi",
        default="whole GPUs",
        allowed="must be an amount of memory like 8Gi, 8GB or 8192 (MiB)",
        help="memory of each GPU, instead of a share",
        request_field="memory_mib",
        install_flags=("-m", "--gpu_memory"),
        metavar="MEMORY",
    ),
    Setting(
        name="filter",
        parse=values.filters,
        config_types=(list, str),
        example="device.name=Tesla",
        default="none",
        allowed="must be key=value (several: repeat the option, or separate them by ; in the environment)",
        help="only servers and devices with this property",
        request_field="filters",
        install_flags=("--filter",),
        metavar="KEY=VALUE",
        repeatable=True,
    ),
    Setting(
        name="server_list",
        parse=values.servers,
        config_types=(list, str),
        example="10.0.0.1:56001;10.0.0.2:56001",
        default="all servers",
        allowed="must be host:port; several are joined by ;",
        help="only these servers",
        request_field="servers",
        install_flags=("--server_list",),
        metavar="HOST:PORT;...",
    ),
    Setting(
        name="timeout",
        parse=values.timeout,
        config_types=(str, float),
        example="30m",
        default="the client's own (30m)",
        allowed="must be a duration like 90 (seconds), 30m or 2m30s",
        help="how long a cell waits for GPUs",
        request_field="timeout",
        install_flags=("--timeout",),
        metavar="DURATION",
    ),
    Setting(
        name="acquire",
        parse=values.acquire,
        config_types=(str,),
        example="start",
        default=DEFAULT_ACQUIRE,
        allowed="must be first_cell, start, start_and_wait or manual",
        help="when GPUs are asked for: by the first cell, at kernel start (start_and_wait: ready only with "
        "them), or by `%bitfusion acquire`",
    ),
    Setting(
        name="client",
        parse=values.absolute_path,
        config_types=(str,),
        example="/usr/bin/bitfusion",
        default="found automatically",
        allowed="must be the absolute path of the `bitfusion` command",
        help="path of the bitfusion client",
    ),
    Setting(
        name="silent_wait",
        parse=values.seconds,
        config_types=(float,),
        example="5",
        default="5",
        allowed="must be a number of seconds, 0 or more",
        help="seconds that silent requests (start-up code of VS Code) wait for the kernel",
    ),
    Setting(
        name="locked",
        parse=_setting_names,
        config_types=(list,),
        example='["gpus", "partial"]',
        default="nothing",
        allowed="must be a list of names of settings",
        help="settings that neither environment nor `%bitfusion request` may change",
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
        raise WrongSetting(name, value, "is no setting; settings are " + ", ".join(BY_NAME), source)
    try:
        return setting.parse(value)
    except InvalidRequest as error:
        raise WrongSetting(name, value, error.allowed, source) from None
    except (TypeError, ValueError):
        raise WrongSetting(name, value, setting.allowed, source) from None
