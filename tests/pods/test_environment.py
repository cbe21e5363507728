"""Whose variables a program in a pod gets."""

from __future__ import annotations

import pytest

from bitfusion_pods.environment import NOT_SENT, of_program, sent

POD = {
    "HOSTNAME": "the-pod",
    "NVIDIA_VISIBLE_DEVICES": "GPU-1",
    "CUDA_VISIBLE_DEVICES": "0",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "PATH": "/pods/bin",
    "HOME": "/root",
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/lib",
}


@pytest.mark.parametrize("name", ["HOSTNAME", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_what_only_the_pod_knows_is_the_pods(name: str) -> None:
    assert of_program({name: "the notebook's"}, POD)[name] == POD[name]
    assert name not in of_program({name: "the notebook's"}, {}), (
        "nor is it the notebook's where the pod says nothing"
    )


@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "NVIDIA_TF32_OVERRIDE"])
def test_settings_of_cuda_are_the_notebooks_unless_the_pod_has_its_own(name: str) -> None:
    assert of_program(sent({name: "1"}), POD)[name] == "1"
    assert of_program(sent({name: "1"}), {name: "0"})[name] == "0"


@pytest.mark.parametrize("name", ["HOME", "LANG", "MY_OWN", "BITFUSION_KERNEL_SOCKET"])
def test_all_else_is_the_notebooks(name: str) -> None:
    assert of_program({name: "the notebook's"}, POD)[name] == "the notebook's"
    assert name not in of_program({}, POD)


@pytest.mark.parametrize("name", NOT_SENT)
def test_tokens_of_the_notebooks_server_stay_there(name: str) -> None:
    assert sent({name: "secret", "A": "b"}) == {"A": "b"}
    assert name not in of_program({name: "secret"}, {}), "whatever has sent it"


@pytest.mark.parametrize(
    ("notebook", "pod", "both"),
    [
        ("/opt/conda/lib", "/nvidia", "/nvidia:/opt/conda/lib"),
        ("/opt/conda/lib:/nvidia", "/nvidia", "/nvidia:/opt/conda/lib"),
        ("", "/nvidia", "/nvidia"),
        ("/opt/conda/lib::", "", "/opt/conda/lib"),
        ("", "", None),
    ],
)
def test_the_drivers_libraries_come_first(notebook: str, pod: str, both: str | None) -> None:
    name = "LD_LIBRARY_PATH"
    assert of_program({name: notebook}, {name: pod}).get(name) == (both if both is not None else notebook)


def test_the_command_of_the_pod_comes_last_on_the_path() -> None:
    assert of_program({"PATH": "/opt/conda/bin"}, {"PATH": "/bin"})["PATH"] == "/opt/conda/bin:/bitfusion/bin"
    assert of_program({}, {"HOSTNAME": "digits-gpu-1"})["BITFUSION_GPU_POD"] == "digits-gpu-1"
