"""The pool's init container: an issuer's files in a Secret that is there, by one right."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_device_plugin.identity import issuer_secret
from tests.cluster.cluster import Cluster

NAMES = ("servers.conf", "client.yaml", "ca.crt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_text(f"of {name}")
    return tmp_path


def test_the_secret_has_the_files_and_the_right_to_patch_it_is_enough(
    cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = cluster.new_namespace()
    cluster.kubectl("-n", namespace, "create", "secret", "generic", "bitfusion-issuer")
    rights = ("--verb=patch", "--resource=secrets", "--resource-name=bitfusion-issuer")
    cluster.kubectl("-n", namespace, "create", "role", "issuer", *rights)
    cluster.kubectl(
        *("-n", namespace, "create", "rolebinding", "issuer", "--role=issuer"),
        f"--serviceaccount={namespace}:default",
    )
    kubeconfig = cluster.service_account_kubeconfig(namespace, "default")

    def connect() -> KubernetesApi:
        return cluster.api(kubeconfig)

    assert issuer_secret.main([str(folder), namespace, "bitfusion-issuer"], connect) == 0
    found = cluster.client.get(f"/api/v1/namespaces/{namespace}/secrets/bitfusion-issuer")
    assert found["data"] == issuer_secret.secret_data(str(folder))["data"]
    assert issuer_secret.main([str(folder), namespace, "another"], connect) == 1
    assert "are not in Secret" in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert issuer_secret.main([str(tmp_path), "kubeflow", "bitfusion-issuer"]) == 1
    assert "servers.conf cannot be read" in capsys.readouterr().err
    assert issuer_secret.main([]) == 2
