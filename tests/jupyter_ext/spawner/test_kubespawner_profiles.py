"""Profiles for JupyterHub: what stands in them, and the pods that the real KubeSpawner makes of them."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_client.pod.pod_contract import LABEL_NOTEBOOK
from bitfusion_client.pod.this_pod import ThisPod
from bitfusion_cluster.api.events import NORMAL
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from bitfusion_device_plugin.queue.pod_states import queued_pod
from bitfusion_device_plugin.queue.words import event_about, event_body, waits
from jupyter_ext.spawner.kubespawner_profiles import helm_values, hub_configuration, profile_list
from jupyter_ext.spawner.presets import NUMBERS, presets
from jupyter_ext.spawner.sizes import SizeList, example, parse_sizes
from jupyter_ext.spawner.yaml_document import parse_document
from tests.bitfusion_device_plugin.injector.pods import inject
from tests.jupyter_ext.spawner.hub_pods import Choice, spawned
from tests.support.schemas import validate

pytestmark = pytest.mark.xdist_group("kubespawner")  # what it imports takes seconds in each process

IMAGE = "registry.example.com/team/notebook:1.0"
HUB = "jupyterhub"
SETTINGS = InjectorSettings(gpu_memory_mib=16384)
# As the chart and administrators set them for all; a choice must leave them where they are.
ALL_SERVERS = (
    "c.KubeSpawner.image = 'quay.io/jupyterhub/k8s-singleuser-sample:4.2.0'\n"
    "c.KubeSpawner.uid = 1000\nc.KubeSpawner.fs_gid = 100\nc.KubeSpawner.cmd = ['jupyterhub-singleuser']\n"
    "c.KubeSpawner.cpu_limit = 2\nc.KubeSpawner.mem_guarantee = '1G'\n"
    "c.KubeSpawner.extra_resource_limits = {'example.com/fast-disk': '1'}\n"
    "c.KubeSpawner.extra_labels = {'team': 'vision'}\n"
)
ODD = 'A {{ 1 + 1 }} {% x %} <b>"&" \'½'


def listed(text: str) -> SizeList:
    return parse_sizes(parse_document(text, "sizes.yaml"))


SIZES = listed(example())


def test_profiles_as_values_of_the_chart_and_as_a_file_of_the_hub_are_the_same() -> None:
    profiles = profile_list(SIZES, IMAGE, any_number=True)
    assert yaml.safe_load(helm_values(profiles, "sizes.yaml")) == {"singleuser": {"profileList": profiles}}

    class Hub:
        class KubeSpawner:
            profile_list: list[Any]

    exec(hub_configuration(profiles, "sizes.yaml"), {"c": Hub})
    assert Hub.KubeSpawner.profile_list == profiles
    for text in (helm_values(profiles, "a\nb"), hub_configuration(profiles, "a\nb")):
        head = "# Written by `kubeflow-bitfusion profiles` from a?b: edit that list and run it again."
        assert text.splitlines()[0] == head


def test_no_gpu_comes_first_and_is_preselected_unless_a_size_is() -> None:
    first, *others = profile_list(SIZES, IMAGE)
    assert (first["slug"], first["default"]) == ("no-gpu", True)
    assert not any("default" in profile for profile in others)
    first, only = profile_list(listed("sizes:\n- {label: B, share: 50 %, default: true, gpus: 2}"), IMAGE)
    assert "default" not in first
    assert only["default"] is True
    chosen = [k for k, v in only["profile_options"]["gpus"]["choices"].items() if v.get("default")]
    assert chosen == ["2"]


def test_slugs_are_the_sizes_not_their_names() -> None:
    profiles = profile_list(
        listed("sizes:\n- {label: B 50 %, share: 50 %}\n- {label: B 50, share: 49 %}"), IMAGE
    )
    assert [profile["slug"] for profile in profiles] == ["no-gpu", "gpu-50", "gpu-49"]


def test_one_number_needs_no_option() -> None:
    _, half = profile_list(listed("sizes:\n- {label: B, share: 50 %}"), IMAGE, (1,))
    assert "profile_options" not in half
    assert half["description"] == "1 GPU × 50 %"
    assert half["kubespawner_override"]["extra_resource_limits"] == {"bitfusion.io/gpu-50": "1"}
    _, half = profile_list(listed("sizes:\n- {label: B, share: 50 %}"), IMAGE, (1,), any_number=True)
    assert half["profile_options"]["gpus"]["unlisted_choice"]["enabled"] is True


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Every choice that the page offers, as the real KubeSpawner carries it out; and that page."""
    folder = tmp_path_factory.mktemp("hub")
    profiles = profile_list(SIZES, IMAGE, any_number=True)
    configuration = folder / "jupyterhub_config.py"
    (folder / "profiles.py").write_text(hub_configuration(profiles, "sizes.yaml"))
    configuration.write_text(f"{ALL_SERVERS}load_subconfig({str(folder / 'profiles.py')!r})\n")
    return {**spawned(configuration, [choice for choice, _ in EVERY], folder), "profiles": profiles}


EVERY: list[tuple[Choice, str]] = [
    ({}, ""),
    ({"profile": "no-gpu"}, ""),
    *(
        ({"profile": slug, "gpus": str(number)}, str(number * units))
        for slug, units in (("gpu-amount", 100), ("gpu-50", 50), ("gpu-25", 25), ("gpu-8gib", 50))
        for number in NUMBERS
    ),
    ({"profile": "gpu-50"}, "50"),
    ({"profile": "gpu-50", "gpus--unlisted-choice": "7"}, "350"),
]


@pytest.mark.parametrize("place", range(len(EVERY)), ids=[str(choice) for choice, _ in EVERY])
def test_the_pod_of_each_choice_is_served_by_the_injector(served: Mapping[str, Any], place: int) -> None:
    """It keeps all that the hub has set for every server, and is strictly valid with the client, too."""
    units = EVERY[place][1]
    pod = served["pods"][place]
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"]["example.com/fast-disk"] == "1"
    assert pod["metadata"]["labels"]["team"] == "vision"
    after = inject(pod, settings=SETTINGS, namespace=HUB)
    validate(after)
    if not units:
        assert container["image"].startswith("quay.io/")
        assert after == pod
        return
    assert container["image"] == IMAGE
    (with_client,) = after["spec"]["containers"]
    assert with_client["resources"]["limits"] == {
        "bitfusion.io/gpu": units,
        "cpu": 2.0,
        "example.com/fast-disk": "1",
    }
    assert with_client["args"] == container["args"] == ["jupyterhub-singleuser"]
    assert with_client["env"] == container["env"]
    assert "/usr/local/bin/bitfusion" in [mount["mountPath"] for mount in with_client["volumeMounts"]]
    (init,) = after["spec"]["initContainers"]
    assert after["metadata"]["name"] == "jupyter-ada"
    assert init["name"] == "bitfusion-client"
    # for servers without matchConditions, where the webhook is asked by this label
    assert pod["metadata"]["labels"]["bitfusion.io/requested"] == "true"


def test_the_pool_shows_the_pod_of_the_user(served: Mapping[str, Any]) -> None:
    metadata = served["pods"][2]["metadata"]
    notebook = metadata["labels"].get(LABEL_NOTEBOOK, "")
    assert ThisPod(metadata["name"], HUB, notebook, "notebook", "", "").place == "jupyterhub/jupyter-ada"


def test_the_page_shows_every_size_and_number(served: Mapping[str, Any]) -> None:
    page = served["page"]
    for group in presets(SIZES):
        assert f"<h3>{group[0].size.label}</h3>" in page
        for preset in group:
            assert f">{preset.request.describe()}</option>" in page
    assert page.count(">another number</option>") == len(SIZES.sizes)
    assert re.findall(r'value="([a-z0-9-]+)"\s+checked', page) == ["no-gpu"]


@pytest.mark.parametrize("number", ["0", "1000", "1.5", "-1", "2x", "x2", " 2"])
def test_what_is_no_number_does_not_fit_the_pattern_of_page_and_hub(number: str) -> None:
    profiles = profile_list(SIZES, IMAGE, any_number=True)
    pattern = profiles[2]["profile_options"]["gpus"]["unlisted_choice"]["validation_regex"]
    assert not re.match(pattern, number)


@pytest.mark.long
def test_the_hub_refuses_another_number_where_none_may_be_written(tmp_path: Path) -> None:
    configuration = tmp_path / "jupyterhub_config.py"
    odd = listed(f"sizes:\n- label: {yaml.safe_dump(ODD, default_style=chr(34)).strip()}\n  share: 50 %\n")
    configuration.write_text(hub_configuration(profile_list(odd, IMAGE), "sizes.yaml"))
    answer = spawned(configuration, [{"profile": "gpu-50", "gpus--unlisted-choice": "3"}], tmp_path)
    assert answer["pods"] == ["Received unlisted_choice for gpus without being enabled."]
    # and a name that HTML and the hub's templates would take for theirs is shown as it is
    (shown,) = re.findall(r"<h3>(A.*)</h3>", answer["page"])
    assert html.unescape(shown) == ODD
    assert "<b>" not in shown


def test_a_user_who_waits_for_units_reads_why_on_the_hubs_page(tmp_path: Path) -> None:
    configuration = tmp_path / "jupyterhub_config.py"
    configuration.write_text(hub_configuration(profile_list(SIZES, IMAGE), "sizes.yaml"))
    waiting = waits(units=100, taken=150, pool=200, position=1, waiting=2)

    def event(name: str) -> Any:
        pod = {"metadata": {"namespace": HUB, "name": name, "uid": f"uid-{name}"}}
        asking = {"name": "notebook", "resources": {"limits": {"bitfusion.io/gpu": "100"}}}
        queued = queued_pod({**pod, "spec": {"containers": [asking]}})
        assert queued is not None
        return event_body(event_about(queued, None), NORMAL, waiting, "bitfusion-queue-0")

    events = [event("jupyter-ada"), event("jupyter-grace")]
    (told,) = spawned(configuration, [], tmp_path, events)["told"]
    assert told.endswith(f"[Normal] {waiting.message}")


@pytest.mark.long
def test_a_size_of_several_gpus_has_no_number_beside_it(tmp_path: Path) -> None:
    sizes = listed("sizes:\n- {label: B 3 × 50 %, share: 50 %, number: 3}")
    _, three = profile_list(sizes, IMAGE, any_number=True)
    assert (three["slug"], three["description"]) == ("gpu-3x50", "3 GPUs × 50 %")
    assert "profile_options" not in three
    configuration = tmp_path / "jupyterhub_config.py"
    configuration.write_text(hub_configuration(profile_list(sizes, IMAGE), "sizes.yaml"))
    (pod,) = spawned(configuration, [{"profile": "gpu-3x50"}], tmp_path)["pods"]
    (container,) = inject(pod, namespace=HUB)["spec"]["containers"]
    assert container["resources"]["limits"] == {"bitfusion.io/gpu": "150"}
