"""The `bitfusion` command and a service: a lease's way, and every way in which a service can misbehave."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_client.command.client_failure import error_from_output
from bitfusion_client.errors import OverLimit, PoolUnreadable
from bitfusion_client.version import VERSION
from bitfusion_pool.client.connections.service_connection import ServiceConnection
from bitfusion_pool.client.connections.service_errors import ServiceAway
from bitfusion_pool.ledger.entries import RESERVED
from bitfusion_pool.ledger.files.lease_lock import LeaseLock, is_held
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Look, Release, Renew, Resume
from bitfusion_pool.messages.from_service import PoolSnapshot, Refused, Released, Renewed, Waiting
from bitfusion_pool.messages.message import PROTOCOL
from tests.pool.client.fake_service import SERVER, WELCOME, Conversation, FakeService, asks, lease
from tests.pool.pool_client import PoolClient, finish, uniform
from tests.support.machine import scaled
from tests.support.waiting import wait_until

OWN = "for simulated GPUs of your own set BITFUSION_POOL=own"
FIRST_LINE = "[INFO] TIME Query server 127.0.0.1:56001 to claim client id: UUID"
POSITION = "Waiting for GPUs: position 2 of 3; held by ada: a.ipynb (1 GPU, since 14:03)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def user(client: PoolClient, path: Path) -> PoolClient:
    """A user of the machine's pool, without a folder of an own one in the environment."""
    client.environ.pop("BITFUSION_POOL_DIR")
    client.environ["BITFUSION_POOL"] = str(path)
    return client


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    """The service's folder of lease locks."""
    (tmp_path / "service" / "locks").mkdir(parents=True)
    return tmp_path / "service"


def locked(folder: Path) -> int:
    """A descriptor of a locked file, to be passed."""
    return LeaseLock.create(str(folder), lease().entry_id).fd


# --- a lease's way -------------------------------------------------------------------------------------


def test_a_run_gets_its_lease_from_the_service_and_releases_it(
    user: PoolClient, path: Path, locks: Path
) -> None:
    heard = []

    def hold(service: Conversation) -> None:
        heard.append(service.welcome())
        service.grant(locked(locks))
        heard.append(service.hear())
        assert not is_held(str(locks), lease().entry_id)
        service.say(Released(lease().entry_id))
        assert service.has_hung_up()

    with FakeService(path, hold):
        done = user.do("run", "-n", "1", "--", "printenv", "BITFUSION_POOL_LEASE", "BITFUSION_POOL_DEVICES")
    assert done.returncode == 0
    assert done.stdout.startswith('0123456789abcdef\n[{"id": 0, "name": "Simulated T4", "memory_mib": 16000')
    lines = uniform(done.stderr).splitlines()
    assert lines[0] == FIRST_LINE
    assert lines[3].startswith("[INFO] TIME Requesting GPUs [0] with 16000 MiB of memory from server 0")
    assert lines[-1] == "[INFO] TIME Released GPUs on 1 servers and removed generated config file 'FILE'"
    asked = asks(heard[0])
    assert (asked.request.gpus, asked.kind, asked.label, asked.wait) == (
        1,
        "process",
        "printenv BITFUSION_POOL_LEASE BITFUSION_POOL_DEVICES"[:60],
        True,
    )
    assert heard[1] == Release(lease().entry_id, "secret")


def test_the_program_keeps_the_lock_when_its_wrapper_is_killed(
    user: PoolClient, path: Path, locks: Path
) -> None:
    def hold(service: Conversation) -> None:
        service.welcome()
        service.grant(locked(locks))
        assert service.has_hung_up()

    with FakeService(path, hold):
        process = user.start("run", "-n", "1", "--", "sh", "-c", "echo $$; exec sleep 600")
        assert process.stdout is not None
        program = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert is_held(str(locks), lease().entry_id)
    os.kill(program, signal.SIGKILL)
    wait_until(lambda: not is_held(str(locks), lease().entry_id))
    process.communicate()


def test_what_the_program_left_behind_keeps_the_gpus_and_is_told(
    user: PoolClient, path: Path, locks: Path
) -> None:
    def hold(service: Conversation) -> None:
        service.welcome()
        service.grant(locked(locks))
        service.hear()
        service.say(Released(lease().entry_id, in_use=True))

    with FakeService(path, hold):
        done = user.do("run", "-n", "1", "--", "true")
    assert done.returncode == 0
    assert uniform(done.stderr).splitlines()[-1] == (
        "[WARN] TIME The GPUs stay allocated until the processes the command left behind have ended"
    )


def test_a_service_that_was_started_anew_meanwhile_is_told_of_the_release(
    user: PoolClient, path: Path, locks: Path
) -> None:
    heard = []

    def grant(service: Conversation) -> None:
        service.welcome()
        service.grant(locked(locks))
        service.say(Refused(refusal_codes.SERVICE_ENDS, "the service ends"))

    def release(service: Conversation) -> None:
        heard.append(service.welcome())
        service.say(Released(lease().entry_id))

    with FakeService(path, grant, release):
        done = user.do("run", "-n", "1", "--", "sh", "-c", "sleep 0.2; exit 3")
    assert done.returncode == 3
    assert heard == [Release(lease().entry_id, "secret")]
    assert "Released GPUs on 1 servers" in done.stderr


def test_a_service_that_stays_away_changes_nothing_about_the_status(
    user: PoolClient, path: Path, locks: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def grant(service: Conversation) -> None:
        service.welcome()
        service.grant(locked(locks))

    with FakeService(path, grant):
        process = user.start("run", "-n", "1", "--", "sh", "-c", f"cat {gate}; exit 3")
    gate.write_text("")  # once nobody listens any more
    _, err = finish(process)
    assert process.returncode == 3
    assert uniform(err).splitlines()[-1] == (
        f"[WARN] TIME Unable to release GPUs: pool service at {path} does not run: Connection refused. "
        f"What to do: ask this machine's administrator to start it, or {OWN}"
    )
    assert not is_held(str(locks), lease().entry_id)


def test_reservations_are_kept_joined_and_ended(user: PoolClient, path: Path, locks: Path) -> None:
    reserved = lease(kind=RESERVED)
    heard: list[object] = []

    def request(service: Conversation) -> None:
        heard.append(asks(service.welcome()).kind)
        service.grant(entry=reserved)
        heard.append(service.hear())
        service.say(Renewed(reserved.entry_id))

    def use(service: Conversation) -> None:
        heard.append(service.welcome())
        service.grant(locked(locks), reserved)
        heard.append(service.hear())
        assert is_held(str(locks), reserved.entry_id)  # first renewed, then let go
        service.say(Renewed(reserved.entry_id))

    def release(service: Conversation) -> None:
        heard.append(service.welcome())
        service.say(Released(reserved.entry_id))

    def gone(service: Conversation) -> None:
        heard.append(service.welcome())
        service.say(Refused(refusal_codes.LEASE_OVER, "no such lease"))

    with FakeService(path, request, use, release, gone):
        file = str(path.parent / "allocation")
        assert user.do("request_gpus", "-n", "1", "-f", file).returncode == 0
        text = Path(file).read_text()
        assert os.stat(file).st_mode & 0o777 == 0o600
        # the file names the service, whatever the environment says later
        elsewhere = {"BITFUSION_POOL": "own"}
        used = user.do("client", "-f", file, "--", "printenv", "BITFUSION_POOL_LEASE", env=elsewhere)
        assert (used.returncode, used.stdout) == (0, f"{reserved.entry_id}\n")
        released = user.do("release_gpus", "-f", file, env=elsewhere)
        assert "Released GPUs on 1 servers" in released.stderr
        Path(file).write_text(text)
        late = user.do("client", "-f", file, "--", "true", env=elsewhere)
    assert text == (f"lease: {reserved.entry_id}\nservice: {path}\nsecret: secret\nserver: {SERVER.key}\n")
    assert late.stderr.splitlines()[-1] == (
        f"Error: the GPUs of {file} are no longer allocated: released, or not used for too long"
    )
    resume, renew = Resume(reserved.entry_id, "secret"), Renew(reserved.entry_id, "secret")
    assert heard == [RESERVED, renew, resume, renew, Release(reserved.entry_id, "secret"), resume]


def test_everybody_sees_who_holds_what_by_user(user: PoolClient, path: Path) -> None:
    def look(service: Conversation) -> None:
        assert service.welcome() == Look()
        shown = lease(label="evil\x1b[2J\nname;.ipynb")
        service.say(PoolSnapshot(10.0, 10.0, (SERVER,), (shown,), 2, ()))

    with FakeService(path, look, look):
        listed = user.do("list_gpus").stdout
        table = user.do("smi").stdout
    assert "16000 MiB held by ada: evil [2J name,.ipynb (1 GPU, since" in listed
    assert listed.endswith("- and 2 more leases or requests\n")
    assert "│ ada  │ evil [2J name,.ipynb │ 16000MiB │" in table
    assert table.endswith("and 2 more leases or requests\n")


# --- waiting -------------------------------------------------------------------------------------------


def test_positions_are_shown_as_they_come(user: PoolClient, path: Path, locks: Path) -> None:
    def hold(service: Conversation) -> None:
        service.welcome()
        service.say(Waiting(2, 3, POSITION))
        service.say(Waiting(1, 3, "Waiting for GPUs: position 1 of 3\n\x1b[31m"))
        service.grant(locked(locks))
        service.hear()
        service.say(Released(lease().entry_id))

    with FakeService(path, hold):
        done = user.do("run", "-n", "1", "--", "true", env={"BITFUSION_POOL_ALL_LINES": "1"})
    lines = uniform(done.stderr).splitlines()
    assert lines[2:4] == [
        f"[INFO] TIME {POSITION}",
        "[INFO] TIME Waiting for GPUs: position 1 of 3 \\x1b[31m",
    ]


def test_a_service_that_restarts_during_a_wait_is_asked_the_same_again(
    user: PoolClient, path: Path, locks: Path
) -> None:
    heard = []

    def lose(service: Conversation) -> None:
        heard.append(service.welcome())
        service.say(Waiting(2, 3, POSITION))
        service.say(Refused(refusal_codes.SERVICE_ENDS, "the service ends"))

    def lose_without_a_word(service: Conversation) -> None:
        pass

    def grant(service: Conversation) -> None:
        heard.append(service.welcome())
        service.grant(locked(locks))
        service.hear()
        service.say(Released(lease().entry_id))

    with FakeService(path, lose, lose_without_a_word, grant):
        done = user.do("run", "-n", "1", "--", "true")
    assert done.returncode == 0
    assert heard[0] == heard[1]
    said = [line for line in uniform(done.stderr).splitlines() if "pool service" in line]
    assert said == [
        f"[WARN] TIME pool service at {path} has gone: the service ends; this request waits for it",
        f"[INFO] TIME pool service at {path} is back, the request is made again",
    ]


def test_a_request_comes_back_to_its_place(user: PoolClient, path: Path, locks: Path) -> None:
    heard = []

    def lose(service: Conversation) -> None:
        service.welcome()
        service.say(Waiting(2, 3, POSITION, lease().entry_id, "secret"))

    def grant(service: Conversation) -> None:
        heard.append(service.welcome())
        service.say(Waiting(1, 2, POSITION, lease().entry_id, "secret"))
        service.grant(locked(locks))
        service.hear()
        service.say(Released(lease().entry_id))

    with FakeService(path, lose, grant):
        done = user.do("run", "-n", "1", "--", "true")
    assert done.returncode == 0
    assert heard == [Resume(lease().entry_id, "secret")]
    assert uniform(done.stderr).splitlines()[3:5] == [
        f"[WARN] TIME pool service at {path} has gone: it ended the connection; this request waits for it",
        f"[INFO] TIME pool service at {path} is back, the request goes back to its position",
    ]


def test_a_request_whose_place_is_lost_is_made_again(user: PoolClient, path: Path, locks: Path) -> None:
    heard = []

    def lose(service: Conversation) -> None:
        heard.append(service.welcome())
        service.say(Waiting(2, 3, POSITION, lease().entry_id, "secret"))

    def grant(service: Conversation) -> None:
        heard.append(service.welcome())
        service.say(Refused(refusal_codes.LEASE_OVER, "there is no such lease"))
        heard.append(service.hear())
        service.grant(locked(locks))
        service.hear()
        service.say(Released(lease().entry_id))

    with FakeService(path, lose, grant):
        done = user.do("run", "-n", "1", "--", "true")
    assert done.returncode == 0
    assert heard[1] == Resume(lease().entry_id, "secret")
    assert heard[0] == heard[2]
    assert "[WARN] TIME the request has lost its position in the queue, and is made again" in uniform(
        done.stderr
    )


def wait(service: Conversation) -> None:
    service.welcome()
    service.say(Waiting(2, 3, POSITION))
    assert service.has_hung_up()


def test_a_wait_ends_after_its_timeout(user: PoolClient, path: Path) -> None:
    with FakeService(path, wait):
        done = user.do("run", "-n", "1", "--timeout", "700ms", "--", "true")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Error: timed out after 700ms waiting for 1 GPUs"


def test_a_service_is_not_waited_for_longer_than_for_gpus(user: PoolClient, path: Path) -> None:
    def lose(service: Conversation) -> None:
        path.unlink()
        service.welcome()
        service.say(Waiting(2, 3, POSITION))

    with FakeService(path, lose):
        # by its end the service has been missed, even on a machine that stands still for a moment
        done = user.do("run", "-n", "1", "--timeout", f"{scaled(1000):.0f}ms", "--", "true")
    assert done.returncode == 1
    assert f"Error: pool service at {path} does not run: No such file or directory. What" in done.stderr


def test_a_wait_can_be_interrupted(user: PoolClient, path: Path) -> None:
    with FakeService(path, wait):
        process = user.start("run", "-n", "1", "--", "true")
        assert process.stderr is not None
        while POSITION not in process.stderr.readline():
            pass
        os.kill(process.pid, signal.SIGINT)
        finish(process)
    assert process.returncode == 130


# --- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message", "next_step", "printed", "kind"),
    [
        (
            refusal_codes.NEVER,
            "no server can satisfy the request: 9 GPUs",
            "ask for less",
            "no server can satisfy the request: 9 GPUs",
            "NeverSatisfiable",
        ),
        (
            refusal_codes.NOT_ENOUGH_FREE,
            "not enough GPUs are free",
            "",
            "not enough GPUs are free",
            "NoGpusAvailable",
        ),
        (
            refusal_codes.OVER_LIMIT,
            "one user of this pool may have 2 GPUs",
            "end something",
            "limit of the pool: one user of this pool may have 2 GPUs. What to do: end something",
            "OverLimit",
        ),
        (
            refusal_codes.INVALID_REQUEST,
            'invalid value "x=1" for --filter: unknown',
            "",
            'invalid value "x=1" for --filter: unknown',
            "InvalidRequest",
        ),
        (
            refusal_codes.ENDED,
            "somebody ended your request",
            "ask again",
            "somebody ended your request",
            "ClientFailed",
        ),
        (
            "a_code_of_later",
            "that is not done\nhere",
            "go",
            "pool service at {path} refuses this: that is not done here. What to do: go",
            "PoolUnreadable",
        ),
    ],
)
def test_a_refusal_is_told_in_words_that_the_kernel_knows(
    user: PoolClient, path: Path, code: str, message: str, next_step: str, printed: str, kind: str
) -> None:
    def refuse(service: Conversation) -> None:
        service.welcome()
        service.say(Refused(code, message, next_step))

    with FakeService(path, refuse):
        done = user.do("run", "-n", "1", "--", "true")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Error: " + printed.format(path=path)
    error = error_from_output(done.stderr.splitlines(), 1)
    assert type(error).__name__ == kind
    if isinstance(error, (OverLimit, PoolUnreadable)):
        assert error.next_step == next_step
        assert "What to do" not in error.answered


def say_nothing(service: Conversation) -> None:
    assert service.has_hung_up() is False
    assert service.has_hung_up()


def refuse_version(service: Conversation) -> None:
    service.say(Refused(refusal_codes.PROTOCOL, "it speaks version 2, your bitfusion command 1", "update"))


def welcome_in_another_version(service: Conversation) -> None:
    service.hear()
    wrong = (PROTOCOL + 1, WELCOME.pool, WELCOME.client_id, True, WELCOME.servers)
    service.say(type(WELCOME)(*wrong))


CHECK = f"check which program listens there, and BITFUSION_POOL; or {OWN}"
AGAIN = f"try again; if that does not help, ask this machine's administrator to {{}}, or {OWN}"


@pytest.mark.parametrize(
    ("conversation", "problem"),
    [
        (say_nothing, "at {path} gave no answer in 3 s. What to do: " + AGAIN.format("look at it")),
        (
            lambda service: service.hear(),
            "at {path} has gone: it ended the connection. What to do: " + AGAIN.format("start it"),
        ),
        (
            refuse_version,
            "at {path} refuses this: it speaks version 2, your bitfusion command 1. What to do: update",
        ),
        (
            welcome_in_another_version,
            "at {path} does not speak as a pool's service does: it speaks version 2, this client 1. "
            f"What to do: {CHECK}",
        ),
        (
            lambda service: (service.hear(), service.say_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
            f"at {{path}} does not speak as a pool's service does: it is not JSON. What to do: {CHECK}",
        ),
        (
            lambda service: (service.hear(), service.say_bytes(WELCOME.format()[:-9])),
            "at {path} has gone: it ended the connection. What to do: " + AGAIN.format("start it"),
        ),
        (
            lambda service: (service.hear(), service.say(Released("x"))),
            f"at {{path}} does not speak as a pool's service does: it answered with released. "
            f"What to do: {CHECK}",
        ),
        (
            lambda service: (service.welcome(), service.grant()),
            "at {path} does not speak as a pool's service does: it granted a lease without GPUs, "
            f"or without its lock. What to do: {CHECK}",
        ),
    ],
)
def test_a_service_that_misbehaves_is_an_error_with_a_cure(
    user: PoolClient, path: Path, conversation: Callable[[Conversation], None], problem: str
) -> None:
    with FakeService(path, conversation):
        done = user.do("run", "-n", "1", "--", "true")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Error: pool service " + problem.format(path=path)
    assert isinstance(error_from_output(done.stderr.splitlines(), 1), PoolUnreadable)


def test_a_line_without_an_end_is_not_read_for_ever(user: PoolClient, path: Path) -> None:
    def flood(service: Conversation) -> None:
        service.hear()
        try:
            while True:
                service.say_bytes(b"x" * 4096)
        except OSError:
            pass

    with FakeService(path, flood):
        done = user.do("run", "-n", "1", "--", "true")
    assert "does not speak as a pool's service does: a line of more than 262144 bytes" in done.stderr


@pytest.mark.parametrize("words", [["run", "-n", "1", "--", "true"], ["list_gpus"], ["smi"], ["health"]])
def test_a_service_that_does_not_run_is_never_replaced_by_the_own_pool(
    user: PoolClient, path: Path, words: list[str]
) -> None:
    cure = f"What to do: ask this machine's administrator to start it, or {OWN}"
    done = user.do(*words)
    assert done.stderr == f"Error: pool service at {path} does not run: No such file or directory. {cure}\n"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    done = user.do(*words)
    assert done.returncode == 1
    assert done.stderr == f"Error: pool service at {path} does not run: Connection refused. {cure}\n"
    assert not (Path(user.environ["HOME"]) / ".local").exists()


def test_a_socket_that_is_not_for_this_user_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def setsockopt(self, *_: object) -> None: ...
        def connect(self, _: str) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        def close(self) -> None: ...

    monkeypatch.setattr("_socket.socket", lambda *_: Closed())
    with pytest.raises(PoolUnreadable) as caught:
        ServiceConnection(str(path))
    assert not isinstance(caught.value, ServiceAway)
    assert str(caught.value) == (
        f"pool service at {path} is not for you: Permission denied. "
        f"What to do: ask this machine's administrator for access, or {OWN}"
    )


def test_a_path_that_no_socket_can_have(user: PoolClient) -> None:
    long = "/" + "x" * 200
    done = user.do("list_gpus", env={"BITFUSION_POOL": long})
    assert done.stderr == (
        f"Error: pool service cannot be at {long}: AF_UNIX path too long. "
        f"What to do: correct BITFUSION_POOL, or {OWN}\n"
    )


def test_health_says_what_is_known_of_the_service(user: PoolClient, path: Path) -> None:
    def look(service: Conversation) -> None:
        service.welcome()
        service.say(PoolSnapshot(10.0, 10.0, (SERVER,), (lease(),), 0, ()))

    def greet(service: Conversation) -> None:
        assert service.welcome() is None

    with FakeService(path, look, greet):
        done = user.do("health")
    assert done.returncode == 0
    assert "Check lock files" not in done.stdout  # only the service can see them
    assert (
        f"[PASS    ] Check pool in use: the service at {path}; BITFUSION_POOL names its socket\n"
        in done.stdout
    )
    assert "[PASS    ] Check pool service: the pool of this test answered in " in done.stdout
    assert f"[PASS    ] Check pool software: not told, so a version before {VERSION}; " in done.stdout
    away = user.do("health")
    assert away.returncode == 1
    assert f"[FATAL   ] Check pool service: pool service at {path} does not run: " in away.stdout
