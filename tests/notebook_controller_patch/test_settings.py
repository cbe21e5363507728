"""Settings from options and environment: which one wins, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from notebook_controller_patch.settings import TABLE, Settings, read_settings

NOWHERE = Path("/nonexistent/namespace")
E = "BITFUSION_CONTROLLER_"
KEYS = "must be up to 8 keys such as requests.nvidia.com/gpu, separated by commas"


def read(options: dict[str, str] | None = None, environ: dict[str, str] | None = None) -> Settings:
    return read_settings({"namespace": "kubeflow", **(options or {})}, environ or {}, NOWHERE)


def test_the_defaults_are_what_the_manifests_name() -> None:
    assert read() == Settings(
        namespace="kubeflow",
        kubeconfig=None,
        name="bitfusion-notebook-controller",
        bind="::",
        port=8443,
        monitoring_port=8080,
        images=None,
        certificate_folder=None,
        certificate_secret="bitfusion-notebook-controller-ca",
        webhook_configuration="bitfusion-notebook-admission",
        log_format="json",
        log_level="info",
    )
    assert read().username == "system:serviceaccount:kubeflow:bitfusion-notebook-controller"


def test_every_setting_can_be_an_option_or_a_variable() -> None:
    values = {
        "kubeconfig": "/a/config",
        "namespace": "ns",
        "name": "another",
        "bind": "127.0.0.1",
        "port": "1234",
        "monitoring_port": "0",
        "images": "/i/images.yaml",
        "clients": "vmware",
        "quota_keys": "requests.nvidia.com/gpu, requests.nvidia.com/mig-1g.5gb",
        "certificate_secret": "my.ca",
        "certificate_names": "a.example, 10.0.0.1",
        "client_authority": "/c/clients.crt",
        "webhook_configuration": "hooks",
        "drain": "0.5",
        "self_check_every": "0",
        "log_format": "text",
        "log_level": "debug",
    }
    assert {*values, "certificate_folder"} == {setting.name for setting in TABLE.rows}
    by_options = read_settings(values, {}, NOWHERE)
    by_variables = read_settings({}, {E + name.upper(): text for name, text in values.items()}, NOWHERE)
    assert by_options == by_variables
    assert by_options.certificate_names == ("a.example", "10.0.0.1")
    assert (by_options.port, by_options.monitoring_port, by_options.drain) == (1234, 0, 0.5)
    assert (by_options.self_check_every, read({}).self_check_every) == (0, 60)
    assert by_options.quota_keys == ("requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.5gb")
    of_dra = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    assert read({"quota_keys": of_dra}).quota_keys == (of_dra,)


def test_an_option_wins_and_an_empty_variable_is_none() -> None:
    assert read({"port": "1"}, {E + "PORT": "2"}).port == 1
    assert read({}, {E + "PORT": ""}).port == 8443
    assert read({}, {E + "PORT": "2"}).port == 2


def test_the_secret_of_the_authority_follows_the_name() -> None:
    assert read({"name": "mine"}).certificate_secret == "mine-ca"
    files = read({"certificate_folder": "/tls"})
    assert (files.certificate_folder, files.certificate_secret) == ("/tls", None)


def test_the_namespace_of_a_pod_is_its_own(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    file.write_text("kubeflow\n")
    assert read_settings({}, {}, file).namespace == "kubeflow"
    assert read_settings({"namespace": "other"}, {}, file).namespace == "other"


def test_variables_that_are_no_setting_are_named() -> None:
    assert read({}, {E + "PROT": "1", E + "PORT": "2", "PATH": "/"}).ignored == (E + "PROT",)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("port", "99999", "must be a port, 1 to 65535 (0: any free one)"),
        ("port", "https", "must be a port, 1 to 65535 (0: any free one)"),
        ("port", "-1", "must be a port, 1 to 65535 (0: any free one)"),
        ("port", "9" * 5000, "must be a port, 1 to 65535 (0: any free one)"),
        ("port", "٣", "must be a port, 1 to 65535 (0: any free one)"),
        ("bind", "localhost", "must be an IP address, 0.0.0.0 or :: for all"),
        ("namespace", "Kube_flow", "must be at most 63 lower case letters, digits and -"),
        ("namespace", "a" * 64, "must be at most 63 lower case letters, digits and -"),
        ("name", "a/b", "must be at most 63 lower case letters, digits and -"),
        (
            "webhook_configuration",
            "a/../b",
            "must be the name of a Kubernetes object: lower case letters, digits, - and .",
        ),
        (
            "certificate_names",
            "a.example b",
            "must be DNS names or IP addresses, separated by commas",
        ),
        ("drain", "soon", "must be seconds from 0 to 10"),
        ("drain", "11", "must be seconds from 0 to 10"),
        ("drain", "nan", "must be seconds from 0 to 10"),
        ("log_format", "xml", "must be one of json, text"),
        ("log_level", "all", "must be one of debug, info, warning, error"),
        ("quota_keys", "nvidia.com/gpu", KEYS),  # counts nothing itself
        ("quota_keys", "requests.nvidia.com/gpu x", KEYS),
        ("quota_keys", "requests.cpu", KEYS),
        ("quota_keys", ",".join(f"requests.a.b/{number}" for number in range(9)), KEYS),
    ],
)
def test_a_wrong_value_is_one_line_with_what_is_allowed(name: str, value: str, words: str) -> None:
    shown = value if len(value) < 400 else "9" * 399 + "…"
    option = "--" + name.replace("_", "-")
    with pytest.raises(WrongSetting) as caught:
        read({name: value})
    assert caught.value.user_message == f'Wrong setting {option}="{shown}": {words}'
    with pytest.raises(WrongSetting, match=f"wrong setting {E}{name.upper()}="):
        read_settings({}, {E + "NAMESPACE": "kubeflow", E + name.upper(): value}, NOWHERE)


def test_outside_a_pod_the_namespace_must_be_given() -> None:
    with pytest.raises(WrongSetting) as caught:
        read_settings({}, {}, NOWHERE)
    assert caught.value.user_message == (
        'Wrong setting --namespace="": must be given outside a pod: '
        "the namespace of the controller's Service"
    )


@pytest.mark.parametrize("name", ["certificate_secret", "certificate_names"])
def test_certificates_come_from_one_place(name: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        read({"certificate_folder": "/tls"}, {E + name.upper(): "a"})
    assert caught.value.user_message == (
        f'Wrong setting {E}{name.upper()}="a": cannot be combined with --certificate-folder: '
        "certificates come from one place"
    )
