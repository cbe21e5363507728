"""What a page has a kernel do: the question for its proxy, the answer, and the state after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bitfusion_client.kernel_state import states
from bitfusion_client.one_line import one_line
from jupyter_ext.server import kernel_words
from jupyter_ext.server.errors import ApiError, NotFound, of_words
from jupyter_ext.server.kernel_question import ask_kernel
from jupyter_ext.server.overview import Documents, kernel_json

Json = dict[str, Any]

STATE_LIMIT = 2.0
"""Seconds in which the state after it must be there; without it the answer has none."""

LONGEST_MESSAGE = 2000


class KernelActions:
    """Asks the proxies of this server's kernels, for the REST API.

    Args:
        list_kernels: The ids of all kernels that run now, with their connection files.
        environ: `XDG_RUNTIME_DIR` as the kernels have it.
        documents: Looks up to which notebook each kernel belongs.
        on_done: Called after each, as the pool may have changed.
    """

    def __init__(
        self,
        list_kernels: Callable[[], Mapping[str, str]],
        environ: Mapping[str, str],
        documents: Callable[[], Awaitable[Documents]],
        on_done: Callable[[], None],
    ) -> None:
        self._list_kernels = list_kernels
        self._environ = dict(environ)
        self._documents = documents
        self._on_done = on_done

    async def act(self, kernel_id: str, action: str, body: Json) -> Json:
        """Do it; the answer has ``message``, what happens now, and ``kernel``, its state after that.

        Raises:
            NotFound: This server has no such kernel.
            ApiError: See `errors`.
            BitfusionError: The size cannot be.
        """
        file = self._list_kernels().get(kernel_id)
        if file is None:
            raise NotFound(
                f"This server has no kernel {one_line(kernel_id, 60)}.",
                "Reload the page; the kernel may have been shut down.",
            )
        answer = await ask_kernel(file, self._environ, kernel_words.question(action, body))
        if "error" in answer:
            raise of_words(str(answer["error"]))
        self._on_done()
        text = answer.get("text")
        message = text.strip()[:LONGEST_MESSAGE] if isinstance(text, str) else ""
        return {"message": message or "Done.", "kernel": await self._state(kernel_id, file)}

    async def _state(self, kernel_id: str, file: str) -> Json | None:
        try:
            told = await ask_kernel(file, self._environ, {"state": "now"}, limit=STATE_LIMIT)
        except ApiError:
            return None
        if told.get("version") != states.VERSION or told.get("state") not in states.STATES:
            return None
        return kernel_json(kernel_id, told, await self._documents())
