"""The key pairs of one run, this side's and its GPU pod's, by openssl: the injector's, or the image's."""

from __future__ import annotations

import os

from bitfusion_client.errors import ClusterUnusable
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.pod import pod_contract
from bitfusion_pods.stream.tls import context, own_files

if TYPE_CHECKING:
    import ssl

OPENSSL_ENDS_WITHIN = 10.0
MEMORY = "/dev/shm"
"""A folder in memory, where there is one: keys come to lie on no disk."""
NO_OPENSSL = (
    "there is no key for the connection to a GPU pod, because openssl cannot create one ({}). What to do: "
    "ask "
    "your administrator for the injector, which brings its own, or install openssl"
)
# Trusted as such by the other side, signed by no authority. Strict checks of RFC 5280 are content with it.
_CONFIG = """\
[req]
distinguished_name = name
prompt = no

[name]
CN = bitfusion

[ca]
default_ca = self

[self]
database = {0}/index
new_certs_dir = {0}
default_md = sha256
rand_serial = yes
policy = policy
x509_extensions = extensions

[policy]
CN = supplied

[extensions]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
"""


@dataclass(frozen=True, slots=True)
class Keys:
    """Of one run.

    Attributes:
        context: TLS of this side: its own pair, and the pod's certificate as the only one that it trusts.
        of_pod: The pod's key, its certificate, and this side's, whom its agent lets in: PEM by their names in
            the pod's Secret.
    """

    context: ssl.SSLContext
    of_pod: dict[str, str]


def make_keys(client_folder: str) -> Keys:
    """Both pairs; nothing of them is left in a file.

    Args:
        client_folder: What stands for `/bitfusion`, with the injector's openssl if there is one.

    Raises:
        ClusterUnusable: There is no openssl, or it has failed.
    """
    import tempfile  # not in every start

    try:
        within = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
        with tempfile.TemporaryDirectory(prefix="bitfusion-keys-", dir=within) as folder:  # 0700
            own, pods = (os.path.join(folder, name) for name in ("own", "pods"))
            for each in (own, pods):
                os.mkdir(each)
                make_pair(each, client_folder)
            of_pod = {
                pod_contract.KEY_FILE: _text(pods, pod_contract.KEY_FILE),
                pod_contract.CERTIFICATE_FILE: _text(pods, pod_contract.CERTIFICATE_FILE),
                pod_contract.CLIENT_CERTIFICATE_FILE: _text(own, pod_contract.CERTIFICATE_FILE),
            }
            others = of_pod[pod_contract.CERTIFICATE_FILE]
            return Keys(context(*own_files(own), others, server=False), of_pod)
    except (OSError, ValueError) as error:
        raise ClusterUnusable("", f"the connection's keys cannot be used: {error}") from None


def _openssl(client_folder: str) -> list[str]:
    tools = os.path.join(client_folder, pod_contract.OPENSSL_FOLDER)
    loader, libraries, program = (os.path.join(tools, name) for name in ("ld.so", "lib", "openssl"))
    if os.path.exists(loader):  # Debian's, with libraries of its own
        return [loader, "--inhibit-cache", "--library-path", libraries, program]
    return ["openssl"]


def make_pair(folder: str, client_folder: str = pod_contract.CLIENT_FOLDER) -> None:
    """A key and its certificate, for `own_files` of a folder. Raises ClusterUnusable and OSError."""
    openssl, (key, certificate) = _openssl(client_folder), own_files(folder)
    request, config = os.path.join(folder, "request"), os.path.join(folder, "openssl.cnf")
    for path, text in ((config, _CONFIG.format(folder)), (os.path.join(folder, "index"), "")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    _run([*openssl, "req", "-new", *curve, "-keyout", key, "-out", request], config)
    # `ca`, since it can set the beginning: the clocks of nodes differ, and one that is behind would not
    # accept a certificate of this very second. The end is RFC 5280's for none: the pod's life bounds it.
    times = ("-startdate", "20000101000000Z", "-enddate", "99991231235959Z")
    signed = ("-batch", "-selfsign", "-notext", "-keyfile", key, "-in", request, "-out", certificate)
    _run([*openssl, "ca", *signed, *times], config)


def _run(command: list[str], config: str) -> None:
    import subprocess

    # the image's needs its environment; the injector's would only be disturbed by it
    given = {**(os.environ if command[0] == "openssl" else {}), "OPENSSL_CONF": config}
    try:
        done = subprocess.run(
            command,
            env=given,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=OPENSSL_ENDS_WITHIN,
        )
        problem = "" if not done.returncode else done.stderr.decode(errors="replace").strip()[-200:]
    except OSError as error:
        problem = error.strerror or str(error)
    except subprocess.TimeoutExpired:
        problem = f"it did not finish within {OPENSSL_ENDS_WITHIN:.0f} s"
    if problem:
        raise ClusterUnusable.from_text("", NO_OPENSSL.format(problem))


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return file.read()
