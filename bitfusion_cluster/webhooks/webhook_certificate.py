"""The certificate that a process shows to the apiserver: from a folder, or from the built-in authority."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.certificates.authority import UnusableCertificate, service_names
from bitfusion_cluster.certificates.built_in_authority import AuthoritySettings, BuiltInAuthority
from bitfusion_cluster.certificates.serving import (
    CertificateFolder,
    ClientAuthorityFile,
    ServingCertificate,
)
from bitfusion_cluster.program.program import CannotStart
from bitfusion_cluster.webhooks.serving_settings import ServingSettings


class WebhookCertificate:
    """Made by a process as it starts; raises CannotStart where a folder or a file holds nothing usable.

    Args:
        settings: Where the certificate comes from, and for which names it is.
        api: For the built-in authority.
        is_leader: Asked before every write that one replica alone should make.
        labels: Of the authority's Secret, when it is created.
        registry: Gets the metric of the certificate's end.
    """

    def __init__(
        self,
        settings: ServingSettings,
        api: KubernetesApi,
        is_leader: Callable[[], bool],
        labels: Mapping[str, str],
        registry: CollectorRegistry,
    ) -> None:
        self.serving = ServingCertificate()
        self._configuration = settings.webhook_configuration
        self._clients: ClientAuthorityFile | None = None
        self._folder: CertificateFolder | None = None
        self._authority: BuiltInAuthority | None = None
        self._thread: threading.Thread | None = None
        if settings.client_authority is not None:
            self._clients = ClientAuthorityFile(settings.client_authority, self.serving)
            _load(
                self._clients,
                "certificate authority in --client-authority",
                "it must be the PEM file of the authority of the apiserver's client certificate; without the "
                "option no certificate is required.",
            )
        services = service_names(settings.name, settings.namespace)
        if settings.certificate_folder is not None:
            self._folder = CertificateFolder(settings.certificate_folder, self.serving, services[0])
            _load(
                self._folder,
                "certificate in --certificate-folder",
                "it must hold tls.crt and tls.key, unencrypted; with cert-manager look at the Certificate's "
                "conditions, without it, omit the option.",
            )
        else:
            authority = AuthoritySettings(
                settings.name,
                settings.namespace,
                settings.certificate_secret or f"{settings.name}-ca",
                settings.webhook_configuration,
                (*services, *settings.certificate_names),
                labels=labels,
            )
            self._authority = BuiltInAuthority(api, self.serving, authority, is_leader)
        self._show_end(registry)

    @property
    def built_in(self) -> bool:
        """Whether the built-in authority signs it, so that somebody must lead."""
        return self._authority is not None

    @property
    def conditions(self) -> dict[str, Callable[[], bool]]:
        """What must hold before this replica is sent reviews; the names are what /readyz says is missing."""
        serving, authority = self.serving, self._authority
        conditions: dict[str, Callable[[], bool]] = {"a serving certificate": lambda: serving.loaded}
        if authority is not None:
            conditions[f"the CA in caBundle of {self._configuration}"] = lambda: authority.published
        return conditions

    def start(self, stop: threading.Event) -> None:
        """Let the built-in authority work until `stop`; returns at once."""
        if self._authority is not None:
            self._thread = threading.Thread(
                target=self._authority.run, args=(stop,), name="authority", daemon=True
            )
            self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the authority's last step, after `stop`."""
        if self._thread is not None:
            self._thread.join(seconds)

    def refresh(self) -> None:
        """Read files again that have changed. Never raises; it may wait for slow folders."""
        for file in (self._folder, self._clients):
            if file is not None:
                file.refresh()

    def _show_end(self, registry: CollectorRegistry) -> None:
        gauge = Gauge(
            "bitfusion_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, as Unix time; 0 before there is one.",
            registry=registry,
        )
        serving = self.serving
        gauge.set_function(lambda: serving.expires.timestamp() if serving.expires else 0.0)


def _load(file: CertificateFolder | ClientAuthorityFile, what: str, cure: str) -> None:
    try:
        file.load()
    except UnusableCertificate as error:
        raise CannotStart(f"No usable {what}: {error}", cure) from None
