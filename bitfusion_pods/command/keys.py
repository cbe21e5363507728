"""This side's key and certificate: the pod's, which its init container has made, or a pair of this run."""

from __future__ import annotations

from bitfusion_client.errors import ClusterUnusable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.stream.tls import own_files

if TYPE_CHECKING:
    import ssl

OPENSSL_ENDS_WITHIN = 10.0
NO_OPENSSL = (
    "there is no key for the connection to a GPU pod: neither the injector's in this pod, nor an openssl to "
    "make one ({}). What to do: ask your administrator for the injector, or install openssl"
)


class Keys:
    """One pair. `close` removes what this run has made.

    Args:
        folder: That of the pod's; empty: make one. Raises ClusterUnusable if that cannot be.
    """

    def __init__(self, folder: str) -> None:
        self._made = ""
        if not folder:
            import tempfile  # not in every start, nor in the command's memory while it runs

            folder = self._made = tempfile.mkdtemp(prefix="bitfusion-keys-")
            try:
                make_pair(folder)
            except BaseException:
                self.close()
                raise
        self._files = own_files(folder)
        try:
            with open(self._files[1], encoding="ascii") as file:
                self.certificate = file.read()
                """PEM."""
        except (OSError, ValueError) as error:
            self.close()
            raise ClusterUnusable("", f"{self._files[1]}: {error}") from None

    def context(self, others: str) -> ssl.SSLContext:
        """That for a pod with this certificate. Raises ClusterUnusable."""
        from bitfusion_pods.stream import tls

        try:
            return tls.context(*self._files, others, server=False)
        except (OSError, ValueError) as error:
            raise ClusterUnusable("", f"the keys of the connection cannot be used: {error}") from None

    def close(self) -> None:
        """Remove them, if they are this run's alone."""
        if self._made:
            import shutil

            shutil.rmtree(self._made, ignore_errors=True)


def make_pair(folder: str) -> None:
    """A key and its certificate, by the openssl on PATH. Raises ClusterUnusable."""
    import subprocess

    key, certificate = own_files(folder)
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-days", "3650", "-subj", "/CN=bitfusion", "-keyout", key, "-out", certificate),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=OPENSSL_ENDS_WITHIN
        )
        problem = "" if not done.returncode else done.stderr.decode(errors="replace").strip()[-200:]
    except OSError as error:
        problem = error.strerror or str(error)
    except subprocess.TimeoutExpired:
        problem = f"it has not ended within {OPENSSL_ENDS_WITHIN:.0f} s"
    if problem:
        raise ClusterUnusable.from_text("", NO_OPENSSL.format(problem))
