"""A container of the kind `pods` has a key and a certificate that only the pods which it makes trust."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from bitfusion_client.pod import pod_contract
from bitfusion_client.pod.this_pod import settings_text, this_pod
from bitfusion_pods.stream.tls import context, own_files
from tests.bitfusion_device_plugin.injector.pod_client.client_image import (
    LIMIT_S,
    MAIN,
    POD,
    PODS,
    install,
    make_client_image,
)
from tests.support.machine import scaled
from tests.support.namespaces import with_own_mounts

SETTINGS = json.dumps({"rules": [], "pod": {"nodeSelector": {"a": "ü $(B) '\" \\n"}}})
PROGRAM = ("program", "-n 1 -p 0.5", "50", "pods", "")
VERSIONS = "the injector and the client's image are of different versions: install both from one release"
_WITH_STATUS = """\
cd "$1" && touch null urandom termination-log
for device in null urandom; do mount --bind "/dev/$device" "$device"; done
mount --rbind "$1" /dev
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_client_image(tmp_path_factory.mktemp("client-image") / "bitfusion-image", [])


@pytest.fixture
def keys(volume: Path) -> Path:
    """The pod's volume for them, as long as it has not been filled."""
    folder = volume.with_name("bitfusion-keys")
    folder.mkdir()
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def install_in_gpu_pod(
    image: Path, volume: Path, certificate: str, environ: Mapping[str, str] = POD
) -> tuple[subprocess.CompletedProcess[str], str]:
    """As the init container of a GPU pod; and what its status says afterwards."""
    device = volume.with_name("dev")
    device.mkdir(exist_ok=True)
    done = subprocess.run(
        with_own_mounts(
            [
                "sh",
                "-c",
                _WITH_STATUS,
                "sh",
                *map(str, (device, image / "bin/sh", image / "install", volume)),
                *PROGRAM,
            ]
        ),
        env={**environ, "PATH": os.environ["PATH"], pod_contract.ENV_CLIENT_CERTIFICATE: certificate},
        capture_output=True,
        text=True,
        timeout=scaled(LIMIT_S),
        check=False,
    )
    return done, (device / "termination-log").read_text()


def gpu_pod(image: Path, folder: Path, certificate: str) -> tuple[Path, str]:
    """The keys of a GPU pod, and what the pod's status says."""
    volume, keys = folder / "volume", folder / "bitfusion-keys"
    volume.mkdir(parents=True)
    keys.mkdir()
    done, told = install_in_gpu_pod(image, volume, certificate)
    assert (done.returncode, done.stderr) == (0, "")
    return keys / "program", told


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


def side(keys: Path, others: str, *, server: bool = False) -> ssl.SSLContext:
    """The context of the pod that has these keys."""
    return context(*own_files(str(keys)), others, server=server)


def both(own: Path, gpu: Path, told: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of the two sides, the client's with what the GPU pod's status says."""
    return side(own, told), side(gpu, (gpu / "client.crt").read_text(), server=True)


@pytest.mark.parametrize("strict", [False, True])
def test_two_pods_trust_each_other_and_nobody_else(
    image: Path, volume: Path, keys: Path, tmp_path: Path, strict: bool
) -> None:
    assert install(image, volume, *PODS, *("side", *PODS[1:])).returncode == 0
    own = keys / "main"
    gpu, told = gpu_pod(image, tmp_path / "gpu", (own / "tls.crt").read_text())
    client, server = both(own, gpu, told)
    if strict:
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        server.verify_flags |= ssl.VERIFY_X509_STRICT
    assert talk(client, server) == b"word:x"
    assert (gpu / "client.crt").read_text() == (own / "tls.crt").read_text()
    for stranger in (keys / "side", gpu):
        with pytest.raises(ssl.SSLError):
            talk(side(stranger, told), server)
    with pytest.raises(ssl.SSLError):
        talk(side(own, (own / "tls.crt").read_text()), server)


def test_the_certificate_is_of_all_times_and_small(image: Path, volume: Path, keys: Path) -> None:
    """Clocks of nodes differ; and a pod's status has 4096 bytes for it."""
    assert install(image, volume, *PODS).returncode == 0
    text = (keys / "main" / "tls.crt").read_text()
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


def test_each_container_has_its_own_and_others_have_none(image: Path, volume: Path, keys: Path) -> None:
    side = ("side", *PODS[1:])
    done = install(
        image, volume, *PODS, *side, "other", *MAIN[1:], environ={**POD, "BITFUSION_PODS": SETTINGS}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(keys)) == ["main", "side"]
    for name in ("main", "side"):
        assert sorted(os.listdir(keys / name)) == ["tls.crt", "tls.key"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in (keys / name).iterdir()} == {0o644}
    assert (keys / "main" / "tls.key").read_bytes() != (keys / "side" / "tls.key").read_bytes()
    assert sorted(os.listdir(volume / "main")) == ["bin", "keys", "pod", "pods"]
    assert os.listdir(volume / "main" / "keys") == []  # where the volume is mounted
    assert os.path.samefile(volume / "main/pods/bitfusion", volume / "side/pods/bitfusion")
    pod = this_pod(str(volume / "main"))
    assert pod is not None
    assert pod.client == pod_contract.PODS
    assert settings_text(str(volume / "main")) == (volume / "side/pod/pods.json").read_text() == SETTINGS
    assert settings_text(str(volume / "other")) == ""
    assert b"BEGIN PRIVATE KEY" not in b"".join(files(volume).values())


def test_a_notebooks_certificate_is_not_told_in_its_pods_status(
    image: Path, volume: Path, keys: Path
) -> None:
    done, told = install_in_gpu_pod(image, volume, "")
    assert (done.returncode, told) == (0, "")
    assert sorted(os.listdir(keys / "program")) == ["tls.crt", "tls.key"]


def test_keys_that_a_container_may_have_read_stay(image: Path, volume: Path, keys: Path) -> None:
    install(image, volume, *PODS)
    before = files(keys)
    assert install(image, volume, *PODS).returncode == 0
    assert files(keys) == before


def test_a_run_that_was_killed_is_finished_by_the_next_with_the_pair_that_is_told(
    image: Path, tmp_path: Path
) -> None:
    """Before each of its steps in turn, in a GPU pod."""
    own = tmp_path / "own"
    (own / "volume").mkdir(parents=True)
    (own / "bitfusion-keys").mkdir()
    install(image, own / "volume", *PODS)
    certificate = (own / "bitfusion-keys/main/tls.crt").read_text()
    script = (image / "install").read_text()
    places = [place for place in range(len(script)) if script.startswith("  try ", place)]
    died = 0
    try:
        for number, place in enumerate(places):
            folder = tmp_path / f"pod-{number}"
            volume, keys = folder / "volume", folder / "bitfusion-keys"
            volume.mkdir(parents=True)
            keys.mkdir()
            (image / "install").write_text(script[:place] + " kill -9 $$; sleep 60\n" + script[place:])
            killed, told = install_in_gpu_pod(image, volume, certificate)
            died += killed.returncode == -signal.SIGKILL
            assert told == "" or killed.returncode == 0
            if (keys / "program").exists():
                assert {"tls.crt", "tls.key"} <= set(os.listdir(keys / "program"))
            (image / "install").write_text(script)
            done, told = install_in_gpu_pod(image, volume, certificate)
            assert (done.returncode, done.stderr) == (0, "")
            assert sorted(os.listdir(keys)) == ["program"]
            gpu = keys / "program"
            assert sorted(os.listdir(gpu)) == ["client.crt", "tls.crt", "tls.key"]
            assert told == (gpu / "tls.crt").read_text()
            side(gpu, (gpu / "client.crt").read_text(), server=True)
    finally:
        (image / "install").write_text(script)
    assert died > 20


def test_what_lies_in_the_volume_of_keys_is_never_followed(
    image: Path, volume: Path, keys: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for name in ("tls.key", "tls.crt"):
        (foreign / name).write_text("theirs")
    for name in ("main", ".draft"):
        (keys / name).symlink_to(foreign)
    assert install(image, volume, *PODS).returncode == 0
    assert not (keys / "main").is_symlink()
    assert {path.read_text() for path in foreign.iterdir()} == {"theirs"}
    assert "BEGIN PRIVATE KEY" in (keys / "main" / "tls.key").read_text()


def test_of_several_certificates_the_first_alone_is_trusted(
    image: Path, volume: Path, keys: Path, tmp_path: Path
) -> None:
    install(image, volume, *PODS, "side", *PODS[1:])
    first, second = ((keys / name / "tls.crt").read_text() for name in ("main", "side"))
    gpu, _ = gpu_pod(image, tmp_path / "gpu", f"\n\n  words\n{first}{second}")
    assert (gpu / "client.crt").read_text() == first


@pytest.mark.parametrize(
    "certificate",
    [
        "nonsense",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "\n",
        "-config /etc/passwd",
        "%s%n",
    ],
)
def test_a_certificate_that_is_none_is_told(image: Path, volume: Path, keys: Path, certificate: str) -> None:
    done, told = install_in_gpu_pod(image, volume, certificate)
    assert (done.returncode, done.stdout, told) == (1, "", done.stderr)
    assert told == (
        "Error: the bitfusion client could not be put into the pod: the pod's annotation "
        f"bitfusion.io/client-certificate is no certificate. What to do: {VERSIONS}\n"
    )
    assert not (volume / "program").exists()


@pytest.mark.parametrize(
    ("name", "size"), [(pod_contract.ENV_SETTINGS, 65537), (pod_contract.ENV_CLIENT_CERTIFICATE, 8193)]
)
def test_variables_without_a_bound_are_refused(
    image: Path, volume: Path, keys: Path, name: str, size: int
) -> None:
    done = install(image, volume, *PODS, environ={**POD, name: "x" * size})
    assert done.returncode == 1
    assert f"put into the pod: {name} has {size} characters. What to do: {VERSIONS}\n" in done.stderr
    assert os.listdir(volume) == os.listdir(keys) == []


def test_without_a_volume_for_keys_nothing_is_done(image: Path, volume: Path) -> None:
    done = install(image, volume, *PODS)
    assert done.returncode == 1
    assert f"there is no folder {volume.parent}/bitfusion-keys. What to do: {VERSIONS}\n" in done.stderr
    assert os.listdir(volume) == []
