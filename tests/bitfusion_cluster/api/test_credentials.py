"""Credentials: the pod's ServiceAccount, kubeconfig files, tokens that are renewed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import (
    Unauthorized,
)
from tests.bitfusion_cluster.api.in_cluster import in_cluster
from tests.bitfusion_cluster.fake_api import FakeApi, fake_api
from tests.notebook_controller_patch.reconcile.objects import NOTEBOOKS

PATH = "/apis/kubeflow.org/v1/namespaces/ann/notebooks"
WATCH_QUERY: dict[str, str | int | bool] = {"watch": True, "timeoutSeconds": 60, "resourceVersion": "0"}
SHORT = (1.0, 0.5)


def test_a_pod_finds_the_api_by_its_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with fake_api(certificate) as server:
        server.token = "first"
        in_cluster(monkeypatch, server, tmp_path, certificate[0])
        api = KubernetesApi.load()
        assert api.server == server.url
        assert api.get(NOTEBOOKS)["items"] == []
        api.close()


def test_a_renewed_token_file_is_read_at_the_first_401(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with fake_api(certificate) as server:
        token = in_cluster(monkeypatch, server, tmp_path, certificate[0])
        server.token = "first"
        api = KubernetesApi.load()
        api.get(NOTEBOOKS)
        server.token = "second"
        with pytest.raises(Unauthorized):
            api.get(NOTEBOOKS)
        assert len(server.requests) == 2, "the same token is not tried twice"
        token.write_text("second")
        # the client itself would read the file again after a minute
        assert api.get(NOTEBOOKS)["items"] == []
        assert len(server.requests) == 4
        api.get(NOTEBOOKS)
        assert len(server.requests) == 5, "the new token stays"
        api.close()


def test_a_token_file_that_is_gone_for_a_moment_is_tolerated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with fake_api(certificate) as server:
        token = in_cluster(monkeypatch, server, tmp_path, certificate[0])
        api = KubernetesApi.load()
        server.token = "second"
        token.write_text("")
        with pytest.raises(Unauthorized):
            api.get(NOTEBOOKS)
        token.write_text("second")
        assert api.get(NOTEBOOKS)["items"] == []
        api.close()


def kubeconfig(path: Path, server: str, user: dict[str, str]) -> str:
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


def test_the_token_file_of_a_kubeconfig_is_read_again(server: FakeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    server.token = "first"
    api = KubernetesApi.load(kubeconfig(tmp_path / "config", server.url, {"tokenFile": str(token)}))
    api.get(NOTEBOOKS)
    server.token = "second"
    token.write_text("second")
    api.get(NOTEBOOKS)
    api.close()


def test_without_a_pod_the_usual_kubeconfig_is_read(
    server: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = kubeconfig(tmp_path / "config", server.url, {"token": "t"})
    # the client reads the variable when it is imported
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", path)
    assert KubernetesApi.load().server == server.url


@pytest.mark.parametrize("content", [None, "", "[1]", "a: [", "{}", '{"clusters": 5}'])
def test_a_kubeconfig_that_says_nothing_is_one_clear_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(WrongSetting) as caught:
        KubernetesApi.load(str(path))
    message = caught.value.user_message
    assert message.startswith(f'Wrong setting kubeconfig="{path}": it has no credentials that can be used')
    assert "\n" not in message
