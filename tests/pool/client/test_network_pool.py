"""The `bitfusion` command and services on the network: which one is used, and what is said of the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.errors import ServersUnreachable, TokenExpired
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.network_files import read_network_client
from bitfusion_pool.access.token_text import new_token
from bitfusion_pool.client.pools.life_by_words import LifeByWords
from bitfusion_pool.client.pools.service_pool import ServicePool
from bitfusion_pool.ledger.entries import PROCESS, RESERVED, Holder
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, Alive, Cancel, Hello, Look, Renew, Resume
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused, Waiting
from bitfusion_pool.messages.message import Message
from tests.pool.client.fake_network_service import ENTRY, HOST, SECRET, FakeNetworkService, welcome
from tests.pool.client.fake_service import SERVER, lease
from tests.pool.client.network_user import home_of, network_user
from tests.pool.pool_client import PoolClient, finish, uniform
from tests.support.certificates import certified
from tests.support.machine import scaled
from tests.support.ports import free_port, return_port

NONE = "Error: none of the servers responded correctly to client id claim requests."
NEXT = (
    " What to do: check the network and servers.conf, ask the pool's administrator whether it runs; or "
    "for simulated GPUs of your own set BITFUSION_POOL=own"
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeNetworkService]:
    running = FakeNetworkService(tmp_path / "service", welcome(60.0, 480.0, scaled(0.3))).start()
    yield running
    running.stop()


@pytest.fixture
def user(client: PoolClient, service: FakeNetworkService) -> PoolClient:
    service.write_files(home_of(client))
    return network_user(client)


@pytest.fixture
def closed_port() -> Iterator[int]:
    port = free_port()
    yield port
    return_port(port)


def contact(place: str, why: str) -> str:
    url = f"Get https://{place}/claim_id"
    return f"[WARN] TIME Error contacting server {place} to verify client id: {url}: {why}"


def test_a_run_says_what_it_says_with_any_pool(user: PoolClient, service: FakeNetworkService) -> None:
    words = ("run", "-n", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 4")
    done = user.do(*words)
    assert (done.returncode, done.stdout) == (4, "\n")
    lines = uniform(done.stderr).splitlines()
    assert lines[0] == "[INFO] TIME Query server 127.0.0.1:56001 to claim client id: UUID"
    assert lines[-1] == "[INFO] TIME Released GPUs on 1 servers and removed generated config file 'FILE'"
    hello, acquire, _ = service.heard
    assert isinstance(hello, Hello)
    assert hello.token == service.token
    assert isinstance(acquire, Acquire)
    assert acquire.host == os.uname().nodename
    assert service.token not in done.stderr


def test_of_two_servers_the_one_that_lives_serves(
    user: PoolClient, service: FakeNetworkService, closed_port: int
) -> None:
    service.write_files(home_of(user), Address(HOST, closed_port), Address(HOST, service.port))
    done = user.do("run", "-n", "1", "--", "true")
    assert done.returncode == 0
    place = f"{HOST}:{closed_port}"
    assert uniform(done.stderr).splitlines()[0] == contact(
        place, f"dial tcp {place}: connect: connection refused"
    )


def test_nobody_listens(user: PoolClient, service: FakeNetworkService, closed_port: int) -> None:
    service.write_files(home_of(user), Address(HOST, closed_port))
    done = user.do("list_gpus")
    place = f"{HOST}:{closed_port}"
    assert done.returncode == 1
    assert uniform(done.stderr).splitlines() == [
        contact(place, f"dial tcp {place}: connect: connection refused"),
        f"{NONE}{NEXT}",
    ]
    error = error_from_output(done.stderr.splitlines(), 1)
    assert isinstance(error, ServersUnreachable)
    assert error.next_step == NEXT.removeprefix(" What to do: ")
    assert error.answered.endswith(f"claim requests. {place}: connection refused")


def test_a_name_that_is_none(user: PoolClient, service: FakeNetworkService) -> None:
    service.write_files(home_of(user), Address("nowhere.invalid"), timeout="20s")
    done = user.do("list_gpus")
    assert uniform(done.stderr).splitlines()[0] in (
        contact("nowhere.invalid:56001", "dial tcp: lookup nowhere.invalid: no such host"),
        contact("nowhere.invalid:56001", "dial tcp: lookup nowhere.invalid: i/o timeout"),
    )
    assert uniform(done.stderr).splitlines()[1] == f"{NONE}{NEXT}"


def test_who_says_nothing_costs_no_more_than_the_timeout(
    user: PoolClient, service: FakeNetworkService
) -> None:
    service.write_files(home_of(user), timeout=f"{scaled(1000):.0f}ms")
    service.silent = True
    done = user.do("list_gpus")
    assert uniform(done.stderr).splitlines() == [
        contact(service.place, "context deadline exceeded"),
        f"{NONE}{NEXT}",
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "another",
            "x509: the certificate is not for 127.0.0.1; servers.conf must name what the certificate is for",
        ),
        ("ended", "x509: the certificate of 127.0.0.1 has ended; its administrator must renew it"),
        ("stranger", "x509: the certificate of 127.0.0.1 is not signed by the ca.crt of this client"),
    ],
)
def test_a_certificate_that_is_not_good(
    user: PoolClient, service: FakeNetworkService, name: str, why: str
) -> None:
    now, day = datetime.now(timezone.utc), timedelta(days=1)
    hosts = ["127.0.0.2"] if name == "another" else [HOST]
    signed_by = None if name == "stranger" else service.authority
    starts = now - 2 * day if name == "ended" else None
    service.stop()
    service.start(certified("service", hosts, signed_by=signed_by, starts=starts))
    done = user.do("run", "-n", "1", "--", "true")
    assert uniform(done.stderr).splitlines() == [contact(service.place, why), f"{NONE}{NEXT}"]
    assert service.heard == []  # no token went there


def test_a_token_that_is_not_known(user: PoolClient, service: FakeNetworkService) -> None:
    service.write_files(home_of(user), token=new_token())
    done = user.do("smi")
    why = f"pool service at {service.place} refuses this: this pool does not know the token"
    assert uniform(done.stderr).splitlines() == [
        contact(service.place, why),
        f"{NONE} What to do: ask for a new token",
    ]


def test_a_token_that_has_ended(user: PoolClient, service: FakeNetworkService) -> None:
    ended = "Token expired at: 2026-01-31T00:00:00Z"
    service.refusal = Refused(refusal_codes.WRONG_TOKEN, ended, "ask for a new token")
    done = user.do("list_gpus")
    assert done.returncode == 1
    assert uniform(done.stderr).splitlines() == [
        contact(service.place, "Token expired at: TIME"),
        "[WARN] TIME What to do: ask for a new token",
        "Token expired at: TIME",
    ]
    assert isinstance(error_from_output(done.stderr.splitlines(), 1), TokenExpired)


def test_a_wrong_ca_crt_is_told_before_anybody_is_asked(
    user: PoolClient, service: FakeNetworkService
) -> None:
    authority = home_of(user) / ".bitfusion" / "ca.crt"
    authority.write_text("nothing")
    done = user.do("list_gpus")
    assert done.stderr == (
        f"Error: pool configuration {authority} is wrong: it holds no certificate in PEM format. What to "
        "do: ask your administrator for the ca.crt of this pool\n"
    )
    authority.unlink()
    authority.symlink_to("/nowhere")
    assert f"pool configuration {authority} is wrong: No such file" in user.do("list_gpus").stderr
    assert service.heard == []


def test_an_allocation_file_leads_the_token_to_no_other_server(
    user: PoolClient, service: FakeNetworkService, closed_port: int
) -> None:
    path = home_of(user) / "allocation"
    path.write_text(f"lease: {ENTRY}\nservice: tls://{HOST}:{closed_port}\nsecret: {SECRET}\nserver: x\n")
    done = user.do("release_gpus", "-f", str(path))
    assert done.stderr == (
        f"Error: pool configuration {home_of(user)}/.bitfusion/servers.conf does not name the server "
        f"{HOST}:{closed_port}. What to do: add it, or take a server that it names\n"
    )


def test_list_gpus_and_smi_say_that_the_gpus_are_simulated(
    user: PoolClient, service: FakeNetworkService
) -> None:
    shown = PoolSnapshot(1.0, 1.0, (SERVER,), (lease(),), 0, ())

    def answer(message: Message) -> Message | None:
        return shown if isinstance(message, Look) else service.grant(message)

    service.answer = answer
    assert "(Simulated T4)" in user.do("list_gpus").stdout
    smi = user.do("smi").stdout
    assert smi.startswith("BITFUSION-SMI 4.0.0-00000000   embedded pool, simulated GPUs\n")


# --- waiting -------------------------------------------------------------------------------------------

PLACE = Waiting(
    2, 3, "Waiting for GPUs: position 2 of 3; held by ada: a.ipynb (1 GPU, since 14:03)", ENTRY, SECRET
)


class Queue:
    """Lets everybody wait until `is_open`."""

    def __init__(self, service: FakeNetworkService) -> None:
        self._service = service
        self.is_open = False
        service.answer = self.answer

    def answer(self, message: Message) -> Message | None:
        if isinstance(message, (Acquire, Resume)) and not self.is_open:
            return PLACE
        return self._service.grant(message)


def test_a_place_in_the_queue_survives_a_hiccup(user: PoolClient, service: FakeNetworkService) -> None:
    queue = Queue(service)
    process = user.start("run", "-n", "1", "--", "echo", "mine")
    service.until_words()  # who waits says that it lives
    service.stop()
    service.start()
    service.until_heard(Resume)
    service.until_words()
    queue.is_open = True
    service.say(Granted(lease(), SERVER, SECRET))
    out, err = finish(process)
    assert (process.returncode, out) == (0, "mine\n")
    assert sum(isinstance(message, Acquire) for message in service.heard) == 1
    assert Resume(ENTRY, SECRET) in service.heard
    assert "; this request waits for it\n" in err
    assert f"pool service at {service.place} is back, the request goes back to its position\n" in err


def test_who_was_away_for_too_long_asks_again(user: PoolClient, service: FakeNetworkService) -> None:
    Queue(service)
    process = user.start("run", "-n", "1", "--", "echo", "mine")
    service.until_words(1)

    def forget(message: Message) -> Message | None:
        if isinstance(message, Resume):
            return Refused(refusal_codes.LEASE_OVER, "there is none")
        return service.grant(message)

    service.answer = forget
    service.hang_up()
    out, _ = finish(process)
    assert (process.returncode, out) == (0, "mine\n")
    assert sum(isinstance(message, Acquire) for message in service.heard) == 2


def test_a_wait_without_answers_dials_anew(user: PoolClient, service: FakeNetworkService) -> None:
    queue = Queue(service)
    process = user.start("run", "-n", "1", "--", "echo", "mine")
    service.until_words(1)
    service.answer = lambda message: None if isinstance(message, Alive) else queue.answer(message)
    service.until_heard(Resume)
    queue.is_open = True
    service.answer = queue.answer
    service.hang_up()
    assert finish(process)[0] == "mine\n"


def test_an_interrupted_wait_leaves_the_queue_by_a_word(
    user: PoolClient, service: FakeNetworkService
) -> None:
    Queue(service)
    process = user.start("run", "-n", "1", "--", "true")
    service.until_words(1)
    process.send_signal(signal.SIGINT)
    finish(process)
    assert process.returncode == 130
    assert service.heard[-1] == Cancel()


def test_a_grant_may_overtake_the_answer_to_a_word(user: PoolClient, service: FakeNetworkService) -> None:
    granted = Granted(lease(kind=RESERVED), SERVER, SECRET)

    def answer(message: Message) -> Message | None:
        if isinstance(message, Acquire):
            return PLACE
        if isinstance(message, Alive):
            service.say(granted)
        return service.grant(message)

    service.answer = answer
    done = user.do("request_gpus", "-n", "1", "-f", str(home_of(user) / "allocation"))
    assert done.returncode == 0, done.stderr
    assert isinstance(service.heard[-1], Renew)


def test_a_queue_that_moves_calls_for_no_words(user: PoolClient, service: FakeNetworkService) -> None:
    service.welcome = welcome(600.0, 600.0, 60.0)

    def answer(message: Message) -> Message | None:
        if isinstance(message, Acquire):
            for _ in range(5):
                service.say(PLACE)
        return service.grant(message)

    service.answer = answer
    files = read_network_client(user.environ)
    assert files is not None
    with ServicePool(LifeByWords(files, user.environ), user.environ) as pool:
        pool.release(pool.take(GpuRequest(1), Holder("ada", "a.ipynb"), PROCESS, "", lambda *_: None))
    assert service.words == 0


@pytest.mark.parametrize("end", ["release", "keep"])
@pytest.mark.parametrize("kind", [PROCESS, RESERVED])
def test_a_lease_that_is_given_back_without_a_keeper_leaves_no_pipe(
    user: PoolClient, service: FakeNetworkService, kind: str, end: str
) -> None:
    service.answer = lambda message: (
        Granted(lease(kind=kind), SERVER, SECRET)
        if isinstance(message, (Acquire, Resume))
        else service.grant(message)
    )
    files = read_network_client(user.environ)
    assert files is not None
    with ServicePool(LifeByWords(files, user.environ), user.environ) as pool:
        before = open_pipes()
        taken = pool.take(GpuRequest(1), Holder("ada", "a.ipynb"), kind, "", lambda *_: None)
        getattr(pool, end)(taken)
        joined = pool.join(pool.allocation(taken))
        assert joined is not None
        assert len(open_pipes() - before) == 1
        getattr(pool, end)(joined)
        assert open_pipes() == before


def open_pipes() -> set[str]:
    """Of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the listing's own
            pass
    return {name for name in found if name.startswith("pipe:")}
