"""The built-in certificate authority: signs and renews certificates where there is no cert-manager.

The order, which needs no job and no second program:
1. every replica creates the CA's Secret; whoever comes second is told 409 and reads the first one's;
2. every replica signs a serving certificate for itself, in memory, and shows it;
3. the leader writes the CA into ``caBundle`` of the one named MutatingWebhookConfiguration;
4. a replica is ready once its CA stands there.
A configuration that cert-manager fills (its annotation says so) is never written: a leader that still runs
with this authority, while a roll-out replaces it, would take away the trust in those that replace it.

After that leaves and the CA are renewed when two thirds of their life are over, and a ``caBundle`` that
somebody emptied (``kubectl replace`` does) is written again within seconds. The leader asks for the one small
object instead of watching it: nothing to be cut off from, and no right to list.

When the CA changes its predecessor stays in the bundle until it ends, and a replica shows a leaf of the
new one only when the bundle has held it for `TRUST_SETTLES`: no handshake fails in between.

Needs: create secrets in the own namespace (RBAC cannot restrict a creation to a name), get and patch this
one Secret, get and patch this one MutatingWebhookConfiguration.
"""

from __future__ import annotations

import base64
import binascii
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from bitfusion_client.errors import BitfusionError
from bitfusion_client.kubernetes.raw_objects import annotations_of, mapping, metadata_of
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import ApiFailure, NotFound
from bitfusion_cluster.api.json_patch import pointer
from bitfusion_cluster.api.paths import webhook_configuration_path
from bitfusion_cluster.certificates.authority import (
    UnusableCertificate,
    expires,
    issue,
    renewal_due,
)
from bitfusion_cluster.certificates.authority_secret import (
    Authorities,
    renewed,
)
from bitfusion_cluster.certificates.secret_store import SecretStore
from bitfusion_cluster.certificates.serving import ServingCertificate

LOOK_S = 4.0  # how often the leader looks for an emptied caBundle, and who is not ready for its CA in it
SECRET_LOOK = timedelta(seconds=60)
LONGEST_PAUSE_S = 30.0
# Apiservers learn of a new caBundle by a watch, within a second or so; a minute costs nothing.
TRUST_SETTLES = timedelta(seconds=60)

log = logging.getLogger(__name__)


class NotTrusted(BitfusionError):
    """The apiserver cannot be told to trust this controller; `str()` says why and what to do."""


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True)
class AuthoritySettings:
    """Where the authority keeps its CA, and whom it serves.

    Attributes:
        name: The controller's, which a new CA is called.
        namespace: The controller's own.
        secret: The Secret that holds the CA.
        webhook_configuration: The MutatingWebhookConfiguration whose ``caBundle`` is written.
        names: The serving certificate's names, the Service's first.
        labels: Of the Secret, when it is created.
    """

    name: str
    namespace: str
    secret: str
    webhook_configuration: str
    names: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)


class BuiltInAuthority:
    """Keeps a replica's serving certificate, and if it leads the ``caBundle``, as they should be.

    Made by the controller where no --certificate-folder is given; `run` belongs into a thread of its own.

    Args:
        api: The API client.
        serving: Shows the certificates that are issued here.
        settings: Names of the objects involved.
        is_leader: Asked before every write that one replica alone should make.
        now: Aware UTC time; tests pass their own.
    """

    def __init__(
        self,
        api: KubernetesApi,
        serving: ServingCertificate,
        settings: AuthoritySettings,
        is_leader: Callable[[], bool],
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._api = api
        self._serving = serving
        self._settings = settings
        self._store = SecretStore(
            api, settings.namespace, settings.secret, settings.labels, authority=settings.name
        )
        self._is_leader = is_leader
        self._now = now
        self._authorities: Authorities | None = None
        self._read_at: datetime | None = None
        self._leaf = b""
        self._signer = b""  # the CA of the leaf
        self._trusted = b""  # the CA that stands in the bundle, and since when
        self._trusted_since: datetime | None = None
        self._complaint = ""
        self._published = False

    @property
    def published(self) -> bool:
        """Whether the apiserver has been told to trust this replica: a condition of being ready.

        Once is enough: removing the webhook configuration, which is how one uninstalls, makes no replica
        unready.
        """
        return self._published

    def run(self, stop: threading.Event) -> None:
        """Until `stop`: a step every few seconds; what goes wrong is logged once and tried again."""
        pause = LOOK_S
        while not stop.is_set():
            try:
                self.step()
                self._complaint = ""
                pause = LOOK_S if self._published else LOOK_S / 4
            except (ApiFailure, NotTrusted) as error:
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    log.warning("%s", error, extra=self._where())
                waits = self._published and isinstance(error, ApiFailure)
                pause = min(pause * 2, LONGEST_PAUSE_S) if waits else LOOK_S
            except Exception:  # nobody else would renew the certificate
                log.exception("certificates could not be maintained", extra=self._where())
                pause = LONGEST_PAUSE_S
            stop.wait(pause * random.uniform(0.8, 1.2))

    def step(self) -> None:
        """Look once and do what is due. Raises ApiFailure, NotTrusted; call it again then."""
        now = self._now()
        problem: BitfusionError | None = None
        if self._authorities is None or self._read_at is None or now - self._read_at >= SECRET_LOOK:
            try:
                self._authorities = self._read_secret(now)
                self._read_at = now
            except (ApiFailure, NotTrusted) as error:
                if self._authorities is None:
                    raise
                # A Secret that somebody broke or took away the right to: what is in memory still holds.
                problem = error
        leads = self._is_leader()
        if leads and problem is None:
            self._authorities = self._renew_authority(self._authorities, now)
        self._look_after(self._authorities, leads, now)
        if problem is not None:
            raise problem

    def _look_after(self, authorities: Authorities, leads: bool, now: datetime) -> None:
        switching = bool(self._leaf) and self._signer != authorities.current.certificate
        if not self._leaf or expires(self._leaf) <= now or (not switching and renewal_due(self._leaf, now)):
            self._show_leaf_of(authorities, now)
            switching = False
        if leads or switching or not self._published:
            self._look_at_bundle(authorities, leads, now)
        settled = self._trusted_since is not None and now - self._trusted_since >= TRUST_SETTLES
        if switching and settled:
            self._show_leaf_of(authorities, now)

    def _read_secret(self, now: datetime) -> Authorities:
        try:
            return self._store.read(self._authorities, now)
        except UnusableCertificate as error:
            raise self._unusable(error) from None

    def _show_leaf_of(self, authorities: Authorities, now: datetime) -> None:
        try:
            pair = issue(authorities.current, self._settings.names, now)
        except UnusableCertificate as error:
            raise self._unusable(error) from None
        self._serving.use(pair)
        self._leaf, self._signer = pair.certificate, authorities.current.certificate
        log.info("serving certificate issued", extra={"expires": expires(self._leaf).isoformat()})

    def _look_at_bundle(self, authorities: Authorities, leads: bool, now: datetime) -> None:
        name = self._settings.webhook_configuration
        path = webhook_configuration_path(name)
        try:
            found = self._api.get(path)
        except NotFound:
            self._trusted_since = None
            raise NotTrusted(
                answered=f"MutatingWebhookConfiguration {name} does not exist; apply it, or "
                "name another with --webhook-configuration"
            ) from None
        owner = injected_by(found)
        writes = leads and not owner
        operations = bundle_patch(found, authorities.trusted(now, self._signer)) if writes else []
        if operations:
            found = self._api.patch(path, operations)
            log.info("caBundle written", extra={"configuration": name})
        current = authorities.current.certificate
        if not trusts(found, current):
            self._trusted_since = None
        elif self._trusted_since is None or self._trusted != current:
            self._trusted, self._trusted_since = current, now
        if trusts(found, self._signer):
            self._published = True
        elif owner:
            raise NotTrusted(
                answered=f"caBundle of MutatingWebhookConfiguration {name} belongs to cert-manager "
                f"(annotation {owner}) and is not written here; give this replica cert-manager's "
                "certificate with --certificate-folder, or remove the annotation"
            )

    def _renew_authority(self, authorities: Authorities, now: datetime) -> Authorities:
        fresh = renewed(authorities, self._settings.name, now, old_name=self._settings.secret)
        if fresh is None:
            return authorities
        self._read_at = None  # if somebody else was faster, theirs is read
        self._store.replace(fresh)
        self._read_at = now
        log.info("certificate authority renewed", extra=self._where())
        return fresh

    def _unusable(self, error: UnusableCertificate) -> NotTrusted:
        secret = f"Secret {self._settings.secret} in namespace {self._settings.namespace}"
        return NotTrusted(
            answered=f"{secret} holds no usable certificate authority ({error}); delete it, and a new one "
            "is created"
        )

    def _where(self) -> dict[str, str]:
        return {"secret": f"{self._settings.namespace}/{self._settings.secret}"}


# An object with one of these is cert-manager's to fill: its cainjector writes caBundle whenever it differs.
# https://cert-manager.io/docs/concepts/ca-injector/
INJECTED = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
)


def injected_by(configuration: Mapping[str, Any]) -> str:
    """The annotation by which cert-manager owns every ``caBundle`` here; empty if it does not."""
    annotations = annotations_of(configuration)
    return next((name for name in INJECTED if name in annotations), "")


def bundle_patch(configuration: Mapping[str, Any], bundle: bytes) -> list[dict[str, Any]]:
    """The JSON patch that makes every webhook of this configuration trust `bundle`; empty if all do.

    Webhooks are a list: each write is preceded by a ``test`` of the name at its place, so that a
    configuration that was replaced meanwhile is refused as a whole and looked at again; a ``test`` of the
    resourceVersion, so that one which became cert-manager's in between is, too.
    """
    wanted = base64.b64encode(bundle).decode()
    operations: list[dict[str, Any]] = []
    for index, webhook in enumerate(_webhooks(configuration)):
        name, client = webhook.get("name"), webhook.get("clientConfig")
        if not isinstance(client, dict) or client.get("caBundle") == wanted:
            continue
        place = ("webhooks", str(index))
        operations += [
            {"op": "test", "path": pointer(*place, "name"), "value": name},
            {"op": "add", "path": pointer(*place, "clientConfig", "caBundle"), "value": wanted},
        ]
    version = metadata_of(configuration).get("resourceVersion")
    if operations and version:
        operations.insert(0, {"op": "test", "path": pointer("metadata", "resourceVersion"), "value": version})
    return operations


def trusts(configuration: Mapping[str, Any], certificate: bytes) -> bool:
    """Whether every webhook of this configuration trusts this CA, alone or among others."""
    webhooks = _webhooks(configuration)
    return bool(webhooks) and all(certificate.strip() in _trusted(webhook) for webhook in webhooks)


def _webhooks(configuration: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return configuration.get("webhooks") or ()


def _trusted(webhook: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(mapping(webhook.get("clientConfig")).get("caBundle") or "")
    except (binascii.Error, ValueError, TypeError):
        return b""
