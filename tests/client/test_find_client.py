"""The client is found in the documented order, and a configured one is never replaced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import bitfusion_pool
from bitfusion_client.command.find_client import FoundClient, find_client
from bitfusion_client.errors import ClientNotFound

UBUNTU = "bitfusion-client-ubuntu2004_4.5.0-4_amd64.deb"
OLD_UBUNTU = "bitfusion-client-ubuntu1804_4.5.0-4_amd64.deb"
CENTOS = "bitfusion-client-centos7-4.5.0-4.x86_64.rpm"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any client: no PATH, no package beside the vocabulary."""
    monkeypatch.setattr("bitfusion_client.command.find_client._beside_us", lambda: str(tmp_path / "nowhere"))
    return tmp_path


def command(path: Path, mode: int = 0o755, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(mode)
    return str(path)


def embedded_command(machine: Path) -> str:
    """The stand-in, as its first lines show it."""
    text = Path(bitfusion_pool.__file__).with_name("bin").joinpath("bitfusion").read_text()
    return command(machine / "site/bitfusion_pool/bin/bitfusion", text=text)


def installed_command(path: Path) -> str:
    """What pip makes of `[project.scripts]`."""
    return command(path, text="from bitfusion_pool.client.installed_command import main\nmain()\n")


def found_in(machine: Path, explicit: str | None = None, **environ: str) -> FoundClient:
    site = [str(machine / "site")]
    return find_client(
        explicit, {"PATH": str(machine / "bin"), **environ}, root=str(machine), import_path=site
    )


def test_the_order(machine: Path) -> None:
    embedded = embedded_command(machine)
    assert found_in(machine) == FoundClient(embedded, "embedded", True)
    package = command(machine / "opt/bitfusion/bin/bitfusion")
    assert found_in(machine) == FoundClient(package, "injected", False)
    injected = command(machine / "bitfusion" / UBUNTU / "usr/bin/bitfusion")
    assert found_in(machine) == FoundClient(injected, "injected", False)
    on_path = command(machine / "bin/bitfusion")
    assert found_in(machine) == FoundClient(on_path, "path", False)
    configured = command(machine / "mine")
    assert found_in(machine, BITFUSION_CLIENT=configured) == FoundClient(configured, "configured", False)
    explicit = command(machine / "explicit")
    assert found_in(machine, explicit, BITFUSION_CLIENT=configured).path == explicit
    assert found_in(machine, embedded) == FoundClient(embedded, "configured", True)
    assert found_in(machine, "bitfusion") == FoundClient(on_path, "configured", False)


def test_the_embedded_command_is_recognised_on_path(machine: Path) -> None:
    embedded = embedded_command(machine)
    assert found_in(machine, PATH=os.path.dirname(embedded)) == FoundClient(embedded, "embedded", True)
    (machine / "bin").mkdir()
    (machine / "bin/bitfusion").symlink_to(embedded)
    assert found_in(machine) == FoundClient(str(machine / "bin/bitfusion"), "embedded", True)


def test_the_embedded_command_is_known_by_what_is_in_it_not_by_its_path(machine: Path) -> None:
    embedded = embedded_command(machine)
    (machine / "bin").mkdir()
    copy = str(shutil.copy(embedded, machine / "bin/bitfusion"))
    assert found_in(machine) == FoundClient(copy, "embedded", True)
    real = command(machine / "mine/bitfusion_pool/bin/bitfusion")
    assert found_in(machine, PATH=os.path.dirname(real)) == FoundClient(real, "path", False)


@pytest.mark.parametrize("explicit", [None, "bitfusion"])
def test_what_pip_installs_is_no_client(machine: Path, explicit: str | None) -> None:
    """It starts another one, perhaps this very one."""
    embedded = embedded_command(machine)
    kind = "configured" if explicit else "embedded"
    installed_command(machine / "venv/bin/bitfusion")
    installed_command(machine / "other venv/bin/bitfusion")
    (machine / "home/bin").mkdir(parents=True)
    (machine / "home/bin/bitfusion").symlink_to(machine / "venv/bin/bitfusion")
    path = f"{machine}/home/bin:{machine}/venv/bin::.:{machine}/other venv/bin"
    assert found_in(machine, explicit, PATH=path) == FoundClient(embedded, kind, True)
    real = command(machine / "usr/bin/bitfusion")
    found = found_in(machine, explicit, PATH=f"{path}:{machine}/usr/bin")
    assert found == FoundClient(real, "configured" if explicit else "path", False)


def test_who_configures_what_pip_installs_means_the_stand_in(machine: Path) -> None:
    embedded = embedded_command(machine)
    command(machine / "bin/bitfusion")
    installed = installed_command(machine / "venv/bin/bitfusion")
    for given in ({"explicit": installed}, {"BITFUSION_CLIENT": installed}):
        assert found_in(machine, **given) == FoundClient(embedded, "configured", True)


def test_a_client_that_nobody_may_read_is_one(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = command(machine / "bin/bitfusion", 0o111)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("builtins.open", refuse)
    assert found_in(machine) == FoundClient(real, "path", False)


def test_the_checkout_needs_no_import_path(tmp_path: Path) -> None:
    assert find_client(None, {"PATH": ""}, root=str(tmp_path), import_path=[]).kind == "embedded"


def test_the_client_for_this_system(machine: Path) -> None:
    for name in (UBUNTU, OLD_UBUNTU, CENTOS):
        command(machine / "bitfusion" / name / "usr/bin/bitfusion")
    assert UBUNTU in found_in(machine).path
    (machine / "etc").mkdir()
    (machine / "etc/os-release").write_text('NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="18.04"\n')
    assert OLD_UBUNTU in found_in(machine).path
    libraries = f"/bitfusion/{CENTOS}/opt/bitfusion/lib/x86_64-linux-gnu/bitfusion/lib/:/usr/lib"
    assert CENTOS in found_in(machine, LD_LIBRARY_PATH=libraries).path
    (machine / "etc/os-release").write_text("nothing\n")
    assert UBUNTU in found_in(machine).path


def test_files_that_are_no_commands(machine: Path) -> None:
    command(machine / "bin/bitfusion", 0o644)
    (machine / "bitfusion" / UBUNTU / "usr/bin/bitfusion").mkdir(parents=True)
    with pytest.raises(ClientNotFound) as caught:
        found_in(machine)
    assert caught.value.looked_at == [
        "PATH",
        f"{machine}/bitfusion",
        f"{machine}/opt/bitfusion",
        "bitfusion_pool/bin/bitfusion",
    ]
    assert caught.value.user_message == (
        "There is no `bitfusion` command on this machine.\n"
        f"Answer: looked at PATH, {machine}/bitfusion, {machine}/opt/bitfusion, "
        "bitfusion_pool/bin/bitfusion\n"
        "What to do: install the client, put it on PATH, or set BITFUSION_CLIENT to its path; "
        "without one, reinstall kubeflow-bitfusion to get the embedded pool back."
    )


@pytest.mark.parametrize("configured", ["/no/such/bitfusion", "no-such-command", "~/no-such-command"])
def test_a_configured_client_is_never_replaced(machine: Path, configured: str) -> None:
    command(machine / "bin/bitfusion")
    with pytest.raises(ClientNotFound) as caught:
        found_in(machine, configured)
    assert caught.value.looked_at == [configured]
    assert caught.value.user_message == (
        "The configured `bitfusion` command cannot be run.\n"
        f"Answer: looked at {configured}\n"
        "What to do: correct the path in BITFUSION_CLIENT or in the setting `client`, or remove it."
    )


@pytest.mark.parametrize("relative", ["", ".", "./", "here", "../place/here", "~/here"])
@pytest.mark.parametrize("explicit", [None, "bitfusion"])
def test_a_relative_folder_in_path_is_not_looked_at(
    machine: Path, monkeypatch: pytest.MonkeyPatch, relative: str, explicit: str | None
) -> None:
    """It means another folder wherever a notebook lies: anybody's `bitfusion` would be run there."""
    place = machine / "place"
    for folder in (place, place / "here", place / "~" / "here"):
        command(folder / "bitfusion")
    monkeypatch.chdir(place)
    path = f"{relative}:{machine / 'bin'}"
    with pytest.raises(ClientNotFound) as caught:
        found_in(machine, explicit, PATH=path)
    if explicit is None:
        assert caught.value.looked_at[0] == "PATH, but not its relative folders"
    on_path = command(machine / "bin/bitfusion")
    assert found_in(machine, explicit, PATH=path).path == on_path


def injected(machine: Path, kind: str) -> tuple[str, str]:
    """The starter of a pod at both of its places."""
    starter = command(machine / "bitfusion/bin/bitfusion")
    (machine / "bitfusion/pod").mkdir()
    (machine / "bitfusion/pod/client").write_text(kind)
    mounted = machine / "usr/local/bin/bitfusion"
    mounted.parent.mkdir(parents=True)
    os.link(starter, mounted)
    return starter, str(mounted)


@pytest.mark.parametrize(("kind", "embedded"), [("stand-in", True), ("vmware", False)])
def test_a_pods_client_is_known_at_both_of_its_places(machine: Path, kind: str, embedded: bool) -> None:
    command(machine / "bitfusion" / UBUNTU / "usr/bin/bitfusion")
    starter, mounted = injected(machine, kind)
    assert found_in(machine) == FoundClient(starter, "injected", embedded)
    assert found_in(machine, PATH=os.path.dirname(mounted)) == FoundClient(mounted, "injected", embedded)
    own = command(machine / "bin/bitfusion")
    assert found_in(machine, PATH=f"{machine}/bin:{os.path.dirname(mounted)}") == FoundClient(
        own, "path", False
    )
    assert found_in(machine, BITFUSION_CLIENT=mounted) == FoundClient(mounted, "configured", embedded)


def test_a_pods_client_wins_over_the_pool_of_the_images_own_package(machine: Path) -> None:
    command(machine / "site/bitfusion_pool/bin/bitfusion")
    starter, _ = injected(machine, "vmware")
    assert found_in(machine).path == starter
