"""A server extension with answers that a test chooses, in the form of the real one's.

Kernels of the server are told as they are set here; what a page asks for changes them at once. A test sets
kernels and pool, and emits events, by a POST to ``/stand-in``.
"""

from __future__ import annotations

import copy
import json
import time
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.serverapp import ServerApp
from tornado import web

SCHEMA_ID = "https://kubeflow-bitfusion.io/events/changed/v1"
SCHEMA = {
    "$id": SCHEMA_ID,
    "version": "1",
    "title": "Something of the pool or of a kernel has changed",
    "type": "object",
    "required": ["what"],
    "properties": {"what": {"type": "string"}},
}
SIZES: list[dict[str, Any]] = [
    {"label": label, "gpus": gpus, "partial": partial, "memory_mib": memory, "words": words, "free_now": free}
    for label, gpus, partial, memory, words, free in (
        ("¼ GPU", 1, 0.25, None, "-n 1 -p 0.25", 5),
        ("½ GPU", 1, 0.5, None, "-n 1 -p 0.5", 2),
        ("1 GPU", 1, None, None, "-n 1", 0),
        ("8 GiB", 1, None, 8192, "-n 1 -m 8192", 1),
        ("2 GPUs", 2, None, None, "-n 2", 0),
    )
]
NOTES = ("free now", "free now", "would wait: 2 before you", "free now", "more than this pod's budget")
MINE = {"text": "ada · train.ipynb · since 12 min", "mine": True, "mib": 8080}
OTHERS = {"text": "grace · <b>notes</b>.ipynb · since 2 h 5 min", "mine": False, "mib": 4040}
POOL: dict[str, Any] = {
    "seen_at": 0,
    "error": None,
    "servers": [
        {
            "address": "gpu-1.example:56001",
            "gpus": [
                {"index": 0, "name": "Tesla V100", "simulated": True, "free_mib": 4040, "total_mib": 16160},
                {"index": 1, "name": "Tesla V100", "simulated": True, "free_mib": 16160, "total_mib": 16160},
            ],
        }
    ],
    "waiting": [],
    "notes": [],
    "simulated": True,
    "text": None,
    "history": [],
}
NO_GPU = {
    "version": 1,
    "state": "none",
    "idle_since": None,
    "notebook": None,
    "request": {"text": "1 GPU", "what_is_left": False, "gpus": 1},
    "asked_at": None,
    "granted_at": None,
    "waited_s": None,
    "queue": None,
    "lease": None,
}


class StandIn:
    """What is told, and what pages have asked for."""

    def __init__(self, app: ServerApp) -> None:
        self.app = app
        self.changes: dict[str, dict[str, Any]] = {}
        self.asked: list[list[Any]] = []
        self.states = 0
        self.can_change = True
        self.since = time.time()
        self.pool = copy.deepcopy(POOL)
        for gpu in self.pool["servers"][0]["gpus"]:
            gpu |= {"holders": [], "notes": []}
        self.pool["servers"][0]["gpus"][0]["holders"] = [OTHERS, MINE]

    def kernel(self, kernel_id: str) -> dict[str, Any]:
        known = {
            "id": kernel_id,
            "kernel_id": kernel_id,
            "path": None,
            "title": kernel_id,
            "since": self.since,
        }
        return NO_GPU | known | self.changes.get(kernel_id, {})

    async def kernels(self) -> list[dict[str, Any]]:
        manager = self.app.kernel_manager
        names = {each: manager.get_kernel(each).kernel_name for each in manager.list_kernel_ids()}
        for session in await self.app.session_manager.list_sessions():
            path = session["path"]
            place = self.changes.setdefault(session["kernel"]["id"], {})
            place |= {"path": path, "title": path.rpartition("/")[2]}
        return [self.kernel(each) for each, name in names.items() if name == "bitfusion"]

    async def state(self) -> dict[str, Any]:
        self.states += 1
        now = time.time()
        self.pool["seen_at"] = now
        sizes = [
            size | {"note": note, "possible": "budget" not in note}
            for size, note in zip(SIZES, NOTES, strict=True)
        ]
        return {
            "version": "0.1.0",
            "now": now,
            "pool": self.pool,
            "kernels": await self.kernels(),
            "sizes": sizes,
            "can_change": self.can_change,
        }

    def set(self, kernel_id: str, **changes: Any) -> dict[str, Any]:
        """Change a kernel and tell it."""
        self.changes.setdefault(kernel_id, {}).update(changes, since=time.time())
        kernel = self.kernel(kernel_id)
        self.emit({"what": "kernel", "kernel_id": kernel_id, "state": kernel})
        return kernel

    def emit(self, event: dict[str, Any]) -> None:
        assert self.app.event_logger is not None
        self.app.event_logger.emit(schema_id=SCHEMA_ID, data=event)

    def do(self, kernel_id: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the kernel would do, without the wait."""
        now = time.time()
        if verb == "request":
            size = {key: body[key] for key in ("gpus", "partial", "memory_mib") if body[key]}
            return self.set(kernel_id, request={"text": "as asked", "what_is_left": False, **size})
        if verb == "acquire":
            times = dict.fromkeys(("asked_at", "granted_at", "idle_since"), now)
            lease = {"devices": [], "server": "gpu-1.example:56001", "simulated": True}
            return self.set(kernel_id, state="idle", lease=lease, **times)
        if verb == "keep":
            return self.set(kernel_id, idle_release_at=None)
        return self.set(kernel_id, state="none", lease=None, queue=None, asked_at=None, granted_at=None)


class StateHandler(APIHandler):
    """GET state."""

    def initialize(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in

    @web.authenticated
    async def get(self) -> None:
        self.finish(json.dumps(await self.stand_in.state()))


class VerbHandler(APIHandler):
    """POST kernels/<id>/<verb>."""

    def initialize(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in

    @web.authenticated
    async def post(self, kernel_id: str, verb: str) -> None:
        body = self.get_json_body() or {}
        self.stand_in.asked.append([verb, body])
        kernel = self.stand_in.do(kernel_id, verb, body)
        self.finish(json.dumps({"message": f"Done: {verb}.", "kernel": kernel}))


class ControlHandler(APIHandler):
    """How a test sets what is told, and asks what pages have asked for."""

    def initialize(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in

    def check_xsrf_cookie(self) -> None:
        """A test is no browser."""

    @web.authenticated
    async def post(self) -> None:
        wanted = self.get_json_body() or {}
        self.stand_in.pool.update(wanted.get("pool", {}))
        self.stand_in.can_change = wanted.get("can_change", self.stand_in.can_change)
        for kernel_id, changes in wanted.get("kernels", {}).items():
            self.stand_in.set(kernel_id, **changes)
        for event in wanted.get("events", []):
            self.stand_in.emit(event)
        if wanted.get("shut_down"):
            sessions = self.stand_in.app.session_manager
            for session in await sessions.list_sessions():
                await sessions.delete_session(session["id"])
            self.stand_in.asked.clear()
        told = {"asked": self.stand_in.asked, "states": self.stand_in.states}
        self.finish(json.dumps(told | {"kernels": await self.stand_in.kernels()}))


def _load_jupyter_server_extension(app: ServerApp) -> None:
    assert app.event_logger is not None
    app.event_logger.register_event_schema(SCHEMA)
    stand_in = StandIn(app)
    base = app.web_app.settings["base_url"].rstrip("/")
    given = {"stand_in": stand_in}
    app.web_app.add_handlers(  # type: ignore[no-untyped-call]  # tornado has no types for it
        ".*$",
        [
            (f"{base}/bitfusion/api/state", StateHandler, given),
            (f"{base}/bitfusion/api/kernels/([^/]+)/([a-z]+)", VerbHandler, given),
            (f"{base}/stand-in", ControlHandler, given),
        ],
    )
