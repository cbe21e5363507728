"""--client-authority: who shows no certificate of that authority gets no answer, over real TLS."""

from __future__ import annotations

import logging
import ssl
from datetime import datetime, timezone
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from bitfusion_cluster.certificates.authority import (
    Pair,
    UnusableCertificate,
    new_authority,
)
from bitfusion_cluster.certificates.serving import ClientAuthorityFile, ServingCertificate
from tests.bitfusion_cluster.certificates.pairs import pair, trusted
from tests.notebook_controller_patch.controller_process import ControllerProcess
from tests.support.certificates import Certified, certified
from tests.support.machine import scaled
from tests.support.waiting import wait_until

NOW = datetime.now(timezone.utc)
OURS, OTHERS = new_authority("ours", NOW), new_authority("others", NOW)


def client_pair(authority: Pair) -> Pair:
    """As a client's certificate is: not for servers."""
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    made = certified("kube-apiserver", signed_by=Certified(authority.certificate, authority.key), usage=usage)
    return Pair(made.certificate, made.key)


def answered(port: int, folder: Path, shows: Pair | None) -> bool:
    """Whether /healthz of the webhooks' port answers a client that shows this certificate."""
    context = ssl.create_default_context(cadata=trusted())
    if shows is not None:
        (folder / "client.pem").write_bytes(shows.certificate + shows.key)
        context.load_cert_chain(folder / "client.pem")
    connection = HTTPSConnection("localhost", port, timeout=scaled(5), context=context)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a serving certificate and a kubeconfig of a server that is away."""
    shown = pair("ECDSA")
    (tmp_path / "tls.crt").write_bytes(shown.certificate)
    (tmp_path / "tls.key").write_bytes(shown.key)
    cluster = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]"
    context = "contexts: [{name: x, context: {cluster: c, user: u}}]"
    text = f"apiVersion: v1\nkind: Config\n{cluster}\n{context}\nusers: [{{name: u, user: {{}}}}]\n"
    (tmp_path / "kubeconfig").write_text(f"{text}current-context: x\n")
    return tmp_path


def options(files: Path) -> list[str]:
    return [f"--kubeconfig={files / 'kubeconfig'}", "--namespace=kubeflow", f"--certificate-folder={files}"]


def test_only_a_certificate_of_that_authority_is_let_in_and_a_new_authority_takes_its_place(
    files: Path,
) -> None:
    authority = files / "clients.crt"
    authority.write_bytes(OURS.certificate)
    ours, others = client_pair(OURS), client_pair(OTHERS)
    with ControllerProcess(files, [*options(files), f"--client-authority={authority}"]) as controller:
        port = controller.port
        assert answered(port, files, ours)
        assert not answered(port, files, None)
        assert not answered(port, files, others)
        # Probes and metrics are on the other port, where nobody is asked.
        assert controller.ask("/healthz")[0] == 200

        authority.write_bytes(OTHERS.certificate)
        wait_until(lambda: answered(port, files, others), "the new authority is in force", 20)
        assert not answered(port, files, ours)
        assert not answered(port, files, None)


def test_without_the_option_nobody_is_asked(files: Path) -> None:
    with ControllerProcess(files, options(files)) as controller:
        assert answered(controller.port, files, None)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (None, "No such file or directory"),
        (b"", "it holds no certificate in PEM format"),
        (b"x", "it holds no"),
    ],
)
def test_a_file_without_an_authority_ends_the_start_with_what_to_do(
    files: Path, content: bytes | None, wrong: str
) -> None:
    authority = files / "clients.crt"
    if content is not None:
        authority.write_bytes(content)
    with ControllerProcess(files, [*options(files), f"--client-authority={authority}"]) as controller:
        assert controller.process.wait(scaled(20)) == 1
        (line,) = controller.log.read_text().splitlines()
    assert line.startswith(
        "bitfusion-notebook-controller: No usable certificate authority in --client-authority: "
        f"{authority}: {wrong}"
    )
    assert line.lower().endswith(
        "it must be the pem file of the authority of the apiserver's client certificate; without the option "
        "no "
        "certificate is required."
    )


def test_a_file_that_becomes_wrong_is_told_once_and_the_authority_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "clients.crt"
    path.write_bytes(OURS.certificate)
    serving = ServingCertificate()
    file = ClientAuthorityFile(path, serving)
    file.load()
    serving.use(pair("ECDSA"))
    path.write_bytes(b"half")
    with caplog.at_level(logging.WARNING):
        file.refresh()
        file.refresh()
    (record,) = caplog.records
    assert record.getMessage() == (
        f"the new client authority cannot be used, the old one stays in use: {path}: it holds no "
        "certificate in "
        "PEM format"
    )
    assert serving.context.verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(UnusableCertificate):
        file.load()
