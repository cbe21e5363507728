"""The images as `make images` makes them: built by buildah, pushed to a registry, run on a node.

`make images-check`, since building and pushing them takes minutes.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cluster.image_files import why_no_images
from tests.cluster.node import Node
from tests.cluster.pods import SECURITY, Pods
from tests.support.waiting import wait_until
from tests.tools.clones import git
from tests.tools.image_place import Place, place, registry
from tools.images import registry as asked
from tools.images.lock import Locked, parse
from tools.images.wishes import NAMES

NOTEBOOK = "ghcr.io/kubeflow/kubeflow/notebook-servers/jupyter:v1.10.0"
OWN_LAYERS = 3
"""Of the notebook's image: COPY, RUN, RUN."""
LIMIT_MB = 120
USERS = {"notebook": "1000"}
"""The user of its base; all others have one of their own."""

pytestmark = [
    *(pytest.mark.long, pytest.mark.apart, pytest.mark.timeout(1500), pytest.mark.xdist_group("images")),
]


@pytest.fixture(autouse=True)
def _possible() -> None:
    reason = why_no_images()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def address(node: Node, folder: Path) -> Iterator[str]:
    """Of a registry that this machine and the node reach."""
    with registry(folder, node.host_address) as found:
        yield found


@pytest.fixture(scope="module")
def built(folder: Path, address: str) -> Place:
    """Where all images have been built and pushed."""
    if (reason := why_no_images()) is not None:
        pytest.skip(reason)
    found = place(folder, NAMES, NOTEBOOK)
    done = found.images("--registry", f"{address}/team", "--insecure")
    assert done.returncode == 0, done.stdout[-4000:]
    (folder / "told").write_text(done.stdout)
    print(*[line for line in done.stdout.splitlines() if "compressed" in line], sep="\n")
    return found


@pytest.fixture
def locked(built: Place) -> dict[str, Locked]:
    return parse((built.clone / "images.lock.yaml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_small_runs_as_nobody_and_says_where_it_comes_from(
    built: Place, locked: dict[str, Locked], name: str
) -> None:
    (image,) = asked.images(f"{locked[name].repository}@{locked[name].digest}", insecure=True)
    layers = image.layers[-OWN_LAYERS:] if name == "notebook" else image.layers
    assert sum(layers) < LIMIT_MB * 1e6
    assert image.user == USERS.get(name, "65532:65532")
    commit, date = git(built.clone, "log", "-1", "--format=%H %cI").split()
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.labels.items()}
    assert (labels["title"], labels["version"], labels["revision"]) == (name, "0.1.0", commit)
    assert labels["created"] == date.replace("+00:00", "Z")
    assert "source" not in labels, "a clone of a folder has no address"


def test_an_sbom_says_what_is_in_it_where_syft_is_there(built: Place, folder: Path) -> None:
    told = (folder / "told").read_text()
    if shutil.which("syft", path=built.env["PATH"]) is None:
        assert "· no SBOM: syft was not found" in told
        return
    for name, package in (("pool", "prometheus-client"), ("notebook-controller", "kubernetes")):
        file = f"build/sbom/{name}.spdx.json"
        assert f"SBOM: {file}" in told
        packages = {each["name"] for each in json.loads((built.clone / file).read_text())["packages"]}
        assert {"kubeflow-bitfusion", package} <= packages


def test_kustomize_names_what_was_pushed(node: Node, built: Place, locked: dict[str, Locked]) -> None:
    overlay = built.clone / "mine"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        "resources: [../manifests/overlays/kubeflow, ../manifests/samples/pool]\n"
        "components: [../images-lock]\n"
    )
    text = node.cluster.kubectl("kustomize", str(overlay))
    for name in ("notebook-controller", "pool"):
        images = set(re.findall(rf"image: (\S*/{name}\S*)", text))
        assert images == {f"{locked[name].repository}@{locked[name].digest}"}


@pytest.mark.parametrize(
    ("name", "command", "said"),
    [
        ("notebook-controller", ["bitfusion-injector", "--version"], "bitfusion-injector 0.1.0"),
        ("pool", ["bitfusion-pool", "--help"], "show GPUs, who holds them and who waits"),
        ("client", ["/bitfusion-image/client/bin/sh", "-c", "echo $0 here"], "here"),
        ("notebook", ["jupyter", "kernelspec", "list"], "bitfusion"),
    ],
)
def test_a_node_pulls_it_by_its_digest_and_runs_it_restricted(
    node: Node, locked: dict[str, Locked], name: str, command: list[str], said: str
) -> None:
    image = f"{locked[name].repository}@{locked[name].digest}"
    node.ctr("images", "pull", "--plain-http", image, limit_s=300)
    pods = Pods(node, node.cluster.new_namespace({"pod-security.kubernetes.io/enforce": "restricted"}))
    pods.create(
        {
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "nodeName": node.name,
                "containers": [
                    {
                        "name": "main",
                        "image": image,
                        "imagePullPolicy": "Never",
                        "command": command,
                        "securityContext": {**SECURITY, "readOnlyRootFilesystem": name != "notebook"},
                    }
                ],
            },
        }
    )
    wait_until(lambda: pods.get(name)["status"]["phase"] in ("Succeeded", "Failed"), limit_s=120)
    assert pods.get(name)["status"]["phase"] == "Succeeded", pods.told(name)
    assert said in pods.logs(name)


def test_two_platforms_are_one_name_and_a_base_is_pinned_by_its_digest(built: Place, address: str) -> None:
    """Of an image without RUN, which any machine can build for both."""
    base = f"{address}/team/client:0.1.0"
    file = built.clone / "manifests" / "images" / "client" / "Containerfile"
    before = file.read_text()
    pins = built.clone / "requirements" / "base-images.digests"
    try:
        file.write_text("FROM scratch\nCOPY bitfusion_client/__init__.py /\nUSER 7\n")
        words = ("--registry", f"{address}/both", "--insecure", "--only", "client")
        for _ in range(2):  # the second list has no image of the first
            done = built.images(*words, "--platform", "linux/amd64,linux/arm64", "--sbom", "none")
            assert done.returncode == 0, done.stdout[-3000:]
            image = parse((built.clone / "images.lock.yaml").read_text())["client"]
            found = asked.images(f"{image.repository}@{image.digest}", insecure=True)
            assert [each.platform for each in found] == ["linux/amd64", "linux/arm64"]
            assert re.findall(r"linux/\w+: 0.0 MB compressed, USER 7", done.stdout)
        file.write_text(f"ARG A_IMAGE={base}\nFROM ${{A_IMAGE}}\nCOPY bitfusion_client/__init__.py /\n")
        pinned = built.images("--pin", "--insecure", "--only", "client")
        digest = asked.digest(base, insecure=True)
        assert (pinned.returncode, pinned.stdout) == (0, f"{base} {digest}  (new)\n")
        assert pins.read_text().endswith(f"\n{base} {digest}\n")
        done = built.images("--no-push", "--only", "client", "--dry-run", "--builder", "buildah")
        assert f"--build-arg A_IMAGE={address}/team/client@{digest}" in done.stdout
        words = ("--no-push", "--only", "client", "--tag", "2")
        done = built.images(*words, more=("--tls-verify=false",))
        assert done.returncode == 0, done.stdout[-3000:]
        values = yaml.safe_load((built.clone / "images.lock.yaml").read_text())["images"]["client"]
        assert values == {"repository": "kubeflow-bitfusion/client", "tag": "2", "digest": ""}
    finally:
        file.write_text(before)
        pins.unlink(missing_ok=True)


class _Refuses(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="here"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def refusing() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refuses) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_push_that_is_refused_is_told_with_what_to_do(built: Place) -> None:
    lock = (built.clone / "images.lock.yaml").read_text()
    with refusing() as host:
        done = built.images("--registry", f"{host}/team", "--insecure", "--only", "client")
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("images: buildah push --digestfile … ended with ")
    assert last.endswith(f"Log in with an account that may write there: buildah login {host}")
    assert (built.clone / "images.lock.yaml").read_text() == lock
    done = built.images("--registry", "127.0.0.1:1/team", "--only", "client")
    assert "A registry cannot be reached from here" in done.stdout.splitlines()[-1]
