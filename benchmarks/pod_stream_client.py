"""The client's side of `benchmarks.pod_stream`: `bitfusion run` but for the API, with what that imports.

KEYS PORT FOLDER PROGRAM…: of both sides, of the agent, the private folder (or empty), and what to run.
"""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Nobody:
    """Hears."""

    def begins(self, started: object) -> None:
        pass

    def lost(self, why: str, seconds_left: float) -> None:
        pass

    def back(self, seconds: float) -> None:
        pass

    def is_over(self) -> bool:
        return False


def main(keys: str, port: str, folder: str, *program: str) -> int:
    import bitfusion_pods.command.run  # noqa: F401  what it imports is part of its memory
    from bitfusion_pods.command.remote_program import RemoteProgram
    from bitfusion_pods.spawn import Ended, Spawn
    from bitfusion_pods.stream import tls

    with open(f"{keys}/pod/tls.crt", encoding="ascii") as file:
        context = tls.context(*tls.own_files(f"{keys}/client"), file.read(), server=False)
    # another folder there: both sides are on this machine
    asked = Spawn(program, dict(os.environ), os.getcwd(), f"{folder}-there" if folder else "")
    remote = RemoteProgram(("127.0.0.1", int(port)), context, asked, Nobody())
    if folder:
        mirror = remote._session.mirror_folder
        vars(remote._session)["mirror_folder"] = lambda _: mirror(folder)
    outcome = remote.run()
    return outcome.as_shell() if isinstance(outcome, Ended) else outcome.status


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
