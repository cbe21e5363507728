"""`bitfusion run …` for the tests, whose pod is a pid and mount namespace of this machine.

The agent's XDG_RUNTIME_DIR is another folder than here, so no socket and no file is found there that the
stream has not brought. PODS_KEYS names the keys, PODS_PORT the port to dial, which may be a relay's, and
PODS_AGENT_PORT that on which the agent listens (any, without both); PODS_GPU is its GPU. The file PODS_HEARD
gets what is heard of the connection.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import bitfusion_pods
from bitfusion_pods import environment
from bitfusion_pods.command import stdio
from bitfusion_pods.command.remote_program import NotReached, RemoteProgram
from bitfusion_pods.signals import Interrupted
from bitfusion_pods.spawn import Failed, Spawn, Started
from bitfusion_pods.stream import tls
from bitfusion_pods.stream.frames import ProtocolError
from tests.support.machine import scaled
from tests.support.ports import free_port

AGENT = str(Path(bitfusion_pods.__file__).parent / "agent" / "__main__.py")
IN_A_POD = 'mount -t tmpfs none "$XDG_RUNTIME_DIR" && exec "$@"'


class Heard:
    """Notes what it hears."""

    def _note(self, text: str) -> None:
        if path := os.environ.get("PODS_HEARD"):
            with open(path, "a") as file:
                file.write(f"{text}\n")

    def begins(self, started: Started) -> None:
        pass

    def lost(self, why: str, seconds_left: float) -> None:
        self._note(f"lost: {why}")

    def back(self, seconds: float) -> None:
        self._note("back")

    def is_over(self) -> bool:
        return False


def agent_command(keys: str, port: str) -> list[str]:
    agent = [sys.executable, "-I", "-S", AGENT, "--keys", f"{keys}/agent", "--port", port]
    return [
        *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
        *("sh", "-c", IN_A_POD, "sh", *agent),
    ]


def main() -> int:
    keys, port = os.environ["PODS_KEYS"], os.environ.get("PODS_PORT", "")
    program = sys.argv[sys.argv.index("--") + 1 :]
    agent = None
    agents = os.environ.get("PODS_AGENT_PORT", "")
    if not port:
        port = agents = str(free_port())
    if agents:
        pod = {
            name: text for name, text in os.environ.items() if name in ("PATH", "XDG_RUNTIME_DIR", "TMPDIR")
        }
        pod |= {"HOSTNAME": "the-pod", "CUDA_VISIBLE_DEVICES": os.environ.get("PODS_GPU", "GPU-7")}
        with open(os.environ["PODS_HEARD"] + ".agent", "a") as log:
            agent = subprocess.Popen(
                agent_command(keys, agents),
                env=pod,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a terminal's hang-up is not the pod's
            )
    socket_path = os.environ.get("BITFUSION_KERNEL_SOCKET", "")
    folder = os.path.dirname(socket_path)
    files = {}
    if folder:
        files = {each.name: each.read_text() for each in Path(folder).iterdir() if each.is_file()}
    asked = Spawn(tuple(program), environment.sent(os.environ), os.getcwd(), folder, files)
    pods = Path(keys, "pod", "tls.crt").read_text()
    context = tls.context(*tls.own_files(f"{keys}/client"), pods, server=False)
    ends_within = 2.0  # else it waits for its client to come back: the pod is deleted
    try:
        remote = RemoteProgram(("127.0.0.1", int(port)), context, asked, Heard())
        outcome = remote.run()
        ends_within = 20.0  # it has heard the farewell
    except NotReached as error:
        print(f"Error: {type(error).__name__}: {error}", file=sys.stderr)
        return 137
    except ProtocolError as error:
        print(f"Error: {type(error).__name__}: {error}", file=sys.stderr)
        return 137
    except Interrupted as interrupted:
        return 128 + interrupted.number
    finally:
        if agent is not None:
            try:
                agent.wait(scaled(ends_within))
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
    if isinstance(outcome, Failed):
        print(f'Error: exec: "{program[0]}": {outcome.why}', file=sys.stderr)
        return outcome.status
    if remote.not_written:
        print(f"Error: not written: {remote.not_written}", file=sys.stderr)
        return outcome.as_shell() or 1
    return outcome.as_shell()


if __name__ == "__main__":
    stdio.hold_closed()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(main())
