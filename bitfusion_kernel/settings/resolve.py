"""Which settings are in force: kernelspec options < config files < environment, and what is locked.

In a pod with an injected client its budget comes before all of these: what is not given is as in the budget.

`%bitfusion request` comes after all of these; `Settings.check_unlocked` says whether it may.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest, WrongSetting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.pod.facts import read_pod
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

    from bitfusion_kernel.pod.facts import Pod


@dataclass(frozen=True, slots=True)
class Settings:
    """What is in force. `sources` tells for each setting that was given where its value was read.

    `idle_release` is in seconds, 0 if it is off. `pod` is None outside pods with an injected client.
    """

    request: GpuRequest
    acquire: str
    client: str | None
    silent_wait: float
    idle_release: float
    log_states: bool
    locked: tuple[str, ...]
    sources: Mapping[str, str]
    pod: Pod | None = None

    @property
    def takes_what_is_left(self) -> bool:
        """Whether nobody has given a size, so that the kernel takes what is left of its pod's budget."""
        return self.pod is not None and not self.sources.keys() & _SIZE_SETTINGS

    def check_unlocked(self, request: GpuRequest) -> None:
        """Whether `%bitfusion request` may ask for `request`. Raises WrongSetting naming a locked setting."""
        for setting in REQUEST_SETTINGS:
            value, now = (getattr(each, setting.request_field) for each in (request, self.request))
            if value != now and setting.name in self.locked:
                shown = "whole GPUs" if value is None and setting.name in SIZES else value
                raise WrongSetting(setting.name, shown, _lock_text(self.request, setting.name))


_SIZE_SETTINGS = {"gpus", *SIZES}


def current_settings(options: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """The settings of a kernel with these options, here and now.

    The proxy calls this when it first needs a setting, so that the first cell tells of a wrong value; doctor
    calls it for each installed kernelspec.

    Raises:
        WrongSetting: The first wrong value, in one line.
    """
    pod = read_pod(environ)
    if not config_files_exist(environ):
        return resolve(options, environ, pod=pod)
    from bitfusion_kernel.settings.config_files import load_config  # traitlets: 30 ms

    config = load_config(environ)
    own = False
    if "locked" in config:
        from bitfusion_kernel.settings.own_kernelspec import is_own

        own = is_own(options, environ, config.files["locked"])
    return resolve(options, environ, config, spec_is_own=own, pod=pod)


def resolve(
    spec_options: Sequence[str],
    environ: Mapping[str, str],
    config: Mapping[str, object] | None = None,
    *,
    spec_is_own: bool = False,
    pod: Pod | None = None,
) -> Settings:
    """The settings in force. Pure.

    Args:
        spec_options: The proxy's `--bitfusion-NAME=value` options.
        environ: The environment.
        config: What `load_config` returned.
        spec_is_own: Whether the options are the user's own, so that locks hold against them, too.
        pod: Where this is a pod: what is given nowhere is as in its budget.

    Raises:
        WrongSetting: The first wrong value.
    """
    given: dict[str, Given] = {}
    base = GpuRequest() if pod is None else pod.budget.request
    options, configured = from_options(spec_options), from_config(config or {})
    for source in (options, configured):
        _lay_over(given, source)
    locked: tuple[str, ...] = given["locked"].value if "locked" in given else ()  # type: ignore[assignment]
    if spec_is_own:
        # What is locked to a value has that value whatever the kernelspec says.
        fixed = {*configured, *(SIZES if configured.keys() & {*SIZES} else ())}
        open_options = {name: item for name, item in options.items() if name not in fixed}
        _refuse_locked(configured, open_options, locked, base, ", also for kernelspecs of your own")
    environment = from_environment(environ)
    if locked:
        _refuse_locked(given, environment, locked, base)
    _lay_over(given, environment)
    return Settings(
        request=_request(given, base),
        acquire=str(_value(given, "acquire")),
        client=str(given["client"].value) if "client" in given else None,
        silent_wait=float(str(_value(given, "silent_wait"))),
        idle_release=float(str(_value(given, "idle_release"))),
        log_states=bool(_value(given, "log_states")),
        locked=locked,
        sources={name: item.source for name, item in given.items()},
        pod=pod,
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


def _request(given: Mapping[str, Given], base: GpuRequest) -> GpuRequest:
    fields = {item.request_field: getattr(base, item.request_field) for item in REQUEST_SETTINGS}
    if any(size in given for size in SIZES):
        fields.update(partial=None, memory_mib=None)
    fields.update(
        (item.request_field, given[item.name].value) for item in REQUEST_SETTINGS if item.name in given
    )
    try:
        return GpuRequest(**fields)
    except InvalidRequest as error:
        name = next(item.name for item in REQUEST_SETTINGS if item.request_field == error.field)
        source = given[name].source if name in given else ""
        raise WrongSetting(name, error.value, error.allowed, source) from None


def _refuse_locked(
    given: Mapping[str, Given],
    later: Mapping[str, Given],
    locked: Sequence[str],
    base: GpuRequest,
    note: str = "",
) -> None:
    """Raise WrongSetting if a later source differs in a locked setting; the same value is allowed."""
    request = _request(given, base)
    for name, item in later.items():
        field = BY_NAME[name].request_field
        now = getattr(request, field) if field else _value(given, name)
        if name in locked and item.value != now:
            raise WrongSetting(name, item.value, _lock_text(request, name, note), item.source)


def _value(given: Mapping[str, Given], name: str) -> object:
    """The value of a setting that is not a part of the request."""
    if name in given:
        return given[name].value
    defaults = {"acquire": DEFAULT_ACQUIRE, "silent_wait": DEFAULT_SILENT_WAIT, "idle_release": 0.0}
    return defaults.get(name)


def _lock_text(request: GpuRequest, name: str, note: str = "") -> str:
    stays = f"; it stays {request.describe()}" if BY_NAME[name].request_field else ""
    return f"is locked by your administrator{note}{stays}"
