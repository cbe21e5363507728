"""The pages on Kubeflow's form, followed word by word on a cluster; samples are the command's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from jupyter_ext.spawner.form_command import summary
from jupyter_ext.spawner.form_config import form_gpus
from jupyter_ext.spawner.sizes import example, parse_sizes
from jupyter_ext.spawner.yaml_document import parse_document
from tests.cluster.cluster import Cluster
from tests.jupyter_ext.spawner.doc_shell import put_commands, run
from tests.jupyter_ext.spawner.kubeflow_manifests import write_manifests
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
PAGE = "".join(
    (ROOT / "docs" / "how-to" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("form-sizes", "form-kustomize", "form-hook")
)
NAMESPACE = "/api/v1/namespaces/kubeflow"
DEPLOYMENTS = "/apis/apps/v1/namespaces/kubeflow/deployments"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_list_on_the_page_is_the_example() -> None:
    listed, others, *_ = blocks("yaml")
    assert yaml.safe_load(listed) == yaml.safe_load(example())
    uncommented = re.sub(r"^#(?=other_vendors:|-|  key)", "", example(), flags=re.MULTILINE)
    assert yaml.safe_load(others)["other_vendors"] == yaml.safe_load(uncommented)["other_vendors"][:1]


def test_the_list_for_jupyterlab_takes_the_place_of_the_injectors() -> None:
    (given,) = yaml.safe_load(blocks("yaml")[3])
    base = yaml.safe_load((ROOT / "manifests/base/injector/kustomization.yaml").read_text())
    (own,) = [each for each in base["configMapGenerator"] if each["name"] == given["name"]]
    assert (given["behavior"], given["files"]) == ("replace", own["files"])
    assert (given["namespace"], own["name"]) == ("kubeflow", "bitfusion-notebook-sizes")


def test_the_table_on_the_page_is_the_commands() -> None:
    sizes = parse_sizes(parse_document(example(), "sizes.yaml"))
    assert blocks("text")[0] == "\n".join(summary(sizes, form_gpus(sizes))[:-2]) + "\n"


def test_sizes_with_a_number_are_shown_as_on_the_page() -> None:
    sizes = parse_sizes(parse_document(example() + blocks("yaml")[2], "sizes.yaml"))
    assert "\n" + blocks("text")[2] in "\n".join(summary(sizes, form_gpus(sizes)))


def test_the_picture_shows_the_sizes_of_the_example() -> None:
    picture = ElementTree.parse(ROOT / "docs/images/form-sizes.svg")
    texts = picture.getroot().findall("{http://www.w3.org/2000/svg}text")
    shown = [text.text for text in texts if text.get("class") == "vendor"]
    sizes = parse_sizes(parse_document(example(), "sizes.yaml"))
    assert shown == ["NVIDIA", "AMD", *(size.label for size in sizes.sizes)]
    (limits,) = [text.text for text in texts if text.get("class") == "code"]
    assert limits == f'{sizes.sizes[1].key}: "2"'


@pytest.fixture
def shell(tmp_path: Path, cluster: Cluster) -> Iterator[Path]:
    """A folder with Kubeflow's manifests, where both commands are on PATH; and a namespace for the form."""
    put_commands(tmp_path / "bin", cluster)
    place = tmp_path / "manifests"
    for version in ("1.7", "1.10"):
        write_manifests(place, version)
    # the namespace may be going still, with what another test had in it
    wait_until(lambda: not cluster.client.exists(NAMESPACE), limit_s=40)
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": "kubeflow"}})
    try:
        cluster.kubectl(
            "apply", "-k", str(place / "applications/jupyter/jupyter-web-app/upstream/overlays/istio")
        )
        yield place
    finally:
        cluster.client.delete(NAMESPACE)
        wait_until(lambda: not cluster.client.exists(NAMESPACE), limit_s=40)


def offered(cluster: Cluster) -> tuple[list[str], dict[str, object]]:
    """Vendors in the ConfigMap that the form's Deployment mounts, and the Deployment's container."""
    pod = cluster.client.get(f"{DEPLOYMENTS}/jupyter-web-app-deployment")["spec"]["template"]["spec"]
    names = [item["configMap"]["name"] for item in pod["volumes"]]
    maps = [cluster.client.get(f"{NAMESPACE}/configmaps/{name}")["data"] for name in names]
    (text,) = [data["spawner_ui_config.yaml"] for data in maps if "spawner_ui_config.yaml" in data]
    vendors = yaml.safe_load(text)["spawnerFormDefaults"]["gpus"]["value"]["vendors"]
    return [vendor["uiName"] for vendor in vendors], pod["containers"][0]


OURS = ["BITFUSION", "BITFUSION 50 %", "BITFUSION 25 %", "BITFUSION 8 GiB"]
NUMBERED = ["BITFUSION 3 × 50 %", "BITFUSION 3"]


@pytest.mark.runs("docs/how-to/form-sizes.md", "docs/how-to/form-kustomize.md", "docs/how-to/form-hook.md")
def test_the_page_can_be_followed_word_by_word(shell: Path, cluster: Cluster) -> None:
    example_, look, image, component, apply, overlay, patched, hook, alone, images = blocks("sh")
    assert offered(cluster)[0] == ["NVIDIA", "AMD", "Intel Gaudi"]
    run(shell, example_)
    assert blocks("text")[0] in run(shell, look).stderr

    assert run(shell, image).stdout == blocks("text")[3]
    run(shell, component)
    run(shell, apply)
    assert offered(cluster)[0] == ["NVIDIA", "AMD", "Intel Gaudi", *OURS]

    run(shell, overlay)
    assert offered(cluster)[0] == ["NVIDIA", "AMD", *OURS]

    with (shell / "sizes.yaml").open("a") as file:
        file.write(blocks("yaml")[2] + "other_vendors: []\n")
    run(shell, patched)
    vendors, container = offered(cluster)
    assert vendors == [*OURS, *NUMBERED]
    assert "GUNICORN_CMD_ARGS" not in str(container)

    run(shell, hook)
    vendors, container = offered(cluster)
    assert vendors == [*OURS, *NUMBERED]
    assert "--config /etc/bitfusion/bitfusion_form_hook.py" in str(container["env"])

    # taking it away again: Kubeflow's folder, without ours
    run(shell, "kubectl apply -k applications/jupyter/jupyter-web-app/upstream/overlays/istio")
    vendors, container = offered(cluster)
    assert vendors == ["NVIDIA", "AMD", "Intel Gaudi"]
    assert "bitfusion" not in str(container)

    run(shell, alone)
    before = (shell / "bitfusion_form_hook.py").read_text(encoding="utf-8")
    run(shell, images)
    assert "('team/*', 'ubuntu20', '450')" in (shell / "bitfusion_form_hook.py").read_text(encoding="utf-8")
    assert "('team/*'" not in before


def test_the_mistake_on_the_page_is_told_in_these_words(tmp_path: Path) -> None:
    path = tmp_path / "sizes.yaml"
    path.write_text("sizes:\n- label: A\n\n- label: B\n  share: 101 %\n")
    command = [sys.executable, "-c", "import sys; from kubeflow_bitfusion.cli import main; sys.exit(main())"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "form", str(path)], env=environ, capture_output=True, text=True)
    assert done.stderr == blocks("text")[1]
