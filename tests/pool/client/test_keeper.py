"""The keeper of a lease over the network: what becomes of lease and program, whatever happens to anybody."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bitfusion_pool.access.token_text import new_token
from bitfusion_pool.client.keeper.kept_program import SIGTERM_S
from bitfusion_pool.client.keeper.life_pipe import LifePipe, is_held
from bitfusion_pool.client.kernel_state_file import TELL_S
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Alive, Cancel, Hello, Release, Renew, Report, Resume
from bitfusion_pool.messages.from_service import DIRECT, Refused
from bitfusion_pool.messages.message import Message
from bitfusion_pool.messages.refusal_codes import WRONG_TOKEN
from tests.pool.client.fake_network_service import ENTRY, HOST, SECRET, FakeNetworkService, welcome
from tests.pool.client.network_user import (
    SLEEPER,
    home_of,
    keeper_of,
    network_user,
    program_of,
)
from tests.pool.pool_client import PoolClient, finish, uniform
from tests.support.certificates import certified
from tests.support.files import replace_text
from tests.support.machine import scaled
from tests.support.processes import alive, freeze, thaw, wait_until_gone
from tests.support.waiting import wait_until

BEAT_S = scaled(0.3)  # a keeper whose word is not answered by the next one dials anew
PATIENT = welcome(60.0, 480.0, BEAT_S)
"""Of a service that gives nothing away as long as a test lasts."""
END_LIMIT_S = 20.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeNetworkService]:
    running = FakeNetworkService(tmp_path / "service", PATIENT).start()
    yield running
    running.stop()


@pytest.fixture
def user(client: PoolClient, service: FakeNetworkService) -> PoolClient:
    service.write_files(home_of(client))
    return network_user(client)


def impatient(service: FakeNetworkService, closed_s: float, silent_s: float, route: str = DIRECT) -> None:
    """Give leases away so early. On a slow machine later, as its clients are slower, too."""
    service.welcome = welcome(scaled(closed_s), scaled(silent_s), BEAT_S, route=route)


def swallow(_: Message) -> None:
    """An answer that never comes."""


def revoke(service: FakeNetworkService) -> None:
    service.refusal = Refused(WRONG_TOKEN, "the token was revoked")
    service.say(service.refusal)
    service.hang_up()


def lines_of(err: str) -> list[str]:
    return uniform(err).splitlines()


# --- the network ---------------------------------------------------------------------------------------


def test_what_a_kernel_says_is_passed_on_seldom_and_again_on_a_new_connection(
    user: PoolClient, service: FakeNetworkService, tmp_path: Path
) -> None:
    path = tmp_path / "state.json"
    ended = threading.Event()

    def change_all_the_time() -> None:
        while not ended.wait(0.001):
            said = {"version": 1, "state": "running", "since": time.time(), "notebook": "x"}
            replace_text(path, json.dumps(said))

    def reports() -> list[Report]:
        return [message for message in service.heard if isinstance(message, Report)]

    process = user.start(*SLEEPER, env={"BITFUSION_KERNEL_STATE": str(path)})
    program = program_of(process)
    changing = threading.Thread(target=change_all_the_time)
    begin = time.monotonic()
    changing.start()
    try:
        service.until_heard(Report, 2)
    finally:
        ended.set()
        changing.join()
    time.sleep(2.5)  # the last change is told, and nothing any more
    found = reports()
    assert len(found) <= 2 + (time.monotonic() - begin) / TELL_S
    assert {(one.lease, one.secret, one.state, one.idle_s) for one in found} == {
        (ENTRY, SECRET, "running", -1.0)
    }
    service.hang_up()
    service.until_heard(Resume)
    service.until_heard(Report, len(found) + 1)
    assert reports()[-1].notebook == "x"
    os.kill(program, signal.SIGKILL)
    finish(process)


@pytest.mark.parametrize("gone_for", [0, 3])  # beats: shorter and longer than what is told
def test_a_reset_connection_is_made_again_and_the_program_goes_on(
    user: PoolClient, service: FakeNetworkService, tmp_path: Path, gone_for: int
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    process = user.start("run", "-n", "1", "--", "sh", "-c", f"echo $$; cat {gate}")
    program_of(process)
    service.until_words()
    service.stop()
    told = ""
    if gone_for:
        assert process.stderr is not None
        # as it is told, the first dial may not have failed yet, or we have stood still before for a beat
        why = rf"(dial tcp {service.place}: connect: connection refused|it ended the connection"
        why += r"|no answer in \S+ s)"
        line = rf"\[WARN\] \S+ Pool {service.place} is out of reach: {why}; "
        line += r"the program is ended in \d+ s unless it comes back\n"
        while not re.fullmatch(line, last := process.stderr.readline()):
            assert last, told
            told += last
        told += last
    service.heard.clear()
    service.start()
    service.until_heard(Resume)
    service.until_words()
    gate.write_text("end")
    out, err = finish(process)
    assert (process.returncode, out) == (0, "end")
    assert Resume(ENTRY, SECRET) in service.heard
    assert service.requests[-1] == Release(ENTRY, SECRET)
    back = re.findall(rf"\[INFO\] \S+ Pool {service.place} is back after \d+ s\n", err)
    # on a machine that stands still for a beat, a short one is told, too
    assert len(re.findall("is back after", told)) + len(back) == (told + err).count("is out of reach")
    assert "Released GPUs on 1 servers" in err


@pytest.mark.parametrize("at_once", [True, False], ids=["renewed before", "renewed while it is refused"])
def test_a_token_that_is_renewed_meanwhile_is_used_at_the_next_connection(
    user: PoolClient, service: FakeNetworkService, at_once: bool
) -> None:
    """As in a pod, where kubelet replaces the files whenever the Secret changes."""
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words()
    service.heard.clear()
    service.token = new_token()
    if at_once:
        service.write_files(home_of(user))
        service.hang_up()
    else:
        service.hang_up()
        service.until_heard(Hello)
        assert Resume(ENTRY, SECRET) not in service.heard
        service.write_files(home_of(user))
    service.until_heard(Resume)
    service.until_words()
    assert alive(program)
    os.kill(program, signal.SIGTERM)
    _, err = finish(process)
    assert service.requests[-1] == Release(ENTRY, SECRET)
    assert "Released GPUs on 1 servers" in err


def test_another_authority_is_trusted_at_the_next_connection(
    user: PoolClient, service: FakeNetworkService
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words()
    service.stop()
    service.heard.clear()
    service.authority = certified("the pool's next authority", authority=True)
    service.start(certified("service", [HOST], signed_by=service.authority))
    service.write_files(home_of(user))
    service.until_heard(Resume)
    os.kill(program, signal.SIGTERM)
    finish(process)
    assert service.requests[-1] == Release(ENTRY, SECRET)


def test_files_that_are_gone_or_wrong_leave_the_old_ones_in_use(
    user: PoolClient, service: FakeNetworkService
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words()
    (home_of(user) / ".bitfusion" / "client.yaml").write_text("authconfig:\n")
    (home_of(user) / ".bitfusion" / "ca.crt").unlink()
    service.hang_up()
    service.until_heard(Resume)
    service.until_words()
    os.kill(program, signal.SIGTERM)
    finish(process)
    assert service.requests[-1] == Release(ENTRY, SECRET)


def test_a_service_that_answers_no_more_is_dialed_anew_while_its_connection_stays(
    user: PoolClient, service: FakeNetworkService
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words()
    old = service.connections[0]
    service.answer = lambda message: (
        service.grant(message) if isinstance(message, (Resume, Release)) else None
    )
    service.until_heard(Resume)
    service.answer = service.grant
    wait_until(lambda: old not in service.connections or service.words > 0)
    service.until_words()
    assert alive(program)
    os.kill(program, signal.SIGTERM)
    finish(process)
    assert process.returncode == 128 + signal.SIGTERM
    assert service.requests[-1] == Release(ENTRY, SECRET)


def test_a_connection_that_its_own_dial_has_replaced_ends_nothing(
    user: PoolClient, service: FakeNetworkService
) -> None:
    """The old one's end is seen before the answer on the new one, long after the last word was answered."""
    closed_s = scaled(1)  # a machine that stands still for less ends no program either
    service.welcome = welcome(closed_s, 480.0, BEAT_S)
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words()
    old = service.connections[0]

    def answer(message: Message) -> Message | None:
        if isinstance(message, Alive):
            return None
        if isinstance(message, Resume):
            service.answer = service.grant
            old.sendall(Refused(refusal_codes.REPLACED, "another connection").format())
            old.shutdown(socket.SHUT_RDWR)
            time.sleep(
                closed_s + BEAT_S
            )  # the keeper, which beats five times as often, acts upon it if it does
        return service.grant(message)

    service.answer = answer
    service.until_heard(Resume)
    service.until_words()
    assert alive(program)
    os.kill(program, signal.SIGTERM)
    finish(process)
    assert service.requests[-1] == Release(ENTRY, SECRET)


@pytest.mark.parametrize(
    ("closed_s", "silent_s", "happens"),
    [
        (1.0, 2.0, lambda service: service.stop()),
        (2.0, 2.0, lambda service: setattr(service, "answer", swallow)),
        (1.0, 2.0, lambda service: service.say(Refused(refusal_codes.SERVICE_ENDS, "x")) or service.stop()),
        (1.0, 480.0, revoke),
    ],
    ids=["broken", "silent", "service has ended", "revoked"],
)
def test_a_program_is_ended_with_the_reason_before_its_gpus_are_given_away(
    user: PoolClient,
    service: FakeNetworkService,
    closed_s: float,
    silent_s: float,
    happens: Callable[[FakeNetworkService], None],
) -> None:
    impatient(service, closed_s, silent_s)
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words(1)
    happens(service)
    _, err = finish(process)
    assert process.returncode == 128 + signal.SIGTERM
    assert not alive(program)
    assert re.fullmatch(
        rf"Error: pool {service.place} was out of reach for \d+ s, so the program was ended: "
        "its GPUs may be given to others",
        err.splitlines()[-1],
    )


def test_a_service_that_takes_every_end_for_the_clients_own_is_not_relied_on_for_longer(
    user: PoolClient, service: FakeNetworkService
) -> None:
    """One of a version before that of routes."""
    impatient(service, 1.0, 480.0, route="")
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words(1)
    service.stop()
    finish(process)
    assert process.returncode == 128 + signal.SIGTERM
    assert not alive(program)


def test_a_broken_connection_costs_nothing_within_silent_s(
    user: PoolClient, service: FakeNetworkService
) -> None:
    service.welcome = welcome(2 * BEAT_S, 480.0, BEAT_S)
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words(1)
    service.stop()
    time.sleep(4 * BEAT_S)  # twice as long as after an end that was the client's own
    assert alive(program)
    service.start()
    service.until_heard(Resume)
    service.until_words()
    os.kill(program, signal.SIGTERM)
    finish(process)
    assert service.requests[-1] == Release(ENTRY, SECRET)


def test_a_connection_that_brings_no_answer_is_reset_and_not_ended_in_order(
    user: PoolClient, service: FakeNetworkService
) -> None:
    """In order it would be the end of this client for a service that has perhaps heard `Resume` there."""
    service.write_files(home_of(user), timeout=f"{scaled(500):.0f}ms")
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words(1)
    service.answer = swallow
    wait_until(lambda: len(service.ends) >= 2, lambda: service.ends, END_LIMIT_S)
    service.answer = service.grant
    service.until_words()
    assert set(service.ends) == {"reset"}
    os.kill(program, signal.SIGTERM)
    finish(process)


def test_a_program_that_ignores_sigterm_is_killed_with_what_it_started(
    user: PoolClient, service: FakeNetworkService
) -> None:
    impatient(service, 2.0, 2.0)
    stubborn = "trap '' TERM; (trap '' TERM; echo $BASHPID; sleep 600) & wait; sleep 600"
    process = user.start("run", "-n", "1", "--", "bash", "-c", stubborn)
    child = program_of(process)
    service.until_words(1)
    service.stop()
    finish(process)
    assert process.returncode == 128 + signal.SIGKILL
    wait_until_gone(child)


def test_a_lease_that_somebody_ended_ends_its_program(user: PoolClient, service: FakeNetworkService) -> None:
    process = user.start(*SLEEPER)
    program_of(process)
    service.until_words(1)
    service.say(Refused(refusal_codes.ENDED, "somebody ended your request or lease x"))
    _, err = finish(process)
    assert err.splitlines()[-1] == (
        f"Error: pool {service.place} has ended the lease, so the program was ended: "
        "somebody ended your request or lease x"
    )
    assert service.requests[-1] == Release(ENTRY, SECRET)


# --- processes that are killed or frozen ---------------------------------------------------------------


def test_sigkill_of_the_keeper_starts_another_which_resumes(
    user: PoolClient, service: FakeNetworkService
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    for _ in range(2):
        keeper = keeper_of(process.pid)  # one that stood still is replaced, too
        service.heard.clear()
        os.kill(keeper, signal.SIGKILL)
        keeper_of(process.pid, but=keeper)
        service.until_heard(Resume)
    service.until_words()
    keeper = keeper_of(process.pid)
    assert alive(program)
    os.kill(program, signal.SIGKILL)
    finish(process)
    assert process.returncode == 128 + signal.SIGKILL
    assert service.requests[-1] == Release(ENTRY, SECRET)
    wait_until_gone(keeper)


def test_a_frozen_keeper_is_replaced(user: PoolClient, service: FakeNetworkService) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words()
    keeper = keeper_of(process.pid)
    freeze(keeper)
    service.until_heard(Resume)
    service.until_words()
    assert not alive(keeper)
    os.kill(program, signal.SIGTERM)
    finish(process)
    assert service.requests[-1] == Release(ENTRY, SECRET)


def test_sigkill_of_the_wrapper_ends_its_program_and_releases_the_lease(
    user: PoolClient, service: FakeNetworkService
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    keeper = keeper_of(process.pid)
    service.until_words(1)
    process.kill()
    process.communicate()  # nobody holds its output any more
    service.until_heard(Release)
    wait_until_gone(program, keeper)


def test_sigkill_of_a_wrapper_that_has_not_told_its_program_ends_that_too(
    user: PoolClient, service: FakeNetworkService
) -> None:
    process = user.start("run", "-n", "1", "--", "sh", "-c", "echo $$; kill -KILL $PPID; exec sleep 600")
    program = program_of(process)
    process.communicate()
    service.until_heard(Release)
    wait_until_gone(program)


def test_a_frozen_wrapper_does_not_keep_its_program_beyond_the_lease(
    user: PoolClient, service: FakeNetworkService
) -> None:
    impatient(service, 1.0, 1.0)
    process = user.start(*SLEEPER)
    program = program_of(process)
    service.until_words(1)
    freeze(process.pid)
    service.stop()
    wait_until(lambda: not alive(program), "the program's end", END_LIMIT_S)
    thaw(process.pid)
    _, err = finish(process)
    assert "so the program was ended" in err.splitlines()[-1]


def test_sigkill_of_the_program_releases_the_lease(user: PoolClient, service: FakeNetworkService) -> None:
    process = user.start(*SLEEPER)
    os.kill(program_of(process), signal.SIGKILL)
    _, err = finish(process)
    assert process.returncode == 128 + signal.SIGKILL
    assert "Released GPUs on 1 servers" in err
    assert service.requests[-1] == Release(ENTRY, SECRET)


def test_sigkill_of_all_of_them_leaves_no_process(user: PoolClient, service: FakeNetworkService) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    keeper = keeper_of(process.pid)
    freeze(process.pid)  # or it starts another keeper in between
    for pid in (keeper, process.pid, program):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    wait_until_gone(keeper, program)
    wait_until(lambda: not any(isinstance(message, Release) for message in service.heard))


def test_what_the_program_leaves_behind_keeps_the_lease_until_its_end(
    user: PoolClient, service: FakeNetworkService
) -> None:
    done = user.do("run", "-n", "1", "--", "bash", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    child = int(done.stdout)
    assert lines_of(done.stderr)[-1] == (
        "[WARN] TIME The GPUs stay allocated until the processes the command left behind have ended"
    )
    service.until_words(round((SIGTERM_S + 1) / BEAT_S))  # longer than a program has to end
    assert alive(child)
    assert not any(isinstance(message, Release) for message in service.heard)
    os.kill(child, signal.SIGKILL)
    service.until_heard(Release)


def test_a_pool_that_is_away_at_the_end_does_not_change_the_programs_status(
    user: PoolClient, service: FakeNetworkService, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    process = user.start("run", "-n", "1", "--", "sh", "-c", f"echo $$; cat {gate}; exit 4")
    program_of(process)
    service.until_words(1)
    service.stop()
    assert process.stderr is not None
    next(line for line in process.stderr if "out of reach" in line)
    gate.write_text("end")
    _, err = finish(process)
    assert process.returncode == 4
    assert lines_of(err)[-1] == (
        f"[WARN] TIME Unable to release GPUs: pool service at {service.place} has gone: dial tcp "
        f"{service.place}: connect: connection refused. What to do: try again; if that does not help, ask "
        "the pool's administrator to start it, or for simulated GPUs of your own set BITFUSION_POOL=own"
    )
    service.start()
    service.until_heard(Release)  # the keeper has gone on trying


# --- reservations --------------------------------------------------------------------------------------


def test_a_reservation_is_kept_while_a_program_uses_it_and_renewed_at_its_end(
    user: PoolClient, service: FakeNetworkService
) -> None:
    from bitfusion_pool.ledger.entries import RESERVED
    from bitfusion_pool.messages.from_service import Granted
    from tests.pool.client.fake_service import SERVER, lease

    def answer(message: Message) -> Message | None:
        found = service.grant(message)
        return Granted(lease(kind=RESERVED), SERVER, SECRET) if isinstance(found, Granted) else found

    service.answer = answer
    assert user.do("request_gpus", "-n", "1").returncode == 0
    assert isinstance(service.requests[-1], Renew)
    process = user.start("client", *SLEEPER[3:])
    program = program_of(process)
    service.until_words()
    os.kill(program, signal.SIGTERM)
    finish(process)
    assert isinstance(service.requests[-2], Renew)
    assert isinstance(service.requests[-1], Cancel)
    done = user.do("release_gpus")
    assert "Released GPUs on 1 servers" in done.stderr
    service.until_heard(Release)


# --- the pipe ------------------------------------------------------------------------------------------


def test_a_life_pipe_tells_when_the_last_reader_is_gone() -> None:
    life = LifePipe("x")
    copy = os.dup(life.lock.fd)
    assert is_held(life.writing_end)
    life.lock.close()
    assert is_held(life.writing_end)
    os.close(copy)
    assert not is_held(life.writing_end)
    life.close()
