"""The key pairs of one run: both sides trust each other and nobody else, at all times, and leave no file."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from bitfusion_client.errors import ClusterUnusable
from bitfusion_pods.command import keys
from bitfusion_pods.command.keys import Keys, make_keys
from bitfusion_pods.stream.tls import context, own_files
from tests.support.machine import scaled

LIMIT_S = 30.0


def made(folder: Path) -> Keys:
    """With openssl of this machine."""
    return make_keys(str(folder))


def pods_side(pair: Keys, folder: Path) -> ssl.SSLContext:
    """The agent's, as it reads them from its folder."""
    folder.mkdir(exist_ok=True)
    for name in ("tls.key", "tls.crt"):
        (folder / name).write_text(pair.of_pod[name])
    return context(*own_files(str(folder)), pair.of_pod["client.crt"], server=True)


def talk(client: ssl.SSLContext, server: ssl.SSLContext) -> bytes:
    """What arrives of a word, and raises where the client was not let in."""
    ours, theirs = socket.socketpair()
    problems: list[Exception] = []

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as connection:
                connection.sendall(b"word:" + connection.recv(16))
        except OSError as error:
            problems.append(error)
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        ours.settimeout(scaled(LIMIT_S))
        with client.wrap_socket(ours) as connection:
            assert connection.version() == "TLSv1.3"
            connection.sendall(b"x")
            return connection.recv(16)
    finally:
        ours.close()
        thread.join()
        if problems:
            raise problems[0]


@pytest.mark.parametrize("strict", [False, True])
def test_two_sides_trust_each_other_and_nobody_else(tmp_path: Path, strict: bool) -> None:
    run, another = made(tmp_path), made(tmp_path)
    client, server = run.context, pods_side(run, tmp_path / "pod")
    if strict:
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        server.verify_flags |= ssl.VERIFY_X509_STRICT
    assert talk(client, server) == b"word:x"
    with pytest.raises(ssl.SSLError):  # another command's GPU pod
        talk(client, pods_side(another, tmp_path / "another"))
    with pytest.raises(ssl.SSLError):  # another command
        talk(another.context, server)


def test_who_reads_the_pods_secret_is_not_let_in_by_its_agent(tmp_path: Path) -> None:
    run = made(tmp_path)
    server = pods_side(run, tmp_path / "pod")
    reader = context(*own_files(str(tmp_path / "pod")), run.of_pod["tls.crt"], server=False)
    with pytest.raises(ssl.SSLError):
        talk(reader, server)


def test_certificates_are_of_all_times_and_small(tmp_path: Path) -> None:
    """Clocks of nodes differ: an agent's may be years behind that of the command."""
    of_pod = made(tmp_path).of_pod
    for name in ("tls.crt", "client.crt"):
        text = of_pod[name]
        assert len(text) < 1000
        assert text.startswith("-----BEGIN CERTIFICATE-----\n")
        assert text.endswith("-----END CERTIFICATE-----\n")
        said = subprocess.run(
            ["openssl", "x509", "-noout", "-text"], input=text, capture_output=True, text=True, check=True
        ).stdout
        for word in (
            "Version: 3",
            "Not Before: Jan  1 00:00:00 2000 GMT",
            "Not After : Dec 31 23:59:59 9999 GMT",
            "Subject: CN = bitfusion",
            "Issuer: CN = bitfusion",
            "ASN1 OID: prime256v1",
            "ecdsa-with-SHA256",
            "X509v3 Basic Constraints: critical\n                CA:FALSE",
            "X509v3 Key Usage: critical\n                Digital Signature",
            "X509v3 Subject Key Identifier:",
            "X509v3 Authority Key Identifier:",
        ):
            assert word in said


def test_each_run_has_keys_of_its_own_and_the_commands_key_goes_nowhere(tmp_path: Path) -> None:
    runs = [made(tmp_path).of_pod for _ in range(2)]
    assert runs[0].keys() == {"tls.key", "tls.crt", "client.crt"}
    for name in runs[0]:
        assert runs[0][name] != runs[1][name]
        assert ("PRIVATE KEY" in runs[0][name]) == (name == "tls.key")
    assert runs[0]["tls.crt"] != runs[0]["client.crt"]


@pytest.mark.parametrize("memory", ["", "there"])
@pytest.mark.parametrize("fails", [False, True])
def test_no_key_is_left_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str, fails: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(keys, "MEMORY", str(tmp_path if memory else tmp_path / "none"))
    seen: list[int] = []
    run = keys._run

    def watched(command: list[str], config: str) -> None:
        (folder,) = tmp_path.iterdir()
        seen.append(folder.stat().st_mode & 0o777)
        run(["false"] if fails else command, config)

    monkeypatch.setattr(keys, "_run", watched)
    if fails:
        with pytest.raises(ClusterUnusable):
            made(tmp_path / "bitfusion")
    else:
        made(tmp_path / "bitfusion")
    assert set(seen) == {0o700}
    assert not list(tmp_path.iterdir())


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("openssl", "why"),
    [
        ("", "No such file or directory"),
        ("echo no entropy >&2; exit 3", "no entropy"),
        ("exec sleep 60", "it did not finish within 0 s"),
    ],
)
def test_what_openssl_cannot_do_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openssl: str, why: str
) -> None:
    (tmp_path / "bin").mkdir()
    if openssl:
        script(tmp_path / "bin" / "openssl", openssl)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin" if not openssl else f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(keys, "OPENSSL_ENDS_WITHIN", 0.4 if "sleep" in openssl else 10.0)
    with pytest.raises(ClusterUnusable) as caught:
        made(tmp_path)
    told = caught.value.user_message
    assert f"no key for the connection to a GPU pod, because openssl cannot create one ({why})" in told
    assert (
        "What to do: ask your administrator for the injector, which brings its own, or install openssl"
        in told
    )


def test_the_injectors_openssl_is_taken_with_its_own_libraries_and_no_settings_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    loader = script(
        tmp_path / "pods/openssl/ld.so",
        f'env >>"{log}"; echo "$1 $2 $3 $4" >>"{log}"; shift 4; PATH={os.environ["PATH"]} exec openssl "$@"',
    )
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("OPENSSL_MODULES", "/image")
    made(tmp_path)
    told = log.read_text()
    folder = loader.parent
    assert f"--inhibit-cache --library-path {folder}/lib {folder}/openssl\n" in told
    assert "OPENSSL_MODULES" not in told
