"""Where a value of a setting can stand: kernelspec options, config files, environment variables. Pure."""

from __future__ import annotations

from bitfusion_client.errors import WrongSetting
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.protocol.arguments import OPTION_PREFIX
from bitfusion_kernel.settings.table import BY_NAME, SETTINGS, parse_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NO_SETTINGS = ("spec",)  # written by `bitfusion-kernel install` for the proxy itself


class Given:
    """A value, read and checked, and the words that tell a person where it was given."""

    __slots__ = ("source", "value")

    def __init__(self, value: object, source: str) -> None:
        self.value = value
        self.source = source


class ConfigValues(dict[str, object]):
    """What the config files say; `files` names the file of each value."""

    def __init__(self, values: Mapping[str, object] | None = None, files: Mapping[str, str] | None = None):
        super().__init__(values or {})
        self.files = dict(files or {})


def from_options(options: Sequence[str]) -> dict[str, Given]:
    """The settings in a kernelspec's argv: `--bitfusion-NAME=value`. Raises WrongSetting."""
    given: dict[str, Given] = {}
    for option in options:
        spelled, equals, text = option.partition("=")
        name = spelled[len(OPTION_PREFIX) :].replace("-", "_")
        if name in _NO_SETTINGS:
            continue
        setting = BY_NAME.get(name)
        if not spelled.startswith(OPTION_PREFIX) or setting is None or setting.file_only:
            known = ", ".join(item.option for item in SETTINGS if not item.file_only)
            raise WrongSetting(
                spelled, text, f"is not an option of this kernel; options are {known}", "the kernelspec"
            )
        source = f"{setting.option} in the kernelspec"
        if not equals:
            raise WrongSetting(
                name, "", f"{setting.allowed} (written {setting.option}={setting.example})", source
            )
        # An option that is repeated needs no separator, so its value may contain one.
        value = parse_value(name, [text] if setting.repeatable else text, source)
        if setting.repeatable and name in given:
            value = given[name].value + value  # type: ignore[operator]  # both are tuples
        given[name] = Given(value, source)
    return given


def from_config(config: Mapping[str, object]) -> dict[str, Given]:
    """The settings in config files, as `config_files.load_config` returns them. Raises WrongSetting."""
    files: Mapping[str, str] = getattr(config, "files", {})
    given: dict[str, Given] = {}
    for name, value in config.items():
        if not is_unset(value):
            source = files.get(name, "the config file")
            given[name] = Given(parse_value(name, value, source), source)
    return given


def from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """The settings in environment variables. Raises WrongSetting."""
    given: dict[str, Given] = {}
    for setting in SETTINGS:
        text = environ.get(setting.variable, "").strip()
        if text and not setting.file_only:  # empty means unset: pod templates cannot leave a variable out
            source = f"environment variable {setting.variable}"
            given[setting.name] = Given(parse_value(setting.name, text, source), source)
    return given


def is_unset(value: object) -> bool:
    """Whether a value of a config file means that the setting is not given."""
    return value is None or value in ("", [], ())
