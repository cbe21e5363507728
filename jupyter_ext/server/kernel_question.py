"""One question to a kernel's proxy, and its answer, beside the server's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from bitfusion_client.kernel_state import proxy_socket
from bitfusion_client.kernel_state.proxy_socket import NoKernel
from jupyter_ext.server.errors import NoAnswer, NotBitfusion

Json = dict[str, Any]

ANSWER_LIMIT = 10.0
"""Seconds; a proxy asks the client for 5 s at most before it answers."""

CONNECT_LIMIT = 2.0
LONGEST_ANSWER = 1 << 20

TRY_AGAIN = "Try again; if that does not help, restart the kernel."
CHOOSE_OURS = "Choose a Bitfusion kernel for this notebook, or try again if it has just been started."


async def ask_kernel(
    connection_file: str, environ: Mapping[str, str], question: Json, *, limit: float = ANSWER_LIMIT
) -> Json:
    """What the proxy of a kernel answers.

    Args:
        connection_file: Jupyter's, of that kernel, as the server knows it.
        environ: `XDG_RUNTIME_DIR` as the kernel has it.
        question: See `kernel_words`; one line of JSON.
        limit: Seconds.

    Raises:
        NotBitfusion: No proxy of ours listens for it.
        NoAnswer: It says nothing in time, or nothing that can be read.
    """
    try:
        return await asyncio.wait_for(_ask(connection_file, environ, question), limit)
    except (asyncio.TimeoutError, TimeoutError):
        raise NoAnswer(f"The kernel did not answer within {limit:g} s.", TRY_AGAIN) from None


async def _ask(connection_file: str, environ: Mapping[str, str], question: Json) -> Json:
    try:
        # a proxy that is stopped lets a connection wait, which the loop must not
        connection = await asyncio.to_thread(_connect, connection_file, dict(environ))
    except NoKernel:
        raise NotBitfusion("This is not a Bitfusion kernel, or it is just starting.", CHOOSE_OURS) from None
    connection.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=LONGEST_ANSWER)
    try:
        writer.write(json.dumps(question).encode() + b"\n")
        await writer.drain()
        answer = json.loads(await reader.readline())
    except (OSError, ValueError, RecursionError):
        answer = None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if not isinstance(answer, dict):
        raise NoAnswer("The kernel closed the connection without an answer.", TRY_AGAIN)
    return answer


def _connect(connection_file: str, environ: Mapping[str, str]) -> Any:
    for folder in proxy_socket.folders(environ, proxy_socket.read_key(connection_file)):
        try:
            return proxy_socket.connect(os.path.join(folder, proxy_socket.NAME), CONNECT_LIMIT)
        except OSError:
            continue
    raise NoKernel(connection_file)
