"""`bitfusion-injector` as an admin types and runs it: help, mistakes, files that change, an orderly end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_device_plugin.injector.settings import TABLE, Settings, main, read_settings
from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.bitfusion_cluster.certificates.pairs import pair
from tests.bitfusion_device_plugin.injector.pods import container, pod
from tests.notebook_controller_patch.admission.live_server import Client
from tests.notebook_controller_patch.admission.reviews import body
from tests.notebook_controller_patch.controller_process import INJECTOR, ControllerProcess, command
from tests.notebook_controller_patch.test_controller import away
from tests.support.files import replace_text
from tests.support.machine import scaled
from tests.support.waiting import wait_until

HALF = {"bitfusion.io/gpu-50": "1"}
NOWHERE = Path("/nonexistent/namespace")


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for setting in TABLE.rows:
        assert f"{setting.option} {setting.metavar}" in shown
    assert "--monitoring-port is BITFUSION_INJECTOR_MONITORING_PORT" in shown
    assert "controller's own" not in shown


def test_the_defaults_are_what_the_manifests_name() -> None:
    assert read_settings({"namespace": "kubeflow"}, {}, NOWHERE) == Settings(
        namespace="kubeflow",
        name="bitfusion-injector",
        certificate_secret="bitfusion-injector-ca",
        webhook_configuration="bitfusion-pod-injection",
        client_image="kubeflow-bitfusion/client:0.1.0",
        gpu_memory=None,
        gates=False,
    )


def test_the_memory_of_a_gpu_is_read_as_people_write_it() -> None:
    environ = {"BITFUSION_INJECTOR_GPU_MEMORY": "16Gi", "BITFUSION_INJECTOR_NAMESPACE": "ns"}
    assert read_settings({}, environ, NOWHERE).gpu_memory == 16384


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--gpu-memory", "16"],
            'Wrong setting --gpu-memory="16": must be at least 256 MiB; did you mean 16Gi?',
        ),
        (
            ["--volume-limit", "big"],
            'Wrong setting --volume-limit="big": must be an amount of memory, such as 8Gi, 8GB or 8192 (MiB)',
        ),
        (
            ["--client-image", "a b"],
            'Wrong setting --client-image="a b": must be an image reference without spaces, at most 512 '
            "characters",
        ),
        (["--node-gpus", "none"], 'Wrong setting --node-gpus="none": must be one of hidden, visible'),
        (
            ["--gpu-nodes", "gpu=a b"],
            'Wrong setting --gpu-nodes="gpu=a b": must be a label, or label=value, as nodes have it',
        ),
        (
            ["--gpu-taint", "nvidia.com/gpu=x"],
            'Wrong setting --gpu-taint="nvidia.com/gpu=x": must be the key of a taint, as nodes have it',
        ),
        (["--gates", "yes"], 'Wrong setting --gates="yes": must be one of on, off'),
        (["--clents", "1"], 'Unknown option "--clents"; bitfusion-injector --help lists all'),
        (
            [],
            'Wrong setting --namespace="": must be given outside a pod: '
            "the namespace of the injector's Service",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"bitfusion-injector: {told}\n"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("nvidia.com/gpu.present=true", ("nvidia.com/gpu.present", "true")),
        ("gpu", ("gpu", "")),
        ("gpu=", ("gpu", "")),
        ("a" * 63 + "=" + "b" * 63, ("a" * 63, "b" * 63)),
    ],
)
def test_nodes_with_gpus_are_known_by_a_label(text: str, label: tuple[str, str]) -> None:
    words = {"namespace": "ns", "gpu_nodes": text, "gpu_taint": "nvidia.com/gpu"}
    settings = read_settings(words, {}, NOWHERE)
    assert (settings.gpu_nodes, settings.gpu_taint) == (label, "nvidia.com/gpu")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=x",
        "a/b/c",
        "/a",
        "a/",
        "-a",
        "a=-b",
        "a" * 64,
        "a=" + "b" * 64,
        "A.b/c",
        "a\n",
        "a=b\n",
        "x" * 5000,
    ],
)
def test_no_other_label_is_taken(text: str) -> None:
    with pytest.raises(WrongSetting):
        read_settings({"namespace": "ns", "gpu_nodes": text}, {}, NOWHERE)


def test_a_broken_map_of_clients_ends_the_start_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "clients.yaml"
    file.write_text("- {os: a, version: b, kind: magic, image: c}\n")
    done = subprocess.run(
        [
            *command(INJECTOR),
            "--namespace=kubeflow",
            f"--clients={file}",
            f"--kubeconfig={away(tmp_path)}",
        ],
        capture_output=True,
        text=True,
        timeout=scaled(30),
        env={name: text for name, text in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f'bitfusion-injector: Wrong setting clients[0].kind="magic" (from {file}): '
        "must be stand-in, pods or vmware\n"
    )


def test_without_its_apiserver_it_lives_says_what_is_missing_and_ends(tmp_path: Path) -> None:
    with ControllerProcess(
        tmp_path,
        [f"--kubeconfig={away(tmp_path)}", "--namespace=kubeflow", "--drain=0"],
        module=INJECTOR,
    ) as injector:
        assert injector.ask("/healthz") == (200, "ok\n")
        assert injector.ask("/readyz") == (
            503,
            "not ready: a serving certificate, the CA in caBundle of bitfusion-pod-injection\n",
        )
        assert injector.metric("bitfusion_injector_info", version="0.1.0") == 1
        status, seconds = injector.end()
    assert status == 0
    assert seconds < scaled(20)
    assert injector.lines()[-1]["message"] == "ended"


def ask(port: int, made: Any) -> dict[str, Any]:
    """Post a pod as the API server does; the response."""
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "ann",
        "operation": "CREATE",
        "object": made,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    async def post() -> dict[str, Any]:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        client = Client(*await asyncio.open_connection("127.0.0.1", port, ssl=context))
        answer = await client.post("/admit/pods", body(review))
        await client.close()
        assert answer.status == 200, answer.text
        return answer.response

    return asyncio.run(post())


def test_a_map_of_clients_is_read_again_while_it_serves(tmp_path: Path) -> None:
    clients = tmp_path / "clients.yaml"
    replace_text(clients, '- {os: "*", version: "*", kind: stand-in, image: "one:1"}\n')
    mount = MountedSecret(tmp_path / "tls", pair())
    with ControllerProcess(
        tmp_path,
        [
            f"--kubeconfig={away(tmp_path)}",
            "--namespace=kubeflow",
            f"--certificate-folder={mount.folder}",
            f"--clients={clients}",
        ],
        module=INJECTOR,
    ) as injector:
        # With a certificate from a folder nobody has to lead: ready without the API server.
        assert injector.ask("/readyz") == (200, "ok\n")
        made = pod(container(HALF))

        def image() -> str:
            patch = json.loads(base64.b64decode(ask(injector.port, made)["patch"]))
            return str(jsonpatch.apply_patch(made, patch)["spec"]["initContainers"][0]["image"])

        assert image() == "one:1"
        replace_text(clients, '- {os: "*", version: "*", kind: stand-in, image: "two:2"}\n')
        wait_until(lambda: image() == "two:2", "the new map", 15)
        wait_until(lambda: injector.logged("clients read again"))
        replace_text(clients, "- {}\n")
        wait_until(
            lambda: any(
                str(line["message"]).startswith("clients cannot be read, the old contents stay in use: ")
                for line in injector.lines()
            ),
            "the complaint",
            15,
        )
        assert image() == "two:2"


def test_settings_of_gpu_pods_are_read_again_while_it_serves(tmp_path: Path) -> None:
    clients, pods, sizes = (tmp_path / f"{name}.yaml" for name in ("clients", "pods", "sizes"))
    replace_text(sizes, "# the pool's\n")
    replace_text(clients, '- {os: "*", version: "*", kind: pods, image: "one:1"}\n')
    replace_text(pods, "port: 7001\n")
    mount = MountedSecret(tmp_path / "tls", pair())
    with ControllerProcess(
        tmp_path,
        [
            f"--kubeconfig={away(tmp_path)}",
            "--namespace=kubeflow",
            f"--certificate-folder={mount.folder}",
            f"--clients={clients}",
            f"--pods={pods}",
            f"--sizes={sizes}",
            "--gpu-nodes=gpu=yes",
            "--gpu-taint=gpu",
        ],
        module=INJECTOR,
    ) as injector:
        assert injector.ask("/readyz") == (200, "ok\n")
        made = pod(container(HALF))

        def spec() -> dict[str, Any]:
            patch = json.loads(base64.b64decode(ask(injector.port, made)["patch"]))
            return dict(jsonpatch.apply_patch(made, patch)["spec"])

        def port() -> int:
            (value,) = [
                each["value"]
                for each in spec()["initContainers"][0]["env"]
                if each["name"] == "BITFUSION_PODS"
            ]
            return int(json.loads(value)["port"])

        assert port() == 7001
        assert "BITFUSION_SIZES" not in json.dumps(spec())
        assert spec()["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
        assert '"key": "gpu"' in json.dumps(spec()["affinity"])
        replace_text(sizes, "sizes: [{label: half, share: 50 %}]\n")
        replace_text(pods, "port: 7002\n")
        wait_until(lambda: port() == 7002, "the new settings", 15)
        wait_until(lambda: "BITFUSION_SIZES" in json.dumps(spec()), "the list of sizes", 15)
        replace_text(pods, "port: none\n")
        wait_until(
            lambda: any(
                str(line["message"]).startswith("pod settings cannot be read, the old contents stay in use: ")
                for line in injector.lines()
            ),
            "the complaint",
            15,
        )
        assert port() == 7002


@pytest.mark.parametrize("size", [HALF, {}], ids=["asks", "another's"])
def test_after_a_bug_a_pod_that_asks_is_refused_and_any_other_passes(
    tmp_path: Path, size: dict[str, str]
) -> None:
    prepare = (
        "import bitfusion_device_plugin.injector.pods_webhook as p\n"
        "def broken(*_): raise RuntimeError('a bug')\n"
        "p.admit_pod = broken"
    )
    mount = MountedSecret(tmp_path / "tls", pair())
    with ControllerProcess(
        tmp_path,
        [f"--kubeconfig={away(tmp_path)}", "--namespace=kubeflow", f"--certificate-folder={mount.folder}"],
        module=INJECTOR,
        prepare=prepare,
    ) as injector:
        answer = ask(injector.port, pod(container(size), annotations=None))
        assert injector.metric("bitfusion_admission_reviews_total", outcome="failed", webhook="pods") == 1
    if size:
        assert answer["allowed"] is False
        assert answer["status"]["code"] == 500
        assert answer["status"]["reason"] == "InternalError"
        assert answer["status"]["message"] == (
            "Bitfusion's pod injector failed on this pod, so it was not created: without the client it "
            "could not use its GPUs. The cause is in the injector's log; tell your administrator."
        )
        assert injector.logged("review failed, object refused")
    else:
        assert answer["allowed"] is True
        assert answer["warnings"] == [
            "Bitfusion's pod injector failed on this pod and left it unchanged; the cause is in its log"
        ]
