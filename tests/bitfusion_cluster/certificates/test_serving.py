"""Certificates exchanged under a living server: mounted Secrets, broken pairs, key types."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bitfusion_cluster.certificates.authority import Pair, UnusableCertificate
from bitfusion_cluster.certificates.serving import CertificateFolder, ServingCertificate
from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.bitfusion_cluster.certificates.pairs import pair, serial, trusted


@contextmanager
def tls_server(serving: ServingCertificate) -> Iterator[int]:
    """Answers every handshake; gives its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            try:
                serving.context.wrap_socket(raw, server_side=True).close()
            except OSError:
                raw.close()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def shown(port: int, name: str | None = "localhost", version: ssl.TLSVersion | None = None) -> int:
    """The serial number of the certificate that a client is shown, which must be valid."""
    context = ssl.create_default_context(cadata=trusted())
    if version:
        context.minimum_version = context.maximum_version = version
    context.check_hostname = name is not None
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname=name) as tls,
    ):
        certificate = tls.getpeercert(binary_form=True)
    assert certificate is not None
    return serial(certificate)


@pytest.fixture
def serving() -> ServingCertificate:
    return ServingCertificate()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["localhost", None])
def test_every_new_pair_is_shown_whatever_its_key_and_with_or_without_a_server_name(
    serving: ServingCertificate, name: str | None, version: ssl.TLSVersion
) -> None:
    with tls_server(serving) as port:
        for kind in ("ECDSA", "ECDSA", "RSA", "ECDSA"):
            fresh = pair(kind)
            serving.use(fresh)
            assert shown(port, name, version) == serial(fresh.certificate)


def test_before_the_first_pair_a_client_is_refused(serving: ServingCertificate) -> None:
    assert not serving.loaded
    assert serving.expires is None
    with tls_server(serving) as port, pytest.raises(ssl.SSLError):
        shown(port)


def test_old_tls_is_refused(serving: ServingCertificate) -> None:
    serving.use(pair())
    with tls_server(serving) as port:
        context = ssl.create_default_context(cadata=trusted())
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection(("127.0.0.1", port)) as raw, pytest.raises(ssl.SSLError):
            context.wrap_socket(raw, server_hostname="localhost")


def test_a_pair_that_does_not_fit_is_refused_and_the_old_one_stays(serving: ServingCertificate) -> None:
    good, other = pair(), pair()
    serving.use(good)
    cases = {
        Pair(good.certificate, other.key): "the key does not belong to the certificate",
        Pair(good.certificate, pair("RSA").key): "the key does not belong to the certificate",
        Pair(good.certificate, b""): "the certificate or its key cannot be used",
        Pair(b"", good.key): "it holds no certificate in PEM format",
        Pair(good.certificate[:300], good.key): "it holds no certificate in PEM format",
        Pair(good.certificate, good.key[:100]): "the certificate or its key cannot be used",
        pair(password=b"secret"): "the key is encrypted; it must be readable without a password",
    }
    with tls_server(serving) as port:
        for case, words in cases.items():
            with pytest.raises(UnusableCertificate, match=words):
                serving.use(case)
            assert shown(port) == serial(good.certificate)


def test_a_secret_is_exchanged_in_its_mount(serving: ServingCertificate, tmp_path: Path) -> None:
    first, second = pair(), pair("RSA")
    mount = MountedSecret(tmp_path / "tls", first)
    folder = CertificateFolder(mount.folder, serving)
    folder.load()
    with tls_server(serving) as port:
        assert shown(port) == serial(first.certificate)
        assert folder.refresh() is False
        mount.exchange(second)
        assert folder.refresh() is True
        assert shown(port) == serial(second.certificate)
        assert folder.refresh() is False


def test_a_half_written_folder_is_told_once_and_used_when_it_is_whole(
    serving: ServingCertificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = pair(), pair()
    for content, name in ((first.certificate, "tls.crt"), (first.key, "tls.key")):
        (tmp_path / name).write_bytes(content)
    folder = CertificateFolder(tmp_path, serving)
    folder.load()
    ends = serving.expires
    (tmp_path / "tls.crt").write_bytes(second.certificate)
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            assert folder.refresh() is False
    assert [record.getMessage() for record in caplog.records] == [
        f"the new certificate cannot be used, the old one stays in use: {tmp_path}/tls.crt: "
        "the key does not belong to the certificate"
    ]
    assert serving.expires == ends
    (tmp_path / "tls.key").write_bytes(second.key)
    assert folder.refresh() is True
    with tls_server(serving) as port:
        assert shown(port) == serial(second.certificate)


def test_a_certificate_for_another_name_is_used_and_told(
    serving: ServingCertificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mount = MountedSecret(tmp_path / "tls", pair())
    folder = CertificateFolder(mount.folder, serving, "controller.kubeflow.svc")
    folder.load()
    folder.refresh()
    assert serving.loaded
    assert caplog.messages == [
        "the apiserver may refuse this certificate: it is not for controller.kubeflow.svc "
        "(its DNS names: localhost)"
    ]


def test_files_that_vanish_are_told_once_and_the_old_certificate_stays(
    serving: ServingCertificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mount = MountedSecret(tmp_path / "tls", pair())
    folder = CertificateFolder(mount.folder, serving)
    folder.load()
    os.unlink(mount.folder / "..data")
    assert not folder.refresh()
    assert not folder.refresh()
    assert [record.getMessage() for record in caplog.records] == [
        f"the new certificate cannot be used, the old one stays in use: {mount.folder}/tls.crt: "
        "No such file or directory"
    ]
    assert serving.loaded


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"-----BEGIN CERTIFICATE-----\n", b"\xff\xfe"])
def test_a_folder_with_rubbish_is_refused_at_start(
    serving: ServingCertificate, tmp_path: Path, content: bytes
) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UnusableCertificate, match=r"tls\.crt: it holds no certificate in PEM format"):
        CertificateFolder(tmp_path, serving).load()


def test_an_empty_folder_is_refused_at_start(serving: ServingCertificate, tmp_path: Path) -> None:
    with pytest.raises(UnusableCertificate, match=r"tls\.crt: No such file or directory"):
        CertificateFolder(tmp_path, serving).load()
