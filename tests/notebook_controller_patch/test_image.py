"""The Containerfile: what it says, and its steps followed in a fresh environment.

No image is built: that needs a registry. What `pip` is told is read from the file, so that the steps that
are followed are the image's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import Cluster, fetch
from tests.notebook_controller_patch.installation import NAME, Installation
from tests.support.machine import scaled
from tests.support.place import MARK
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "manifests" / "images" / "notebook-controller"
PLACE = "/opt/controller"
COPIED_WHEEL = "kubeflow_bitfusion-*.whl"
JUPYTER = ("ipykernel", "ipython", "jupyter", "pyzmq", "trait")


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Containerfile and its words, continued lines joined, comments left out."""
    lines = (IMAGE / "Containerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if line and not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines())]


def of(word: str) -> list[str]:
    return [rest for name, rest in instructions() if name == word]


def commands() -> list[list[str]]:
    """The words of every RUN."""
    return [json.loads(rest) if rest.startswith("[") else shlex.split(rest) for rest in of("RUN")]


def deployment() -> dict[str, object]:
    folder = ROOT / "manifests" / "base" / "controller"
    documents = yaml.safe_load_all((folder / "deployment.yaml").read_text())
    template: dict[str, object] = next(documents)["spec"]["template"]["spec"]
    return template


def containers() -> list[dict[str, Any]]:
    found = deployment()["containers"]
    assert isinstance(found, list)
    return found


def test_it_runs_the_command_as_the_user_of_the_manifests() -> None:
    context = deployment()["securityContext"]
    assert isinstance(context, dict)
    assert of("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"] == ["65532:65532"]
    assert [json.loads(words) for words in of("ENTRYPOINT")] == [["bitfusion-notebook-controller"]]
    assert of("CMD") == []
    project = (ROOT / "pyproject.toml").read_text()
    assert 'bitfusion-notebook-controller = "notebook_controller_patch.settings:main"' in project
    # the command is found on PATH: no shell takes part
    assert any(words.startswith(f"PATH={PLACE}/bin:") for words in of("ENV"))
    (container,) = containers()
    assert "command" not in container


def test_its_ports_are_those_of_the_manifests() -> None:
    (container,) = containers()
    ports = [str(port["containerPort"]) for port in container["ports"]]
    assert of("EXPOSE")[0].split() == ports


def test_everything_comes_by_its_hash_from_the_one_lock() -> None:
    locked, wheel = (words for words in commands() if "install" in words)
    assert {"--require-hashes", "--only-binary=:all:"} <= set(locked)
    assert locked[-2:] == ["-r", "/build/controller.txt"]
    assert "requirements/controller.txt /build/controller.txt" in of("COPY")
    assert {"--no-deps", "--no-index"} <= set(wheel)
    assert wheel[-1] == f"/build/{COPIED_WHEEL}"
    for words in commands():
        assert not {"curl", "wget", "apt-get", "git"} & set(words)


def test_both_stages_stand_on_one_image_whose_patch_release_make_images_pins() -> None:
    (base,) = of("ARG")
    name, _, image = base.partition("=")
    assert name == "PYTHON_IMAGE"
    _, _, tag = image.rpartition(":")
    assert re.fullmatch(r"3\.1\d-slim-\w+", tag), "a tag that --pin finds newer patch releases of"
    assert [words.split()[0] for words in of("FROM")] == ["${PYTHON_IMAGE}"] * 2


def test_only_what_it_copies_is_sent_to_the_build() -> None:
    lines = (IMAGE / "Containerfile.dockerignore").read_text().splitlines()
    sent = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert [line for line in lines if line and line[0] not in "#!"] == ["*"]
    copied = [words.split()[0] for words in of("COPY") if not words.startswith("--from")]
    assert sent == copied


def test_the_lock_holds_nothing_of_jupyter() -> None:
    locked = [
        line.partition("==")[0]
        for line in (ROOT / "requirements" / "controller.txt").read_text().splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    ]
    assert {"kubernetes", "tornado", "cryptography", "prometheus-client", "pyyaml"} <= set(locked)
    assert not [name for name in locked if name.startswith(JUPYTER)]


def python_for_others() -> str:
    """A Python that another user can run too: ours may lie in a home folder."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        path = Path(os.path.realpath(candidate))
        if path.exists() and all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents)):
            version = subprocess.run([path, "-V"], capture_output=True, text=True).stdout.split()[1]
            if (3, 10) <= tuple(map(int, version.split(".")[:2])) <= (3, 13):
                return str(path)
    return sys.executable


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """What the Containerfile's steps make of a fresh environment: its /opt/controller."""
    folder = Path(tempfile.mkdtemp(prefix="bft-image-"))
    folder.chmod(0o755)
    try:
        place, build = folder / "controller", folder / "build"
        build.mkdir()
        wheels = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*wheels, "--wheel-dir", str(build), str(ROOT)], check=True)
        (wheel,) = build.glob("kubeflow_bitfusion-*.whl")
        shutil.copy(ROOT / "requirements" / "controller.txt", build)
        for words in commands():
            python = python_for_others() if "venv" in words else sys.executable
            assert words[0] == "python3"
            followed = [
                word.replace(PLACE, str(place))
                .replace("/build/", f"{build}/")
                .replace(COPIED_WHEEL, wheel.name)
                for word in words[1:]
                if word != "--no-cache-dir"
            ]
            subprocess.run([python, *followed], check=True, capture_output=True, cwd=folder)
        yield place
    finally:
        shutil.rmtree(folder)


@pytest.mark.apart
@pytest.mark.long
@pytest.mark.timeout(600)
def test_its_steps_make_a_working_command_without_jupyter(image: Path, tmp_path: Path) -> None:
    bare = {"PATH": "/usr/bin:/bin"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=bare)

    shown = run(str(image / "bin" / "bitfusion-notebook-controller"), "--version")
    assert shown.returncode == 0
    assert shown.stdout.startswith("bitfusion-notebook-controller ")
    python = str(image / "bin" / "python")
    done = run(python, "-c", "import notebook_controller_patch.controller")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("ipykernel", "IPython", "jupyter_client", "zmq", "traitlets", "pip", "kubernetes_validate"):
        done = run(python, "-c", f"import {name}")
        assert f"No module named '{name}'" in done.stderr


# A pod's view, in mount namespaces of its own: its ServiceAccount where the kubelet puts it, everything else
# read-only, /tmp included; user, group and capabilities as the Deployment says.
POD = """
set -e
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
mount --bind "$ACCOUNT" /run/secrets/kubernetes.io/serviceaccount
for place in $(awk '$4 ~ /^rw/ {print $2}' /proc/mounts); do
    mount -o remount,bind,ro "$place" 2>/dev/null || true
done
exec setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set=-all "$@"
"""


@pytest.mark.apart
@pytest.mark.long
@pytest.mark.timeout(600)
def test_it_runs_as_its_pod_would(image: Path, cluster: Cluster, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("a pod's view of the file system needs the right to make mount namespaces")
    with Installation(cluster, tmp_path) as installed:
        account = image.parent / "account"
        account.mkdir()
        (account / "token").write_text(cluster.service_account_token(installed.namespace, NAME))
        (account / "namespace").write_text(installed.namespace)
        shutil.copy(cluster.ca, account / "ca.crt")
        for file in account.iterdir():
            file.chmod(0o644)
        ports = [str(port) for port in free_ports(2)]
        command = [
            str(image / "bin" / "bitfusion-notebook-controller"),
            "--certificate-names=127.0.0.1",
            "--drain=0",
            f"--port={ports[0]}",
            f"--monitoring-port={ports[1]}",
        ]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "ACCOUNT": str(account),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": cluster.server.rpartition(":")[2],
            "PYTHONDONTWRITEBYTECODE": "1",
            MARK: os.environ[MARK],
        }
        log = tmp_path / "pod.log"
        with (
            log.open("wb") as said,
            subprocess.Popen(
                ["unshare", "--mount", "bash", "-c", POD, "pod", *command],
                stderr=said,
                env=environment,
                cwd="/",
            ) as process,
        ):
            try:
                wait_until(lambda: fetch(f"http://127.0.0.1:{ports[1]}/readyz") == "ok\n", str(log), 20)
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                status = dict(line.split(":\t", 1) for line in lines)
                mounts = Path(f"/proc/{process.pid}/mounts").read_text().splitlines()
            except BaseException:
                print(log.read_text())
                process.kill()
                raise
            process.send_signal(signal.SIGTERM)
            assert process.wait(scaled(20)) == 0
        assert status["Uid"].split() == ["65532"] * 4
        assert (int(status["CapEff"], 16), status["NoNewPrivs"]) == (0, "1")
        (root,) = [line.split()[3] for line in mounts if line.split()[1] == "/"]
        assert root.startswith("ro,")
        assert "Traceback" not in log.read_text()
        assert installed.bundles()[0].startswith(b"-----BEGIN CERTIFICATE-----")
