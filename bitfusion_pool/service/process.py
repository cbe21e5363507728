"""The process of `bitfusion-pool serve`: starts everything, runs until a signal, ends in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import Mapping
from functools import partial

from bitfusion_client.errors import ClientFailed, PoolUnreadable
from bitfusion_client.listening.many_files import allow_many_files
from bitfusion_pool.access.tls import SERVICE_CERTIFICATE
from bitfusion_pool.ledger.adoption import adopt_requests
from bitfusion_pool.ledger.entries import HELD, PROCESS, REMOTE, Entry
from bitfusion_pool.ledger.files.complaints import unreadable
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.ledger.files.pool_folder import FOLDER_VARIABLE
from bitfusion_pool.ledger.files.service_lock import take_service_lock
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.storage.database import open_folder
from bitfusion_pool.service.configuration_watch import ConfigurationWatch, check_size
from bitfusion_pool.service.connections.admission import Admission, LocalAdmission, PoolTokens, TokenAdmission
from bitfusion_pool.service.connections.client_connection import ClientConnection
from bitfusion_pool.service.connections.connection_counts import ConnectionCounts, Stranger, Strangers
from bitfusion_pool.service.connections.listener import Listener
from bitfusion_pool.service.connections.message_turns import MessageTurns
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.connections.stream import LocalStream
from bitfusion_pool.service.connections.tls_listener import (
    HandshakePace,
    ServiceCertificate,
    TlsListener,
    bind_port,
)
from bitfusion_pool.service.connections.tls_stream import TlsStream
from bitfusion_pool.service.devices.card_reader import CardReader
from bitfusion_pool.service.devices.device_readings import DeviceReadings
from bitfusion_pool.service.devices.found_devices import choose_devices
from bitfusion_pool.service.leases.lease_secrets import LeaseSecrets, read_key
from bitfusion_pool.service.leases.lease_watch import LeaseWatch
from bitfusion_pool.service.leases.limits import UserLimits
from bitfusion_pool.service.leases.operations import LeaseTimes, PoolOperations
from bitfusion_pool.service.leases.remote_leases import QueuedRequest, RemoteLeases
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.monitoring.metrics_port import serve_metrics
from bitfusion_pool.service.monitoring.pool_census import states_of_pool
from bitfusion_pool.service.refusal import RefusalLog
from bitfusion_pool.service.sessions.entry_watch import EntryWatch
from bitfusion_pool.service.sessions.issuing import TokenIssuing
from bitfusion_pool.service.sessions.kept_requests import KeptRequests
from bitfusion_pool.service.sessions.lease_life import LeaseLife, LifeByLock, LifeByWords
from bitfusion_pool.service.sessions.session import Session
from bitfusion_pool.service.settings import ServiceSettings, listen_address, pool_name

_log = logging.getLogger(__name__)
_MOST_STRANGERS = 1024  # connections over the network without a token yet
_LOOK_AGAIN_S = 1.0  # at the tokens of open connections, and at the certificate
_END_S = 2.0  # so long may clients take to read that the service ends


def serve(settings: ServiceSettings, environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT. Logs go to stderr; `logging` must have been configured.

    Raises:
        BitfusionError: It cannot start; nothing was changed.
    """
    environ = {**environ, FOLDER_VARIABLE: settings.dir}
    os.umask(0o077)
    allow_many_files()
    folder = open_folder(settings.dir, environ)
    lock = _lock_folder(folder)
    try:
        adopted = adopt_requests(folder)
        with Ledger(environ) as ledger:
            ledger.serve_fairly(settings.fair)
            choose_devices(ledger, environ, settings.gpus)
            metrics = _metrics(settings)
            asyncio.run(_serve(settings, environ, ledger, metrics, adopted))
    finally:
        os.close(lock)


class Service:
    """The parts of a running service; made within the event loop.

    `adopted` are the requests of the service before it, from `adopt_requests`.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        environ: Mapping[str, str],
        ledger: Ledger,
        metrics: Metrics,
        adopted: Mapping[str, LeaseLock],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._metrics = metrics
        self._sessions: set[Session] = set()
        self._refusals = RefusalLog(metrics)
        self._certificate: ServiceCertificate | None = None
        self._tokens_told = False  # the log says that they cannot be read
        self._turns = MessageTurns(settings.messages_per_user, 2 * settings.messages_per_user, loop)
        self.entry_watch = EntryWatch(partial(states_of_pool, ledger, metrics), loop)
        limits = UserLimits(settings.leases_per_user, settings.gpus_per_user, settings.waiting_per_user)
        times = LeaseTimes(settings.closed_s, settings.silent_s, settings.heartbeat_s)
        try:
            secrets = LeaseSecrets(read_key(ledger.folder))
        except OSError as error:
            raise unreadable(ledger.folder, error) from None
        self.operations = PoolOperations(
            ledger, secrets, limits, pool_name(settings), times, self.entry_watch.changed
        )
        self.lease_watch = LeaseWatch(self.operations)
        self._kept_requests = KeptRequests(self.operations, self.entry_watch, loop, settings.kept_s)
        self.remote_leases = RemoteLeases(self.operations, times.closed_s, times.silent_s, metrics)
        self.device_readings = DeviceReadings(ledger, CardReader(environ), loop, self.operations.has_changed)
        self.operations.once_known = self.device_readings.once_known
        check_size(ledger.servers)
        self.configuration_watch = ConfigurationWatch(self.operations)
        self._tokens = PoolTokens(ledger)
        self._issuing = TokenIssuing(ledger.folder, loop, metrics)
        self._counts = ConnectionCounts(settings.connections_per_user, settings.connections)
        self._strangers = Strangers(settings.connections_per_address, _MOST_STRANGERS)
        for entry in ledger.entries():  # of the service before this one
            self._found(entry, adopted.get(entry.entry_id))
        self._tls_listener = self._listen_for_others(settings, ledger.folder) if settings.listen else None
        self._listener = Listener(settings.socket, loop, self._counts, self._connected_here, self._refusals)

    async def look_again(self) -> None:
        """Notice tokens that have ended and a certificate that was renewed."""
        while True:
            await asyncio.sleep(_LOOK_AGAIN_S)
            if self._certificate is not None:
                self._certificate.look_again()
            try:
                for session in list(self._sessions):
                    session.look_again()
                self._tokens_told = False
            except PoolUnreadable as error:
                if not self._tokens_told:
                    self._tokens_told = True
                    _log.error("tokens cannot be read", extra={"reason": str(error)})

    async def end(self) -> None:
        """Take no more connections, tell everybody, wait until it is read."""
        self._listener.close()
        if self._tls_listener is not None:
            self._tls_listener.close()
        self._issuing.close()
        for session in list(self._sessions):
            session.end_of_service()
        deadline = self._loop.time() + _END_S
        while self._sessions and self._loop.time() < deadline:
            await asyncio.sleep(0.02)

    def _listen_for_others(self, settings: ServiceSettings, folder: str) -> TlsListener:
        self._certificate = ServiceCertificate(settings.certificate or f"{folder}/{SERVICE_CERTIFICATE}")
        return TlsListener(
            bind_port(listen_address(settings.listen)),
            self._loop,
            self._certificate.context,
            self._strangers,
            HandshakePace(settings.handshakes_per_address),
            self._connected_from_elsewhere,
            self._refusals,
            self._metrics,
        )

    def _found(self, entry: Entry, lock: LeaseLock | None) -> None:
        if entry.holder.is_remote and (lock or entry.kind == REMOTE):
            self.remote_leases.found(entry.entry_id, QueuedRequest(entry, lock) if lock else None)
        elif lock is not None:
            self._kept_requests.keep(entry.entry_id, lock)
        elif entry.state == HELD and entry.kind == PROCESS:
            self.lease_watch.add(entry.entry_id)

    def _connected_here(self, connected: socket.socket, peer: Peer) -> None:
        life = LifeByLock(self.operations, self.lease_watch, self._kept_requests)
        self._begin(LocalStream(connected), LocalAdmission(peer, self._counts), life, None)

    def _connected_from_elsewhere(self, stream: TlsStream, stranger: Stranger) -> None:
        admission = TokenAdmission(stranger, self._strangers, self._tokens, self._counts)
        life = LifeByWords(self.operations, self.remote_leases, self._metrics, self._loop, stream.announced)
        stranger.send_away = self._begin(stream, admission, life, self._issuing).make_room

    def _begin(
        self,
        stream: LocalStream | TlsStream,
        admission: Admission,
        life: LeaseLife,
        issuing: TokenIssuing | None,
    ) -> Session:
        connection = ClientConnection(stream, self._loop, lambda it: self._turns.add(session.known_as, it))
        session = Session(
            connection,
            admission,
            life,
            self.operations,
            self.entry_watch,
            self.lease_watch,
            self._kept_requests,
            self.remote_leases,
            issuing,
            self._metrics,
            self._refusals,
            self._loop,
            self._ended,
        )
        connection.handler = session
        self._sessions.add(session)
        self._metrics.connections.set(len(self._sessions))
        connection.start()
        return session

    def _ended(self, session: Session) -> None:
        self._sessions.discard(session)
        self._metrics.connections.set(len(self._sessions))


async def _serve(
    settings: ServiceSettings,
    environ: Mapping[str, str],
    ledger: Ledger,
    metrics: Metrics,
    adopted: Mapping[str, LeaseLock],
) -> None:
    service = Service(settings, environ, ledger, metrics, adopted)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, service.configuration_watch.reload)
    tasks = [
        loop.create_task(service.entry_watch.run()),
        loop.create_task(service.lease_watch.run()),
        loop.create_task(service.remote_leases.run()),
        loop.create_task(service.configuration_watch.run()),
        loop.create_task(service.look_again()),
        loop.create_task(service.device_readings.run()),
        loop.create_task(stop.wait()),
    ]
    _log.info(
        "service started",
        extra={
            "socket": settings.socket,
            "listen": settings.listen,
            "folder": ledger.folder,
            "servers": len(ledger.servers),
            "gpus": sum(len(server.devices) for server in ledger.servers),
            "simulated": not ledger.has_real_devices,
            "entries": ledger.check_integrity(),
        },
    )
    service.entry_watch.changed()  # metrics show who holds what before anything happens
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a bug in one of them ends the service, and systemd starts it anew
    finally:
        _log.info("service ends")
        await service.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _lock_folder(folder: str) -> int:
    try:
        return take_service_lock(folder)
    except BlockingIOError:
        raise ClientFailed("", f"another service runs with the pool in {folder}; end it first") from None
    except OSError as error:
        raise unreadable(folder, error) from None


def _metrics(settings: ServiceSettings) -> Metrics:
    address, port = settings.metrics_address, settings.metrics_port
    if not port:
        return Metrics()
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        raise ClientFailed(
            "",
            "metrics_port needs prometheus-client, which is not installed: pip install prometheus-client",
        ) from None
    registry = CollectorRegistry()
    metrics = Metrics(registry, settings.metrics_holders)
    try:
        serve_metrics(address, port, registry, metrics)
    except OSError as error:
        # asyncio's words repeat the address, and have no number where the machine has no such address
        why = os.strerror(error.errno or errno.EADDRNOTAVAIL)
        raise ClientFailed("", f"cannot serve metrics at {address} port {port}: {why}") from None
    return metrics
