"""JupyterHub's list of profiles, ``KubeSpawner.profile_list``, from the list of sizes.

Facts of KubeSpawner (`spawner.py` of 7.1): a profile's `kubespawner_override` is merged into the settings, so
resources that an administrator set for all stay; a choice of `profile_options` comes after its profile.
Without a ``slug`` it is made of the name, and "BITFUSION 50 %" and "BITFUSION 50" would share one. The first
profile is preselected if none says that it is. Names are put into the page as they are, and the page is a
template of JupyterHub's: letters that mean something in HTML or Jinja have to be written as references.

A profile sets the limit and the image and no annotation: one that names a client would win over the
administrator's ``images.yaml``.
"""

from __future__ import annotations

import html
import pprint
from collections.abc import Sequence
from typing import Any

from bitfusion_client.kubernetes.names import GROUP, LABEL_REQUESTED
from jupyter_ext.spawner.presets import NUMBERS, WITHOUT_GPUS, WITHOUT_GPUS_ID, Preset, presets, says_number
from jupyter_ext.spawner.sizes import Size, SizeList
from jupyter_ext.spawner.yaml_document import written_from, yaml_text

OPTION = "gpus"  # of `profile_options`, the number
OPTION_NAME = "Number of GPUs, all on one server"
OTHER_NUMBER = "another number"
NUMBER_PATTERN = "^[1-9][0-9]{0,2}$"  # as Python and as a browser read it
NUMBER_MESSAGE = "A whole number from 1 to 999"
WITHOUT_GPUS_TEXT = "The notebook computes on the CPU"

Profile = dict[str, Any]


def profile_list(
    sizes: SizeList, image: str, numbers: Sequence[int] = NUMBERS, any_number: bool = False
) -> list[Profile]:
    """One profile for each size, after one without GPUs, whose image stays as the hub has it.

    Args:
        sizes: The administrator's list. The size with ``default: true`` is preselected, else no GPU.
        image: The notebook image with the Bitfusion kernel.
        numbers: Those that users pick from.
        any_number: Whether they may write another one.

    Raises:
        WrongFile: as `presets`.
    """
    without: Profile = {
        "display_name": WITHOUT_GPUS,
        "slug": WITHOUT_GPUS_ID,
        "description": WITHOUT_GPUS_TEXT,
    }
    if sizes.default is None:
        without["default"] = True
    return [without, *(_profile(group, image, any_number) for group in presets(sizes, numbers))]


def helm_values(profiles: list[Profile], source: str) -> str:
    """The list as values of the chart Zero to JupyterHub, which hands it to KubeSpawner as it is."""
    return f"{written_from(source, 'profiles')}\n" + yaml_text({"singleuser": {"profileList": profiles}})


def hub_configuration(profiles: list[Profile], source: str) -> str:
    """The list as a file for ``load_subconfig`` in ``jupyterhub_config.py``."""
    value = pprint.pformat(profiles, indent=1, width=100, sort_dicts=False)
    return f"{written_from(source, 'profiles')}\nc.KubeSpawner.profile_list = {value}\n"


def _profile(group: tuple[Preset, ...], image: str, any_number: bool) -> Profile:
    size = group[0].size
    one_choice = len(group) == 1 and (says_number(size) or not any_number)
    override: dict[str, Any] = {"image": image, "extra_labels": {LABEL_REQUESTED: "true"}}
    profile: Profile = {
        "display_name": _html(size.label),
        "slug": size.key[len(GROUP) :],
        "description": _html(group[0].request.describe() if one_choice else _each(size)),
    }
    if size.default:
        profile["default"] = True
    profile["kubespawner_override"] = override
    if one_choice:
        override["extra_resource_limits"] = group[0].limits
        return profile
    option: dict[str, Any] = {
        "display_name": OPTION_NAME,
        "choices": {str(preset.number): _choice(preset) for preset in group},
    }
    if any_number and not says_number(size):
        option["unlisted_choice"] = {
            "enabled": True,
            "display_name": OPTION_NAME,
            "display_name_in_choices": OTHER_NUMBER,
            "validation_regex": NUMBER_PATTERN,
            "validation_message": NUMBER_MESSAGE,
            "kubespawner_override": {"extra_resource_limits": {size.key: "{value}"}},
        }
    profile["profile_options"] = {OPTION: option}
    return profile


def _choice(preset: Preset) -> dict[str, Any]:
    choice: dict[str, Any] = {"display_name": _html(preset.request.describe())}
    if preset.preselected:
        choice["default"] = True
    choice["kubespawner_override"] = {"extra_resource_limits": preset.limits}
    return choice


def _each(size: Size) -> str:
    """What stands beside the number: the rest of ``1 GPU × 50 %``."""
    _, _, share = size.request.describe().partition(" × ")
    return f"{share} of each GPU" if share else "Whole GPUs"


def _html(text: str) -> str:
    return html.escape(text).replace("{", "&#123;").replace("}", "&#125;")
