"""Messages of a kernel that are damaged: passed over, as clients do, and the kernel lives on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from bitfusion_kernel.protocol.wire import DELIMITER
from tests.kernel.proxy.damaged_frames import ROOM_MIB, Client, damaged, fuzz
from tests.kernel.proxy.parts import WIRE, Parts, message
from tests.kernel.proxy_harness import GRANT, StartProxy

WHOLE = WIRE.build("execute_reply", {"status": "ok"}, parent={"msg_id": "x"})
NO_ID = WIRE.build("execute_reply", {"status": "ok"})
NO_ID[2] = json.dumps({"msg_type": "execute_reply"}).encode()

TORN = {
    "one frame": [b"x"],
    "an empty frame": [b""],
    "a delimiter alone": [DELIMITER],
    "no delimiter": [b"client", *WHOLE[1:]],
    "a header that is no JSON": [*WHOLE[:2], b"execute_reply{", *WHOLE[3:]],
    "a header without msg_id": NO_ID,
    "fewer parts": WHOLE[:4],
    "doubled": [*WHOLE, *WHOLE],
    "a list subshell reply cut short": [b"client", DELIMITER, b"", b'{"msg_type": "list_subshell_reply"}'],
    "nested too deep": [*WHOLE[:5], b"[" * 100_000],
}


@pytest.mark.parametrize("client", [[], [b"client"]], ids=["to the proxy", "to a client"])
@pytest.mark.parametrize("frames", TORN.values(), ids=TORN)
def test_a_torn_message_changes_nothing(frames: list[bytes], client: list[bytes]) -> None:
    parts = Parts()
    control, shell = parts.make_control(), parts.make_shell()
    parts.subshells.create()
    (create,) = map(WIRE.read, parts.subshells.requests())
    named = WIRE.build("create_subshell_reply", {"subshell_id": "real"}, parent=create.header)
    parts.subshells.on_reply(WIRE.read(named))
    parts.connect(control)
    silent = message("execute_request", silent=True)
    for answered_early in (False, True):
        if answered_early:
            parts.sent._answered_early.add(silent.id)
        shell.relay_replies([[*client, *frames]])
        control.relay_replies([[*client, *frames]])
    parts.subshells.to_client([*client, *frames])
    parts.subshells.to_kernel([*client, *frames])
    assert parts.sent.shells == []


def test_random_damage_of_messages_changes_nothing() -> None:
    rng, parts = random.Random(20261125), Parts()
    control, shell = parts.make_control(), parts.make_shell()
    parts.connect(control)
    for _ in range(20_000):
        frames = [*([b"client"] if rng.random() < 0.5 else []), *damaged(rng, WHOLE)]
        shell.relay_replies([frames])
        control.relay_replies([frames])
    assert parts.sent.shells == []


def test_a_kernel_that_sends_damaged_frames_serves_the_next_cell(proxy: StartProxy, tmp_path: Path) -> None:
    before, after = fuzz(proxy, tmp_path, 5000, seed=1)
    assert after < before + ROOM_MIB


WRITES = """
kernel = get_ipython().kernel
idents = kernel._parent_ident["shell"]
names = b'"execute_reply"'
for torn in ([b"torn"], [b"<IDS|MSG>", b"", b"no json {"], [*idents[1:], b"<IDS|MSG>", b"", names]):
    kernel.shell_stream.socket.send_multipart([idents[0], *torn])
print("written")
"""


def test_a_cell_that_writes_to_the_kernels_socket_ends_nothing(proxy: StartProxy) -> None:
    """As threads, an interrupt in the middle of sending, or a forked child do by accident."""
    client = Client(proxy(GRANT))
    assert client.run(WRITES, 30) == "written\n"
    assert client.run("print('unharmed')", 30) == "unharmed\n"
