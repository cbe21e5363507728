"""The checks that need the forms' list or GPU pods' words, by tables; and what the command imports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bitfusion_cluster.doctor import places
from bitfusion_cluster.doctor.finding import FAIL, OK, WARN
from jupyter_ext.spawner.form_change import put_in
from jupyter_ext.spawner.sizes import parse_sizes
from jupyter_ext.spawner.yaml_document import parse_document
from kubeflow_bitfusion.check_form import check_form
from kubeflow_bitfusion.check_network import check_network
from kubeflow_bitfusion.cli import main
from kubeflow_bitfusion.form_in_cluster import KEPT, NoForm, find_form
from tests.bitfusion_cluster.doctor.objects import World, named
from tests.bitfusion_cluster.fake_api import FakeApi
from tests.jupyter_ext.spawner.spawner_configs import NEWER

ROOT = Path(__file__).parents[2]
SIZES = "sizes: [{label: GPU}]"
FORM = f"{places.deployments('kubeflow')}/jupyter-web-app-deployment"
MAP = "/api/v1/namespaces/kubeflow/configmaps/jupyter-web-app-config-abc"


def form(text: str, sizes: str = SIZES, world: World | None = None, **volume_mount: Any) -> World:
    """Kubeflow's form with this file."""
    mount = {"name": "config-volume", "mountPath": "/etc/config", **volume_mount}
    spec = {
        "containers": [{"name": "jupyter-web-app", "volumeMounts": [mount]}],
        "volumes": [{"name": "config-volume", "configMap": {"name": "jupyter-web-app-config-abc"}}],
    }
    world = world or World().engine()
    world.paths[FORM] = {"spec": {"template": {"spec": spec}}}
    world.paths[MAP] = {"metadata": {"resourceVersion": "1"}, "data": {"spawner_ui_config.yaml": text}}
    return world.file("bitfusion-notebook-sizes", "sizes.yaml", sizes)


def with_sizes(sizes: str) -> str:
    return put_in(NEWER, None, parse_sizes(parse_document(sizes, "s")), "", "f").text


@pytest.mark.parametrize(
    ("text", "sizes", "check", "state", "seen"),
    [
        (with_sizes(SIZES), SIZES, "form", OK, "offers GPU, as sizes.yaml has them"),
        (with_sizes(SIZES), "", "form", OK, "JupyterLab's list is derived from the pool"),
        (NEWER, SIZES, "form", FAIL, "offers no Bitfusion size .*jupyter-web-app-config-abc"),
        (with_sizes("sizes: [{label: Other}]"), SIZES, "form", WARN, "does not offer GPU and offers Other"),
        (with_sizes("sizes: [{label: GPU}, {label: B, number: 2}]"), SIZES, "form", WARN, "it offers B$"),
        ("a: 1", SIZES, "form", FAIL, "has no spawnerFormDefaults"),
        (NEWER, SIZES, "sizes", OK, "GPU: each has a rule"),
        (NEWER, "sizes: [{label: H, share: 50}]", "sizes", FAIL, "no rule of pods.yaml serves H"),
        (NEWER, "sizes: 1", "sizes", FAIL, "must be a list"),
        (NEWER, "{", "sizes", FAIL, "is not YAML"),
        (NEWER, "!!bool x", "sizes", FAIL, "has a value that cannot be read"),
    ],
)
def test_the_form(text: str, sizes: str, check: str, state: str, seen: str) -> None:
    (found,) = (each for each in check_form(form(text, sizes).seen()) if each.check == check)
    assert (found.state, bool(found.todo)) == (state, state != OK)
    assert re.search(seen, found.seen), found


def test_with_a_pool_sizes_need_no_rule() -> None:
    world = form(NEWER, "sizes: [{label: H, share: 50}]", World().engine("stand-in"))
    assert [each.state for each in check_form(world.seen()) if each.check == "sizes"] == [OK]


def test_without_a_form_sizes_are_chosen_elsewhere() -> None:
    world = World().engine().file("bitfusion-notebook-sizes", "sizes.yaml", SIZES)
    assert [each.state for each in check_form(world.seen())] == [OK, OK]


def test_a_form_is_found_by_its_volume() -> None:
    world = form(NEWER)
    found = find_form(world.seen().one, "kubeflow")
    assert (found.name, found.version, found.kept, found.read_once) == (
        "jupyter-web-app-config-abc",
        "1",
        False,
        False,
    )
    assert find_form(form(NEWER, subPath="x").seen().one, "kubeflow").read_once
    world.paths[FORM]["spec"]["template"]["spec"]["volumes"][0]["name"] = "other"
    assert find_form(world.seen().one, "kubeflow").name == found.name
    del world.paths[MAP]
    with pytest.raises(NoForm, match="ConfigMap jupyter-web-app-config-abc"):
        find_form(world.seen().one, "kubeflow")
    del world.paths[FORM]
    with pytest.raises(NoForm, match="Deployment jupyter-web-app-deployment"):
        find_form(world.seen().one, "kubeflow")
    world = form(NEWER)
    world.paths[FORM]["spec"]["template"]["spec"]["volumes"] = []
    with pytest.raises(NoForm):
        find_form(world.seen().one, "kubeflow")


def policy(name: str, **spec: Any) -> Any:
    return named(name, "ada", spec={"podSelector": {}, **spec})


OPEN = {"ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 8778}]}]}


@pytest.mark.parametrize(
    ("policies", "states", "seen"),
    [
        ([], [OK], "TCP port 8778"),
        ([policy("deny", policyTypes=["Ingress"])], [WARN], "ada: deny closes TCP port 8778 into GPU pods"),
        ([policy("deny", policyTypes=["Egress"])], [WARN], "out of notebooks"),
        ([policy("deny", policyTypes=["Egress", "Ingress"])], [WARN, WARN], "out of notebooks"),
        ([policy("deny", policyTypes=["Ingress"]), policy("open", **OPEN)], [OK], "8778"),
        ([named("of-others", "ben", spec={"podSelector": {}, "policyTypes": ["Egress"]})], [OK], "8778"),
    ],
)
def test_the_network(policies: list[Any], states: list[str], seen: str) -> None:
    world = World().engine().users("ada").put(places.NETWORK_POLICIES, *policies)
    found = list(check_network(world.seen()))
    assert [each.state for each in found] == states
    assert seen in found[0].seen
    assert list(check_network(world.engine("stand-in").seen())) == []


def test_the_port_is_that_of_the_settings() -> None:
    world = World().engine(rules="port: 9000").users("ada")
    assert "TCP port 9000" in next(iter(check_network(world.seen()))).seen


def test_the_policies_of_thousands_of_namespaces_take_no_longer_than_a_second() -> None:
    names = [f"n{at}" for at in range(3000)]
    spec = {"podSelector": {"matchLabels": {"app": "other"}}}
    policies = [named("p", name, spec=spec) for name in names]
    world = World().engine().users(*names).put(places.NETWORK_POLICIES, *policies)
    began = time.process_time()
    assert [each.state for each in check_network(world.seen())] == [OK]
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--apply", "--give-back"], "not allowed with"),
        (["--apply", "--config", "x"], "--config cannot be combined with --apply"),
        (["--give-back", "--hook"], "--hook cannot be combined with --give-back"),
        (["s.yaml", "--give-back"], "--give-back takes neither a list of sizes"),
        (["--apply", "--pods", "x"], "--pods needs a list of sizes"),
        (["--apply", "--namespace", "../a"], "must be a namespace's name, such as kubeflow: '../a'"),
        (["--apply", "--namespace", ""], "must be a namespace's name"),
        (["--if-there"], "are for --apply and --give-back"),
        (["s.yaml", "--kubeconfig", "x"], "are for --apply and --give-back"),
    ],
)
def test_what_does_not_go_together_is_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["form", *words])
    except SystemExit as ended:
        status = int(str(ended.code))
    assert status == 2
    assert told in capsys.readouterr().err


def test_the_kubeconfig_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
    place = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"  # as it was at the import
    monkeypatch.setattr(place, f"{tmp_path}/none")
    assert main(["doctor"]) == 1
    assert f"were found: {tmp_path}/none: it has" in capsys.readouterr().err
    for path, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        assert main(["doctor", f"--kubeconfig={path}"]) == 1
        err = capsys.readouterr().err
        assert f'"{path}": ' in err
        assert why in err


@pytest.mark.parametrize("namespace", ["\udcff", "", "a b", "ü", "a" * 64, "a/b", "-a", "a\n"])
def test_a_namespace_that_can_be_none_is_wrongly_asked(
    namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", f"--namespace={namespace}"])
    assert ended.value.code == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert "must be a namespace's name, such as kubeflow: " in err
    assert err.isprintable()


def test_no_way_into_a_cluster_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["doctor"], ["form", "--give-back"]):
        assert main([*words, f"--kubeconfig={tmp_path}/none"]) == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "it has no credentials that can be used" in err
        assert err.endswith("; name another file, or leave the setting out\n")


@pytest.mark.parametrize("kept", [None, "cut off", "[" * 200_000])
def test_sizes_that_nobody_noted_are_not_said_to_be_gone(
    kept: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, api = form(with_sizes(SIZES)), FakeApi()
    about = {"namespace": "kubeflow", "annotations": {} if kept is None else {KEPT: kept}}
    names = {FORM: "jupyter-web-app-deployment", MAP: "jupyter-web-app-config-abc"}
    for path, collection in ((FORM, "/apis/apps/v1/deployments"), (MAP, "/api/v1/configmaps")):
        api.put(collection, {**world.paths[path], "metadata": {**about, "name": names[path]}})
    (tmp_path / "config").write_text(CONFIG.replace("SERVER", api.url))
    try:
        assert main(["form", "--give-back", f"--kubeconfig={tmp_path}/config"]) == 0
        stored = api.object("/api/v1/configmaps", "kubeflow", names[MAP])
    finally:
        api.close()
    assert stored is not None
    assert stored["data"]["spawner_ui_config.yaml"] == with_sizes(SIZES)
    assert "nothing notes that --apply put in the Bitfusion entries" in capsys.readouterr().out


CONFIG = """\
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: 'SERVER'}}]
users: [{name: a, user: {token: t}}]
"""


def test_a_command_that_asks_once_does_not_say_that_it_asks_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").write_text(CONFIG.replace("SERVER", "http://127.0.0.1:1"))
    assert main(["form", "--give-back", f"--kubeconfig={tmp_path}/config"]) == 1
    assert capsys.readouterr().err.endswith(
        "\nWhat to do: check the API server and the network to it, and run the command again.\n"
    )


def test_help_waits_for_no_library_of_a_cluster() -> None:
    code = "import json, sys; import kubeflow_bitfusion.cli; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    heavy = {
        "yaml",
        "kubernetes",
        "urllib3",
        "cryptography",
        "tornado",
        "bitfusion_cluster",
        "bitfusion_pods",
    }
    assert loaded & heavy == set()
