"""Bounds over the network: no TLS, old TLS, slow, many, damaged, deaf; and others' work meanwhile."""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.tls import client_context
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, Alive, Hello, Look, Release, Resume
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused, Welcome
from bitfusion_pool.messages.message import LONGEST_FROM_CLIENT
from tests.pool.service.running_service import RunningService
from tests.pool.service.test_bounds import memory, open_files
from tests.pool.service.timed_service import Step, read_steps
from tests.pool.service.tls_client import HOST, NetworkService, TlsClient
from tests.support.flood import HELLO, SILENT, TLS_HEADER, Flood, answers_during, peak_mib
from tests.support.machine import scaled
from tests.support.ports import free_port, return_port
from tests.support.rounds import rounds
from tests.support.waiting import wait_until

LIMIT_S = 20.0
CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(20)  # the beginning of one


@pytest.fixture
def network(base: Path) -> Iterator[NetworkService]:
    service = NetworkService(base, "--connections-per-address", "40", "--waiting-per-user", "0")
    service.start()
    yield service
    service.end()


def connected(service: NetworkService) -> socket.socket:
    """A connection without TLS."""
    return socket.create_connection((HOST, service.port), scaled(LIMIT_S))


def that_begins(service: NetworkService) -> socket.socket:
    """A connection whose client has begun a handshake; until then it takes nobody's turn."""
    plain = connected(service)
    plain.sendall(client_hello())
    return plain


def everything(plain: socket.socket) -> bytes:
    """What comes until the connection ends, by whichever end."""
    found = b""
    try:
        while data := plain.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass
    return found


def test_a_web_browser_is_told_that_this_is_no_web_server(network: NetworkService) -> None:
    with connected(network) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n")
        answer = everything(plain)
    assert answer.startswith(b"HTTP/1.0 400 Bad Request\r\n")
    assert answer.endswith(b"This port speaks TLS, and is for the bitfusion command; it is no web server.\n")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_tls_is_refused(network: NetworkService, version: ssl.TLSVersion) -> None:
    context = client_context(Path(network.authority).read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with connected(network) as plain, pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        context.wrap_socket(plain, server_hostname=HOST)
    wait_until(lambda: any("no TLS connection: " in str(line.get("reason")) for line in network.log))


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])
def test_who_hangs_up_during_the_handshake_is_logged_with_why(network: NetworkService, said: bytes) -> None:
    with connected(network) as plain:
        plain.sendall(said)

    def reasons() -> list[str]:
        return [str(line["reason"]) for line in network.log if line.get("code") == "no_tls"]

    wait_until(reasons, "the refusal in the log")
    assert reasons() == ["no TLS connection: the other side hung up before it was made"]


def test_handshakes_of_one_address_wait_for_their_turn(base: Path) -> None:
    """Two at once, then one a second: nobody is lost but who would have to wait for too long."""
    port = free_port()
    service = NetworkService(base, "--handshakes-per-address", "1", "--metrics-port", str(port))
    service.start()
    crowd: list[socket.socket] = []
    try:
        token = service.token("ada")
        with service.remote(token) as known, service.client() as here:
            crowd += [that_begins(service) for _ in range(2)]
            with service.remote(token) as late:
                late.ask(Alive(), Alive)

            def too_many_are_refused() -> bool:
                crowd.extend(that_begins(service) for _ in range(12))
                return "this address makes too many handshakes" in said(service)

            wait_until(too_many_are_refused, lambda: service.log, LIMIT_S)
            assert delayed_handshakes(port) > 0
            # nobody who is connected already waits for that, nor who is at the socket
            known.ask(Alive(), Alive)
            here.ask(Alive(), Alive)
            service.client().close()
    finally:
        for plain in crowd:
            plain.close()
        service.end()
        return_port(port)


def delayed_handshakes(port: int) -> float:
    with urlopen(f"http://{HOST}:{port}/metrics", timeout=scaled(LIMIT_S)) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("bitfusion_pool_handshakes_delayed_total"):
                return float(line.split()[1])
    raise AssertionError("no such metric")


def said(service: NetworkService) -> str:
    return " ".join(str(line.get("reason")) for line in service.log)


def test_who_does_not_finish_is_sent_away_and_makes_room(network: NetworkService) -> None:
    """Forty connections of one address may be strangers, the newest; one that has shown its token is none."""
    token = network.token("ada")
    crowd: list[socket.socket] = []

    def too_many_are_refused() -> bool:
        crowd.extend(connected(network) for _ in range(20))
        return any("too many connections" in str(line.get("reason")) for line in network.log)

    with network.remote(token) as known:
        wait_until(too_many_are_refused, lambda: network.log, 30)
        known.ask(Alive(), Alive)
        with network.remote(token) as another:
            another.ask(Alive(), Alive)
        with network.stranger() as mute, connected(network) as half:
            half.sendall(CLIENT_HELLO)
            refused = mute.expect(Refused)
            assert refused.code == refusal_codes.TOO_SLOW
            assert refused.message == "no hello came within 5 seconds"
            assert mute.receive() is None
            for plain in (half, *crowd):
                everything(plain)
                plain.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("say", "count"),
    [
        (SILENT, 10_000),
        pytest.param(HELLO, rounds(3_000, 10_000), marks=pytest.mark.long),
        pytest.param(TLS_HEADER, rounds(3_000, 10_000), marks=pytest.mark.long),
    ],
)
def test_a_crowd_that_shows_no_token_keeps_nobody_out(base: Path, say: str, count: int) -> None:
    """It kept all from its address out for five seconds, and took the turns of their handshakes."""
    service = NetworkService(base, "--handshakes-per-address", "100")
    service.start()
    try:
        token = service.token("ada")
        with service.remote(token) as holder, service.remote(token) as known:
            granted = holder.ask(Acquire(GpuRequest(1, 0.5)), Granted)
            before = open_files(service.pid)

            def ask() -> None:
                for each in (holder, known):
                    each.ask(Alive(), Alive)
                with service.remote(token, "127.0.0.2") as another:
                    another.ask(Alive(), Alive)

            with Flood((HOST, service.port), count, say) as flood:
                slowest = answers_during(flood, ask)
                assert open_files(service.pid) - before <= 256 + 64 + 20
                if say != TLS_HEADER:  # whose handshakes are paced, with everybody's from there
                    with service.remote(token) as neighbour:
                        neighbour.ask(Alive(), Alive)
            holder.release(granted)
        assert slowest < scaled(2)
        assert peak_mib(service.pid) < 200
        assert sum(line["message"] == "refused" for line in service.log) < 20
    finally:
        service.end()


def test_metrics_are_served_beside_a_crowd_of_connections(base: Path) -> None:
    """Each had a thread of its own, for as long as it said nothing."""
    port = free_port()
    service = RunningService(base, "--metrics-port", str(port)).start()

    def ask() -> None:
        with socket.create_connection((HOST, port), scaled(10), ("127.0.0.2", 0)) as other:
            other.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert b" 200 OK\r\n" in everything(other)

    try:
        with Flood((HOST, port), 10_000) as flood, service.client() as here:
            slowest = answers_during(flood, ask)
            with urlopen(f"http://{HOST}:{port}/metrics", timeout=scaled(LIMIT_S)) as answer:
                text = answer.read().decode()
            here.ask(Alive(), Alive)
            assert len(os.listdir(f"/proc/{service.pid}/task")) < 10
        assert 'bitfusion_pool_metrics_connections_closed_total{reason="too_many"}' in text
        assert slowest < scaled(2)
        assert peak_mib(service.pid) < 200
    finally:
        service.end()
        return_port(port)


def send_until_nothing_goes(client: TlsClient) -> None:
    """Neither read nor stop, until the other side takes no more."""
    try:
        while True:
            client.socket.sendall(Look().format() * 1000)
    except (TimeoutError, ssl.SSLWantWriteError, ConnectionError):
        pass


def test_who_reads_nothing_fills_no_memory_of_ours(network: NetworkService) -> None:
    token = network.token("ada")
    with network.client() as holder, network.remote(token) as deaf, network.remote(token) as other:
        for _ in range(20):
            holder.send(Acquire(GpuRequest(1, 0.05), label="x" * 60))
        network.until_entries(20)
        other.ask(Look(), PoolSnapshot)
        before = memory(network.pid)
        deaf.socket.settimeout(0.5)
        send_until_nothing_goes(deaf)
        other.ask(Look(), PoolSnapshot)
        assert memory(network.pid) - before < 8 << 20


def test_two_hundred_over_the_network_are_served_strictly_in_order(base: Path) -> None:
    service = NetworkService(base, "--waiting-per-user", "0", "--messages-per-user", "100000")
    service.start()
    clients: list[TlsClient] = []
    try:
        token = service.token("ada")
        clients += [service.remote(token) for _ in range(200)]
        first, *others = clients
        granted = first.ask(Acquire(GpuRequest(2)), Granted)
        for client in others:
            client.wait(GpuRequest(2))
        numbers = [granted.entry.number]
        first.release(granted)
        for client in others:
            granted = client.expect(Granted)
            numbers.append(granted.entry.number)
            client.release(granted)
        assert numbers == sorted(set(numbers))
        assert len(numbers) == len(clients)
        service.until_entries(0)
    finally:
        for client in clients:
            client.close()
        service.end()


class Attackers:
    """What others do to the port, each once and then over again; counted by `attack`."""

    def __init__(self, service: NetworkService) -> None:
        self.service = service
        self.random = random.Random(5)
        self.good = service.token("good")
        self.revoked = service.token("gone")
        service.revoke("gone")
        self.expired = service.token("late", lasts_s=-1)
        with service.remote(self.good) as client:
            ended = client.ask(Acquire(GpuRequest(1, 0.1)), Granted)
            client.release(ended)
        self.ended = ended
        self.living = service.remote(service.token("owner"))
        self.lease = self.living.ask(Acquire(GpuRequest(1, 0.1)), Granted)
        self.kinds: tuple[Callable[[], None], ...] = (
            self.no_tls,
            self.damaged_handshake,
            self.cut_handshake,
            self.wrong_token,
            self.bad_lines,
            self.too_long,
            self.others_secret,
            self.flood_and_leave,
        )

    def attack(self, count: int) -> None:
        for number in range(count):
            try:
                self.kinds[number % len(self.kinds)]()
            except OSError:  # it was refused already
                pass

    def no_tls(self) -> None:
        with connected(self.service) as plain:
            plain.sendall(self.random.randbytes(self.random.randrange(1, 3000)))
            plain.shutdown(socket.SHUT_WR)
            everything(plain)

    def damaged_handshake(self) -> None:
        with connected(self.service) as plain:
            hello = bytearray(client_hello())
            hello[self.random.randrange(len(hello))] ^= 1 << self.random.randrange(8)
            plain.sendall(hello)
            plain.shutdown(socket.SHUT_WR)
            everything(plain)

    def cut_handshake(self) -> None:
        with connected(self.service) as plain:
            hello = client_hello()
            plain.sendall(hello[: self.random.randrange(1, len(hello))])

    def wrong_token(self) -> None:
        token = self.random.choice((self.revoked, self.expired, "", "bfpool_", "x" * 9000, self.good[:-1]))
        with self.service.stranger() as client:
            refused = client.ask(Hello(1, "attack", token), Refused)
            assert refused.code == refusal_codes.WRONG_TOKEN
            assert client.receive() is None

    def bad_lines(self) -> None:
        with self.service.remote(self.good) as client:
            line = self.random.choice(
                (
                    b"\n",
                    b"{}\n",
                    b"\xff\xfe\n",
                    b'{"type":"acquire"}\n',
                    b"[" * 5000 + b"\n",
                    b"\0" * 99 + b"\n",
                )
            )
            client.socket.sendall(line)
            client.expect(Refused)

    def too_long(self) -> None:
        with self.service.remote(self.good) as client:
            client.socket.sendall(b"x" * (LONGEST_FROM_CLIENT + 10))
            assert client.expect(Refused).code == refusal_codes.BAD_MESSAGE

    def others_secret(self) -> None:
        with self.service.remote(self.good) as client:
            for granted in (self.lease, self.ended):
                for kind in (Resume, Release):
                    refused = client.ask(kind(granted.entry.entry_id, granted.secret), Refused)
                    assert refused.code == refusal_codes.LEASE_OVER

    def flood_and_leave(self) -> None:
        with self.service.remote(self.good) as client:
            client.socket.sendall(Alive().format() * 50 + b'{"type":"he')

    def close(self) -> None:
        assert self.living.ask(Alive(), Alive) == Alive()  # nobody touched it
        self.living.release(self.lease)
        self.living.close()


class TimedService(NetworkService):
    """One that tells afterwards what it spent its time on."""

    def command(self) -> list[str]:
        python, _, _, *words = super().command()
        return [python, "-m", "tests.pool.service.timed_service", str(self.folder.parent / "steps"), *words]

    def longest_steps(self) -> list[Step]:
        """Once it has ended."""
        return read_steps(self.folder.parent / "steps")


def client_hello() -> bytes:
    """The first bytes of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=HOST).do_handshake()
    return outgoing.read()


def attack_and_look(service: NetworkService, warm_up: int, count: int) -> None:
    """Attack, and ask meanwhile as another client; prints what it cost that one and the service's memory."""
    attackers = Attackers(service)
    attackers.attack(warm_up)
    before, files = memory(service.pid), open_files(service.pid)
    waits: list[float] = []
    thread = threading.Thread(target=attackers.attack, args=(count,))
    with service.remote(service.token("other")) as other:
        thread.start()
        while thread.is_alive() or not waits:
            began = time.monotonic()
            other.ask(Alive(), Alive)
            waits.append(time.monotonic() - began)
            time.sleep(0.005)
        thread.join()
    grown = memory(service.pid) - before
    waits.sort()
    print(
        f"{count} attacks: {grown / 1024:.0f} KiB more; answers to another client: median "
        f"{waits[len(waits) // 2] * 1000:.1f} ms, slowest {waits[-1] * 1000:.1f} ms"
    )
    attackers.close()
    assert waits[-1] < scaled(5.0)
    assert grown < 4 << 20
    wait_until(lambda: open_files(service.pid) <= files + 2, lambda: open_files(service.pid), LIMIT_S)
    assert service.entries() == []
    # no log of a line for each
    assert sum(line["message"] == "refused" for line in service.log) < 100


@pytest.mark.parametrize(
    ("warm_up", "count"),
    [(40, 80), pytest.param(1000, rounds(3_000, 10_000), marks=[pytest.mark.long, pytest.mark.timeout(900)])],
)
def test_attacks_leave_memory_flat_and_others_served(base: Path, warm_up: int, count: int) -> None:
    # the owner of the lease that is attacked says nothing all that time
    service = TimedService(base, "--messages-per-user", "100000", "--silent-s", "3600")
    service.start()
    try:
        attack_and_look(service, warm_up, count)
    finally:
        service.end()
    for step in service.longest_steps():
        print(f"{step.own_s * 1000:6.1f} ms of its own, {step.took_s * 1000:6.1f} ms in all: {step.what}")
    assert service.longest_steps()[0].own_s < scaled(0.5)


def test_a_request_that_is_too_long_is_refused_in_words(network: NetworkService) -> None:
    """One with 600 filters kept everybody waiting for 120 ms, again and again, as long as it waited."""
    many = Acquire(GpuRequest(filters=(("device.id", "0"),) * 17))
    long = Acquire(GpuRequest(servers=tuple(f"10.0.0.{number}:56001" for number in range(200))))
    with network.remote(network.token("ada")) as client, network.client() as here:
        for one in (client, here):
            refused = one.ask(many, Refused)
            assert refused.code == refusal_codes.INVALID_REQUEST
            assert refused.message == "this request has 17 filters, and this pool takes 16"
            assert refused.next_step == "name fewer filters and servers"
            refused = one.ask(long, Refused)
            assert refused.message == "this request has 3712 bytes, and this pool takes 2048"
        client.ask(Acquire(GpuRequest(filters=(("device.id", "0"),) * 16)), Granted)


def test_the_routes_of_clients_are_counted(base: Path) -> None:
    port = free_port()
    service = NetworkService(base, "--metrics-port", str(port))
    service.start()
    try:
        token = service.token("ada")
        with service.remote(token), service.remote(token), service.stranger() as behind_a_proxy:
            behind_a_proxy.segment += 1
            behind_a_proxy.say_hello(token, Welcome)
        with urlopen(f"http://{HOST}:{port}/metrics", timeout=scaled(LIMIT_S)) as answer:
            lines = answer.read().decode().splitlines()
        assert 'bitfusion_pool_remote_connected_total{route="direct"} 2.0' in lines
        assert 'bitfusion_pool_remote_connected_total{route="indirect"} 1.0' in lines
    finally:
        service.end()
        return_port(port)
