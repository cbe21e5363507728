"""The addresses of the REST API below ``bitfusion/api/``; `openapi.yaml` describes each.

Signing in, authorisation, origin and XSRF are the server's own. Every answer is JSON, errors too
(`errors`); of what fails inside of us the log has the traceback and the answer none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, NoReturn, TypeVar, cast

import tornado.web
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler

from bitfusion_client.errors import BitfusionError
from jupyter_ext.server import errors, kernel_words
from jupyter_ext.server.errors import ApiError
from jupyter_ext.server.overview import Overview

Json = dict[str, Any]

BASE = "bitfusion/api"
RESOURCE = "bitfusion"
"""What an authorizer is asked about: to ``read`` it, and to ``execute`` what changes a kernel."""

PARTS = ("state", "pool", "kernels", "sizes", "leases", "queue")

Act = Callable[[str, str, Json], Awaitable[Json]]
"""Does an action, one of `kernel_words.ACTIONS`, with a kernel: its id, the action, the body; the answer."""


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _may_execute(method: _Method) -> _Method:
    """Decorator: for what changes something; without an action it would be that of the HTTP method."""
    return cast("_Method", authorized("execute", RESOURCE)(method))


class BitfusionHandler(APIHandler):
    """What all addresses have in common: who may ask, and how errors are told."""

    auth_resource = RESOURCE

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Called by tornado for whatever was raised; an error of ours has its own status."""
        error = _raised(kwargs)
        super().send_error(error.status if error is not None else status_code, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """The body of an error."""
        error = _raised(kwargs)
        if error is None:
            exception = _exception(kwargs)
            said = exception.log_message if isinstance(exception, tornado.web.HTTPError) else ""
            # 401 asks for a password, which no page of ours can answer
            is_refusal = status_code in (401, 403)
            error = errors.of_status(
                403 if is_refusal else status_code, _readable(said) if is_refusal else ""
            )
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(error.to_json()))

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Called by tornado; an error of ours is an answer, and no fault."""
        if not isinstance(value, (ApiError, BitfusionError)):
            super().log_exception(typ, value, tb)

    def tell(self, answer: Json) -> None:
        """Finish with this."""
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(answer))


class PartHandler(BitfusionHandler):
    """Answers with one part of what there is to see."""

    _track_activity = False  # a page that only looks must not keep a server from being culled

    def initialize(self, overview: Overview, part: str) -> None:
        """Called by tornado, with the arguments of the route."""
        self._overview = overview
        self._part = part

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """See `openapi.yaml`."""
        if self._part == "state":
            self.tell(await self._overview.state(await self._can_change()))
        else:
            self.tell(await getattr(self._overview, self._part)())

    async def _can_change(self) -> bool:
        allowed = self.authorizer.is_authorized(self, self.current_user, "execute", RESOURCE)
        return bool(await ensure_async(allowed))


class ActionHandler(BitfusionHandler):
    """Has a kernel do something."""

    def initialize(self, act: Act) -> None:
        """Called by tornado, with the arguments of the route."""
        self._act = act

    @tornado.web.authenticated
    @_may_execute
    async def post(self, kernel_id: str, action: str) -> None:
        """See `openapi.yaml`."""
        self.tell(await self._act(kernel_id, action, kernel_words.read_body(self.request.body)))


class UnknownHandler(BitfusionHandler):
    """Any other address below ours: JSON, where the server would show a page."""

    @tornado.web.authenticated
    @authorized
    async def get(self) -> None:
        """There is nothing."""
        self._refuse()

    @tornado.web.authenticated
    @_may_execute
    async def post(self) -> None:
        """There is nothing."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise errors.of_status(404)


def routes(overview: Overview, act: Act) -> list[tuple[str, type[BitfusionHandler], Json]]:
    """Patterns, handlers and their arguments, for the server; without its base URL."""
    base = re.escape(BASE)
    actions = "|".join(kernel_words.ACTIONS)
    return [
        *((rf"/{base}/{part}", PartHandler, {"overview": overview, "part": part}) for part in PARTS),
        (rf"/{base}/kernels/([^/]+)/({actions})", ActionHandler, {"act": act}),
        (rf"/{base}(?:/.*)?", UnknownHandler, {}),
    ]


def _exception(kwargs: Mapping[str, Any]) -> BaseException | None:
    raised = kwargs.get("exc_info")
    return raised[1] if raised else None


def _raised(kwargs: Mapping[str, Any]) -> ApiError | None:
    exception = _exception(kwargs)
    if isinstance(exception, BitfusionError):
        return errors.of_bitfusion(exception)
    return exception if isinstance(exception, ApiError) else None


def _readable(said: str | None) -> str:
    """The words of an HTTPError, in which a percent sign is written twice."""
    return (said or "").replace("%%", "%")
