"""What an administrator locks holds against a kernelspec of the user's own, also where no value is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.settings.resolve import current_settings


class Machine:
    """Folders of an administrator and of a user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {
            "HOME": str(root / "home" / "ann"),
            "JUPYTER_CONFIG_DIR": str(root / "home" / "ann" / ".jupyter"),
            "JUPYTER_CONFIG_PATH": str(root / "etc"),
        }

    def lock(self, folder: str = "etc", **values: object) -> None:
        """Write the config file that locks `gpus` and `partial`."""
        file = self.root / folder / "jupyter_bitfusion_config.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"BitfusionKernel": {"locked": ["gpus", "partial"], **values}}))

    def spec(self, folder: str, *options: str) -> list[str]:
        """Write a kernelspec with these options; what the proxy gets on its command line."""
        path = self.root / folder
        path.mkdir(parents=True)
        words = [f"--bitfusion-spec={path}", *options]
        argv = ["python", "-I", "-S", "__main__.py", "-f", "{connection_file}", *words]
        (path / "kernel.json").write_text(json.dumps({"argv": argv}))
        return words


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


OWN = "home/ann/.local/share/jupyter/kernels/mine"
ADMINS = "usr/share/jupyter/kernels/half-gpu"


def refusal(machine: Machine, options: list[str]) -> str:
    with pytest.raises(WrongSetting) as caught:
        current_settings(options, machine.environ)
    return caught.value.user_message


def test_a_lock_without_a_value_holds_against_a_kernelspec_of_the_users_own(machine: Machine) -> None:
    machine.lock()
    assert refusal(machine, machine.spec(OWN, "--bitfusion-gpus=8")) == (
        'Wrong setting gpus="8" (from --bitfusion-gpus in the kernelspec): is locked by your administrator, '
        "also for kernelspecs of your own; it stays 1 GPU"
    )


def test_a_lock_on_one_size_holds_the_other(machine: Machine) -> None:
    machine.lock()
    options = machine.spec(OWN, "--bitfusion-memory=8Gi")
    assert refusal(machine, options).startswith('Wrong setting memory="8192"')


def test_what_is_not_locked_is_the_kernelspecs(machine: Machine) -> None:
    machine.lock()
    options = machine.spec(OWN, "--bitfusion-gpus=1", "--bitfusion-timeout=2h")
    assert current_settings(options, machine.environ).request == GpuRequest(timeout=7200)


def test_an_administrators_kernelspec_chooses_the_size_that_the_user_may_not_change(machine: Machine) -> None:
    machine.lock()
    options = machine.spec(ADMINS, "--bitfusion-partial=0.5")
    settings = current_settings(options, machine.environ)
    assert settings.request == GpuRequest(partial=0.5)
    with pytest.raises(WrongSetting, match="locked"):
        settings.check_unlocked(GpuRequest())


def test_a_kernelspec_that_only_names_the_administrators_is_the_users_own(machine: Machine) -> None:
    machine.lock()
    named, _ = machine.spec(ADMINS, "--bitfusion-partial=0.5")
    assert "locked" in refusal(machine, [named, "--bitfusion-partial=1"])
    assert "locked" in refusal(machine, ["--bitfusion-gpus=2"])
    assert "locked" in refusal(machine, [f"--bitfusion-spec={machine.root}/none", "--bitfusion-gpus=2"])


def test_a_locked_value_holds_whatever_a_kernelspec_says(machine: Machine) -> None:
    machine.lock(gpus=2, partial=0.25)
    options = machine.spec(OWN, "--bitfusion-gpus=8", "--bitfusion-memory=8Gi")
    assert current_settings(options, machine.environ).request == GpuRequest(gpus=2, partial=0.25)


def test_users_may_lock_what_their_own_kernelspecs_say(machine: Machine) -> None:
    machine.lock("home/ann/.jupyter")
    options = machine.spec(OWN, "--bitfusion-gpus=2")
    assert current_settings(options, machine.environ).request == GpuRequest(gpus=2)


def test_without_a_home_of_its_own_a_users_data_folder_is_its_own(machine: Machine) -> None:
    machine.environ |= {"HOME": "/", "JUPYTER_DATA_DIR": str(machine.root / "data")}
    machine.lock()
    options = machine.spec(ADMINS, "--bitfusion-gpus=2")
    assert current_settings(options, machine.environ).request == GpuRequest(gpus=2)
    assert "locked" in refusal(machine, machine.spec("data/kernels/mine", "--bitfusion-gpus=2"))
