"""Which settings are in force: kernelspec options < config files < environment, and what is locked.

`%bitfusion request` comes after all of these; `Settings.check_unlocked` says whether it may.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, WrongSetting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request import GpuRequest
from bitfusion_kernel.settings.config_path import config_files_exist
from bitfusion_kernel.settings.sources import Given, from_config, from_environment, from_options
from bitfusion_kernel.settings.table import (
    BY_NAME,
    DEFAULT_ACQUIRE,
    DEFAULT_SILENT_WAIT,
    REQUEST_SETTINGS,
    SIZES,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
        """Whether `%bitfusion request` may ask for `request`. Raises WrongSetting naming a locked setting."""
        for setting in REQUEST_SETTINGS:
            value, now = (getattr(each, setting.request_field) for each in (request, self.request))
            if value != now and _is_locked(setting.name, self.locked):
                shown = "whole GPUs" if value is None and setting.name in SIZES else value
                raise WrongSetting(setting.name, shown, _lock_text(self.request, setting.name))


def current_settings(options: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """The settings of a kernel with these options, here and now.

    The proxy calls this when it first needs a setting, so that the first cell tells of a wrong value; doctor
    calls it for each installed kernelspec.

    Raises:
        WrongSetting: The first wrong value, in one line.
    """
    if not config_files_exist(environ):
        return resolve(options, environ)
    from bitfusion_kernel.settings.config_files import load_config  # traitlets: 30 ms

    config = load_config(environ)
    own = False
    if "locked" in config:
        from bitfusion_kernel.settings.own_kernelspec import is_own

        own = is_own(options, environ, config.files["locked"])
    return resolve(options, environ, config, spec_is_own=own)


def resolve(
    spec_options: Sequence[str],
    environ: Mapping[str, str],
    config: Mapping[str, object] | None = None,
    *,
    spec_is_own: bool = False,
) -> Settings:
    """The settings in force. Pure.

    Args:
        spec_options: The proxy's `--bitfusion-NAME=value` options.
        environ: The environment.
        config: What `load_config` returned.
        spec_is_own: Whether the options are the user's own, so that locks hold against them, too.

    Raises:
        WrongSetting: The first wrong value.
    """
    given: dict[str, Given] = {}
    options, configured = from_options(spec_options), from_config(config or {})
    for source in (options, configured):
        _lay_over(given, source)
    locked: tuple[str, ...] = given["locked"].value if "locked" in given else ()  # type: ignore[assignment]
    if spec_is_own:
        # What is locked to a value has that value whatever the kernelspec says.
        open_options = {name: item for name, item in options.items() if not _names(name) & configured.keys()}
        _refuse_locked(configured, open_options, locked, ", also for kernelspecs of your own")
    environment = from_environment(environ)
    if locked:
        _refuse_locked(given, environment, locked)
    _lay_over(given, environment)
    return Settings(
        request=_request(given),
        acquire=str(_value(given, "acquire")),
        client=str(given["client"].value) if "client" in given else None,
        silent_wait=float(str(_value(given, "silent_wait"))),
        locked=locked,
        sources={name: item.source for name, item in given.items()},
    )


def _lay_over(given: dict[str, Given], later: Mapping[str, Given]) -> None:
    """Let the values of a later source win, field by field."""
    partial, memory = (later.get(name) for name in SIZES)
    if partial is not None and memory is not None:
        text = "give either a share (partial) or an amount of memory, not both"
        raise WrongSetting("memory", memory.value, f"{text}; partial is from {partial.source}", memory.source)
    for name, item in later.items():
        if name in SIZES:
            for size in SIZES:
                given.pop(size, None)
        given[name] = item


def _request(given: Mapping[str, Given]) -> GpuRequest:
    fields = {item.request_field: given[item.name].value for item in REQUEST_SETTINGS if item.name in given}
    try:
        return GpuRequest(**fields)  # type: ignore[arg-type]  # parse_value made each of its field's type
    except InvalidRequest as error:
        name = next(item.name for item in REQUEST_SETTINGS if item.request_field == error.field)
        source = given[name].source if name in given else ""
        raise WrongSetting(name, error.value, error.allowed, source) from None


def _refuse_locked(
    given: Mapping[str, Given], later: Mapping[str, Given], locked: Sequence[str], note: str = ""
) -> None:
    """Raise WrongSetting if a later source differs in a locked setting; the same value is allowed."""
    request = _request(given)
    for name, item in later.items():
        field = BY_NAME[name].request_field
        now = getattr(request, field) if field else _value(given, name)
        if _is_locked(name, locked) and item.value != now:
            raise WrongSetting(name, item.value, _lock_text(request, name, note), item.source)


def _value(given: Mapping[str, Given], name: str) -> object:
    """The value of a setting that is not a part of the request."""
    if name in given:
        return given[name].value
    return {"acquire": DEFAULT_ACQUIRE, "silent_wait": DEFAULT_SILENT_WAIT}.get(name)


def _is_locked(name: str, locked: Sequence[str]) -> bool:
    return name in locked or (name in SIZES and any(size in locked for size in SIZES))


def _names(name: str) -> set[str]:
    """The spellings of one setting."""
    return set(SIZES) if name in SIZES else {name}


def _lock_text(request: GpuRequest, name: str, note: str = "") -> str:
    stays = f"; it stays {request.describe()}" if BY_NAME[name].request_field else ""
    return f"is locked by your administrator{note}{stays}"
