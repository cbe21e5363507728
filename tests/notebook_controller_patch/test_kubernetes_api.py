"""The adapter to the Kubernetes API: errors, time limits, tokens, streams; over real sockets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes.config.incluster_config import InClusterConfigLoader

from bitfusion_client.errors import WrongSetting
from notebook_controller_patch.kubernetes_api import client as client_module
from notebook_controller_patch.kubernetes_api.client import KubernetesApi
from notebook_controller_patch.kubernetes_api.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NoAnswer,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    error_of_status,
)
from tests.notebook_controller_patch.reconcile.fake_api import (
    FakeApi,
    Fault,
    Handler,
    fake_api,
    raw,
    reset,
    stall,
    status,
)
from tests.notebook_controller_patch.reconcile.objects import NOTEBOOKS, notebook
from tests.support.waiting import wait_until

PATH = "/apis/kubeflow.org/v1/namespaces/ann/notebooks"
WATCH_QUERY: dict[str, str | int | bool] = {"watch": True, "timeoutSeconds": 60, "resourceVersion": "0"}
SHORT = (1.0, 0.5)


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with fake_api() as running:
        yield running


@pytest.fixture
def api(server: FakeApi) -> Iterator[KubernetesApi]:
    client = server.client()
    yield client
    client.close()


# requests


def test_an_object_is_made_read_patched_merged_and_deleted(server: FakeApi, api: KubernetesApi) -> None:
    made = api.create(PATH, notebook("nb"))
    assert api.get(f"{PATH}/nb") == made
    operations = [
        {"op": "test", "path": "/metadata/name", "value": "nb"},
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"},
    ]
    assert api.patch(f"{PATH}/nb", operations)["metadata"]["annotations"]["a/b"] == "1"
    merged = api.merge(f"{PATH}/nb", {"metadata": {"annotations": {"a/b": None}}})
    assert "a/b" not in merged["metadata"]["annotations"]
    with pytest.raises(Conflict):
        api.delete(f"{PATH}/nb", {"preconditions": {"uid": "another"}})
    api.delete(f"{PATH}/nb", {"preconditions": {"uid": made["metadata"]["uid"]}})
    with pytest.raises(NotFound):
        api.get(f"{PATH}/nb")


def test_a_test_operation_that_fails_is_a_conflict(server: FakeApi, api: KubernetesApi) -> None:
    server.put(NOTEBOOKS, notebook("nb"))
    with pytest.raises(Conflict, match="test failed"):
        api.patch(f"{PATH}/nb", [{"op": "test", "path": "/metadata/name", "value": "other"}])


def test_a_query_is_written_as_the_api_wants_it(server: FakeApi, api: KubernetesApi) -> None:
    api.get(PATH, {"limit": 5, "watchX": True, "labelSelector": "a in (b, c)"})
    assert server.requests[0].query == {"limit": "5", "watchX": "true", "labelSelector": "a in (b, c)"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, ApiError),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Invalid),
        (429, TooManyRequests),
        (500, ServerError),
        (503, ServerError),
    ],
)
def test_errors_have_classes_and_words(
    server: FakeApi, api: KubernetesApi, code: int, kind: type[ApiError]
) -> None:
    server.misbehave(status(code, "SomeReason", "some words", Retry_After="7"))
    with pytest.raises(kind) as caught:
        api.get(PATH)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, "SomeReason", "some words")
    assert error.retry_after == 7
    assert str(error) == f"{code} SomeReason: some words"
    assert error.user_message == (
        f"The Kubernetes API refused a request.\nAnswer: {code} SomeReason: some words"
    )


def test_an_error_of_somebody_between_us_and_the_api_is_borne(server: FakeApi, api: KubernetesApi) -> None:
    def proxy_page(handler: Handler) -> None:
        handler.send_response(502)
        handler.send_header("Content-Length", "13")
        handler.end_headers()
        handler.wfile.write(b"<html></html>")

    server.misbehave(proxy_page)
    with pytest.raises(ServerError, match="502 Bad Gateway"):
        api.get(PATH)


def test_the_seconds_to_wait_also_stand_in_the_body() -> None:
    error = error_of_status(429, {"details": {"retryAfterSeconds": 3}})
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == 3
    assert error_of_status(410, None).retry_after is None


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(reset, id="RST"),
        pytest.param(stall, id="silence"),
        pytest.param(lambda handler: handler.answer(200, [1]), id="no object"),
    ],
)
def test_no_answer_is_an_error_of_its_own_and_asked_for_once(
    server: FakeApi, api: KubernetesApi, fault: Fault
) -> None:
    server.misbehave(fault, times=5)
    began = time.monotonic()
    with pytest.raises(NoAnswer) as caught:
        api.get(PATH, timeout=SHORT)
    assert time.monotonic() - began < 5
    assert len(server.requests) == 1, "nothing is retried behind our back"
    assert caught.value.user_message.startswith("The Kubernetes API did not answer.\n")


def test_a_429_is_told_at_once(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(status(429, Retry_After="30"))
    began = time.monotonic()
    with pytest.raises(TooManyRequests):
        api.get(PATH)
    assert time.monotonic() - began < 5, "the transport must not sleep"


def test_an_answer_that_is_cut_off_is_no_answer(server: FakeApi, api: KubernetesApi) -> None:
    def half(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"items": [')
        handler.wfile.flush()
        reset(handler)

    server.misbehave(half)
    with pytest.raises(NoAnswer):
        api.get(PATH)


def test_an_answer_that_drips_is_given_up(
    server: FakeApi, api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LONGEST_ANSWER_S", 0.5)

    def drip(handler: Handler) -> None:
        handler.begin_stream()
        while not handler.server.api.ending.wait(0.05):
            handler.send_piece(b" ")

    server.misbehave(drip)
    with pytest.raises(NoAnswer, match="not complete after"):
        api.get(PATH)


def test_a_refused_connection_is_no_answer() -> None:
    with fake_api() as gone:
        client = gone.client()
    with pytest.raises(NoAnswer, match="refused"):
        client.get(PATH)


def test_connections_are_kept(server: FakeApi, api: KubernetesApi) -> None:
    ports: set[int] = set()

    def note(handler: Handler) -> None:
        ports.add(handler.client_address[1])
        handler.answer(200, {})

    server.misbehave(note, times=5)
    for _ in range(5):
        api.get(PATH)
    assert len(ports) == 1


# credentials


def in_cluster(monkeypatch: pytest.MonkeyPatch, server: FakeApi, folder: Path, ca: Path) -> Path:
    """Let `load()` find a ServiceAccount in `folder`; the path of its token."""
    token = folder / "token"
    token.write_text("first")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    loader: Any = InClusterConfigLoader  # not annotated
    # the client's function, with other paths
    monkeypatch.setattr(
        client_module,
        "load_incluster_config",
        lambda configuration: loader(str(token), str(ca)).load_and_set(configuration),
    )
    return token


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(timezone.utc)
    from ipaddress import ip_address

    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


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


def test_a_token_file_that_is_gone_for_a_moment_is_borne(
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
    assert message.startswith(f'Wrong setting kubeconfig="{path}": no way into the cluster could be read')
    assert "\n" not in message


# streams


def test_a_stream_gives_whole_lines(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(raw(b'{"a":', b"1}\n\n", b'{"b":2}\n{"c"', b":3}\n", b'{"half'))
    with api.stream(NOTEBOOKS, WATCH_QUERY, 5) as stream:
        assert list(stream.lines()) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_an_error_instead_of_a_stream_is_raised(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(status(410, "Expired"))
    with pytest.raises(Gone):
        api.stream(NOTEBOOKS, WATCH_QUERY, 5)


def test_silence_in_a_stream_ends_it(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(raw(b"{}\n", then=stall))
    began = time.monotonic()
    with api.stream(NOTEBOOKS, WATCH_QUERY, 30) as stream:
        lines = stream.lines()
        assert next(lines) == b"{}"
        stream.set_read_timeout(0.2)
        with pytest.raises(NoAnswer, match="timed out"):
            next(lines)
    assert time.monotonic() - began < 10


def test_a_reset_in_a_stream_is_no_answer(server: FakeApi, api: KubernetesApi) -> None:
    server.misbehave(raw(then=reset))
    with api.stream(NOTEBOOKS, WATCH_QUERY, 5) as stream, pytest.raises(NoAnswer):
        list(stream.lines())


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_stream_is_closed_from_another_thread(
    over_tls: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with fake_api(certificate if over_tls else None) as server:
        if over_tls:
            in_cluster(monkeypatch, server, tmp_path, certificate[0])
            api = KubernetesApi.load()
        else:
            api = server.client()
        server.put(NOTEBOOKS, notebook("nb"))
        lines: list[Any] = []
        opened = threading.Event()

        def read() -> None:
            with api.stream(NOTEBOOKS, WATCH_QUERY, 300) as stream:
                streams.append(stream)
                opened.set()
                lines.extend(stream.lines())
            lines.append("ended")

        streams: list[Any] = []
        reader = threading.Thread(target=read)
        reader.start()
        assert opened.wait(5)
        wait_until(lambda: server.watching(NOTEBOOKS))
        time.sleep(0.1)
        streams[0].close()
        streams[0].close()
        reader.join(5)
        assert not reader.is_alive(), "the read goes on"
        assert lines[-1] == "ended"
        api.close()


def test_many_threads_share_one_client(server: FakeApi, api: KubernetesApi) -> None:
    server.put(NOTEBOOKS, notebook("nb"))
    failed: list[Exception] = []

    def ask() -> None:
        try:
            for _ in range(20):
                api.get(f"{PATH}/nb")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failed
    assert len(server.requests) == 160


def test_the_default_time_limits() -> None:
    assert client_module.TIMEOUT == (3.0, 10.0)
