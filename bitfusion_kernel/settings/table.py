"""The kernel's settings: kernelspec options < config file < environment. Standard library only.

The proxy calls `resolve` when it first needs a setting; a wrong value is one clear line in the first cell
(WrongSetting). `%bitfusion request` comes after all of these and is checked against `locked`.
"""

from __future__ import annotations

import os

from bitfusion_client.errors import InvalidRequest, WrongSetting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request import GpuRequest
from bitfusion_kernel.settings.config_path import config_files_exist

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SETTINGS", "ConfigValues", "Setting", "Settings", "config_files_exist", "parse_value", "resolve"]

OPTION_PREFIX = "--bitfusion-"
ENVIRONMENT_PREFIX = "BITFUSION_"
ACQUIRE = ("first_cell", "start", "manual")
DEFAULT_SILENT_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the settings' table. `field` is its name in GpuRequest, empty if it is not a part of it."""

    name: str
    field: str
    example: str
    default: str
    allowed: str
    help: str
    file_only: bool = False

    @property
    def option(self) -> str:
        """As the kernelspec's argv spells it."""
        return OPTION_PREFIX + self.name

    @property
    def variable(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.name.upper()


SETTINGS = (
    Setting("gpus", "gpus", "2", "1", "must be a whole number, at least 1", "GPUs, all from one server"),
    Setting(
        "partial",
        "partial",
        "0.5",
        "whole GPUs",
        "must be greater than 0.0 and at most 1.0",
        "share of each GPU's memory",
    ),
    Setting(
        "memory",
        "memory_mib",
        "8Gi",
        "whole GPUs",
        "must be an amount of memory like 8Gi, 8000M or 8192 (MiB)",
        "memory of each GPU, instead of a share",
    ),
    Setting(
        "filter",
        "filters",
        "device.name=Tesla",
        "none",
        "must be key=value (several: repeat the option, or separate them by ; in the environment)",
        "only servers and devices with this property",
    ),
    Setting(
        "server_list",
        "servers",
        "10.0.0.1:56001;10.0.0.2:56001",
        "all servers",
        "must be host:port; several are joined by ;",
        "only these servers",
    ),
    Setting(
        "timeout",
        "timeout",
        "30m",
        "the client's own (30m)",
        "must be a duration like 90 (seconds), 30m or 2m30s",
        "how long a cell waits for GPUs",
    ),
    Setting(
        "acquire",
        "",
        "start",
        "first_cell",
        "must be first_cell, start or manual",
        "when GPUs are asked for: by the first cell, at kernel start, or by `%bitfusion acquire`",
    ),
    Setting(
        "client",
        "",
        "/usr/bin/bitfusion",
        "found by itself",
        "must be the absolute path of the `bitfusion` command",
        "the client to use",
    ),
    Setting(
        "silent_wait",
        "",
        "5",
        "5",
        "must be a number of seconds, 0 or more",
        "seconds that silent requests (start-up code of VS Code) wait for the kernel",
    ),
    Setting(
        "locked",
        "",
        '["gpus", "partial"]',
        "nothing",
        "must be a list of names of settings",
        "settings that neither environment nor `%bitfusion request` may change",
        file_only=True,
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
_REQUEST_NAMES = tuple(setting.name for setting in SETTINGS if setting.field)
_SIZE = ("partial", "memory")  # two spellings of one thing: the later source's replaces the earlier one's
_NOT_OURS = ("spec",)  # written by `bitfusion-kernel install` for the proxy


class ConfigValues(dict[str, object]):
    """What the config files say; `files` names the file of each value."""

    def __init__(self, values: Mapping[str, object] | None = None, files: Mapping[str, str] | None = None):
        super().__init__(values or {})
        self.files = dict(files or {})


@dataclass(frozen=True, slots=True)
class Settings:
    """What is in force. `sources` tells for each setting that was given where its value was read."""

    request: GpuRequest
    acquire: str
    client: str | None
    silent_wait: float
    locked: tuple[str, ...]
    sources: Mapping[str, str]

    def check_unlocked(self, request: GpuRequest) -> None:
        """Raises WrongSetting if `request` (of `%bitfusion request`) differs in a locked setting."""
        for name in locked_changes(self.request, request, self.locked):
            raise WrongSetting(name, _shown(request, name), _lock_text(self.request, name))


def resolve(
    spec_options: Sequence[str], environ: Mapping[str, str], config: Mapping[str, object] | None = None
) -> Settings:
    """The settings in force. `spec_options`: the proxy's `--bitfusion-NAME=value`; `config`: `load_config()`.

    Raises WrongSetting for the first wrong one.
    """
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for layer in (_from_options(spec_options), _from_config(config or {})):
        _lay_over(values, sources, layer)
    locked = values.get("locked", ())
    assert isinstance(locked, tuple)
    environment = _from_environment(environ)
    if locked:
        before = _request(values, sources)
        _refuse_locked(values, environment, before, locked)
    _lay_over(values, sources, environment)
    return Settings(
        request=_request(values, sources),
        acquire=str(values.get("acquire", ACQUIRE[0])),
        client=str(values["client"]) if "client" in values else None,
        silent_wait=float(str(values.get("silent_wait", DEFAULT_SILENT_WAIT))),
        locked=locked,
        sources=sources,
    )


def locked_changes(before: GpuRequest, after: GpuRequest, locked: Sequence[str]) -> list[str]:
    """Names of the locked settings in which two requests differ; a lock on one size holds the other too."""
    names = [name for name in _REQUEST_NAMES if name in locked or (name in _SIZE and _locks_size(locked))]
    return [name for name in names if _field(before, name) != _field(after, name)]


def parse_value(name: str, value: object, source: str = "") -> object:
    """The typed value of one setting, from text or from a config file's value. Raises WrongSetting.

    gpus: int · partial, silent_wait: float · memory: MiB · timeout: seconds · filter: pairs · server_list,
    locked: tuples of text · acquire, client: text.
    """
    setting = BY_NAME.get(name)
    if setting is None:
        raise WrongSetting(name, value, "is no setting; settings are " + ", ".join(BY_NAME), source)
    try:
        return _PARSERS[name](value)
    except InvalidRequest as error:
        raise WrongSetting(name, value, error.allowed, source) from None
    except (TypeError, ValueError):
        raise WrongSetting(name, value, setting.allowed, source) from None


_Layer = list[tuple[str, object, str]]  # (name, parsed value, source)


def _from_options(options: Sequence[str]) -> _Layer:
    layer: _Layer = []
    filters: list[object] = []
    for option in options:
        spelled, equals, text = option.partition("=")
        name = spelled[len(OPTION_PREFIX) :].replace("-", "_")
        if name in _NOT_OURS:
            continue
        setting = BY_NAME.get(name)
        if not spelled.startswith(OPTION_PREFIX) or setting is None or setting.file_only:
            known = ", ".join(item.option for item in SETTINGS if not item.file_only)
            raise WrongSetting(
                spelled, text, f"is no option of this kernel; options are {known}", "the kernelspec"
            )
        source = f"{setting.option} in the kernelspec"
        if not equals:
            raise WrongSetting(
                name, "", f"{setting.allowed} (written {setting.option}={setting.example})", source
            )
        # a repeated option needs no separator, so its value may hold one
        value = parse_value(name, [text] if name == "filter" else text, source)
        if name == "filter" and isinstance(value, tuple):
            filters.extend(value)
            value = tuple(filters)
        layer.append((name, value, source))
    return layer


def _from_config(config: Mapping[str, object]) -> _Layer:
    files: Mapping[str, str] = getattr(config, "files", {})
    layer: _Layer = []
    for name, value in config.items():
        if value is None or value in ("", [], ()):
            continue
        source = files.get(name, "the config file")
        layer.append((name, parse_value(name, value, source), source))
    return layer


def _from_environment(environ: Mapping[str, str]) -> _Layer:
    layer: _Layer = []
    for setting in SETTINGS:
        text = environ.get(setting.variable, "").strip()
        if text and not setting.file_only:  # empty means unset: pod templates cannot leave a variable out
            source = f"environment variable {setting.variable}"
            layer.append((setting.name, parse_value(setting.name, text, source), source))
    return layer


def _lay_over(values: dict[str, object], sources: dict[str, str], layer: _Layer) -> None:
    given = {name: source for name, _, source in layer}
    if all(name in given for name in _SIZE):
        shown = {name: value for name, value, _ in layer}["memory"]
        text = "give either a share (partial) or an amount of memory, not both"
        raise WrongSetting("memory", shown, f"{text}; partial is from {given['partial']}", given["memory"])
    for name, value, source in layer:
        if name in _SIZE:
            for other in _SIZE:
                values.pop(other, None)
                sources.pop(other, None)
        values[name] = value
        sources[name] = source


def _request(values: Mapping[str, object], sources: Mapping[str, str]) -> GpuRequest:
    fields = {BY_NAME[name].field: values[name] for name in _REQUEST_NAMES if name in values}
    try:
        return GpuRequest(**fields)  # type: ignore[arg-type]  # parse_value made each of its field's type
    except InvalidRequest as error:
        name = next(name for name in _REQUEST_NAMES if BY_NAME[name].field == error.field)
        raise WrongSetting(name, error.value, error.allowed, sources.get(name, "")) from None


def _refuse_locked(
    values: Mapping[str, object], environment: _Layer, before: GpuRequest, locked: Sequence[str]
) -> None:
    for name, value, source in environment:
        if name in locked or (name in _SIZE and _locks_size(locked)):
            default: object = {"acquire": ACQUIRE[0], "silent_wait": DEFAULT_SILENT_WAIT}.get(name)
            now = _field(before, name) if name in _REQUEST_NAMES else values.get(name, default)
            if value != now:
                raise WrongSetting(name, value, _lock_text(before, name), source)


def _locks_size(locked: Sequence[str]) -> bool:
    return any(name in locked for name in _SIZE)


def _lock_text(request: GpuRequest, name: str) -> str:
    stays = f"; it stays {request.describe()}" if name in _REQUEST_NAMES else ""
    return f"is locked by your administrator{stays}"


def _field(request: GpuRequest, name: str) -> object:
    return getattr(request, BY_NAME[name].field)


def _shown(request: GpuRequest, name: str) -> object:
    value = _field(request, name)
    return "whole GPUs" if value is None and name in _SIZE else value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError
    number = int(value.strip()) if isinstance(value, str) else value
    GpuRequest(gpus=number)  # its own words for what is allowed
    return number


def _partial(value: object) -> float:
    number = _number(value)
    GpuRequest(partial=number)
    return number


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    return float(value)


def _memory(value: object) -> int:
    from bitfusion_client.quantities import parse_memory

    return parse_memory(value)


def _words(value: object) -> tuple[str, ...]:
    parts = value.split(";") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ValueError
    return tuple(part.strip() for part in parts if part.strip())


def _filters(value: object) -> tuple[tuple[str, str], ...]:
    pairs = []
    for word in _words(value):
        key, equals, wanted = word.partition("=")
        if not equals:
            raise ValueError
        pairs.append((key.strip(), wanted.strip()))
    return GpuRequest(filters=tuple(pairs)).filters


def _servers(value: object) -> tuple[str, ...]:
    return GpuRequest(servers=_words(value)).servers


def _timeout(value: object) -> float:
    from bitfusion_client.durations import parse_duration

    seconds = parse_duration(value) if isinstance(value, str) else _number(value)
    return float(GpuRequest(timeout=seconds).timeout or 0)


def _acquire(value: object) -> str:
    if value not in ACQUIRE:
        raise ValueError
    return str(value)


def _client(value: object) -> str:
    if not isinstance(value, str) or not os.path.isabs(os.path.expanduser(value)):
        raise ValueError
    return os.path.expanduser(value)


def _silent_wait(value: object) -> float:
    seconds = _number(value)
    if not 0 <= seconds < 1e9:
        raise ValueError
    return seconds


def _locked(value: object) -> tuple[str, ...]:
    names = _words(value)
    for name in names:
        if name not in BY_NAME or name == "locked":
            raise ValueError
    return names


_PARSERS = {
    "gpus": _whole,
    "partial": _partial,
    "memory": _memory,
    "filter": _filters,
    "server_list": _servers,
    "timeout": _timeout,
    "acquire": _acquire,
    "client": _client,
    "silent_wait": _silent_wait,
    "locked": _locked,
}
