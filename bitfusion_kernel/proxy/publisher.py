"""What the proxy itself says to clients: replies, status, displays and errors, in ipykernel's form."""

from __future__ import annotations

import time
from typing import Any, Protocol

from bitfusion_client.errors import BitfusionError
from bitfusion_kernel.protocol.wire import Message, Wire

Json = dict[str, Any]


class Sends(Protocol):
    """The one method of a zmq socket used here."""

    def send_multipart(self, msg_parts: list[bytes]) -> Any:
        """Send one message."""


class Publisher:
    """`iopub` is replaced at handover, when the clients' socket moves to the output relay."""

    def __init__(self, wire: Wire, iopub: Sends) -> None:
        self._wire = wire
        self.iopub = iopub

    def publish(self, message_type: str, content: Json, parent: Json | None = None) -> None:
        """One message on iopub; `parent` is the header of the request it belongs to."""
        topic = f"kernel.bitfusion.{message_type}".encode()
        self.iopub.send_multipart(self._wire.build(message_type, content, parent=parent, identities=[topic]))

    def status(self, state: str, parent: Json | None = None) -> None:
        """`starting`, `busy`, `idle`."""
        self.publish("status", {"execution_state": state}, parent)

    def welcome(self, subscription: bytes) -> None:
        """Greets a new subscriber, as ipykernel does since 7.0 (JEP 65)."""
        topic = [subscription] if subscription else []
        content = {"subscription": subscription.decode("utf-8", "replace")}
        self.iopub.send_multipart(self._wire.build("iopub_welcome", content, identities=topic))

    def display(self, data: dict[str, str], display_id: str, parent: Json, *, update: bool) -> None:
        """Show a MIME bundle, or replace the one shown under the same id."""
        kind = "update_display_data" if update else "display_data"
        self.publish(kind, {"data": data, "metadata": {}, "transient": {"display_id": display_id}}, parent)

    def show(self, data: dict[str, str], parent: Json) -> None:
        """A display that stays."""
        self.publish("display_data", {"data": data, "metadata": {}, "transient": {}}, parent)

    def clear(self, parent: Json) -> None:
        """Remove the cell's outputs now; nothing of a wait is left in the notebook file."""
        self.publish("clear_output", {"wait": False}, parent)

    def stream(self, text: str, parent: Json, name: str = "stdout") -> None:
        """Text output."""
        self.publish("stream", {"name": name, "text": text}, parent)

    def reply(self, socket: Sends, request: Message, content: Json, metadata: Json | None = None) -> None:
        """The reply to a request on the channel it came from."""
        reply_type = request.type.rsplit("_", 1)[0] + "_reply"
        socket.send_multipart(
            self._wire.build(
                reply_type, content, parent=request.header, metadata=metadata, identities=request.identities
            )
        )

    def answer(self, socket: Sends, request: Message, content: Json) -> None:
        """A whole exchange: busy, reply, idle."""
        self.status("busy", request.header)
        self.reply(socket, request, content)
        self.status("idle", request.header)

    def finish_cell(self, socket: Sends, request: Message, execution_count: int) -> None:
        """End a cell that went well without a kernel."""
        content = {"status": "ok", "execution_count": execution_count, "user_expressions": {}, "payload": []}
        self.reply(socket, request, content, _execution_metadata("ok"))
        self.status("idle", request.header)

    def fail_cell(self, socket: Sends, request: Message, error: BitfusionError) -> None:
        """An error in a cell that did not reach the kernel: no execute_input, no count consumed."""
        name = type(error).__name__
        first, *others = error.user_message.splitlines()
        shown = {"ename": name, "evalue": first, "traceback": [f"\x1b[0;31m{name}\x1b[0m: {first}", *others]}
        self.publish("error", shown, request.header)
        content = {"status": "error", **shown, "execution_count": 0, "user_expressions": {}, "payload": []}
        self.reply(socket, request, content, _execution_metadata("error"))
        self.status("idle", request.header)

    def abort_cell(self, socket: Sends, request: Message) -> None:
        """A cell queued behind one that failed, answered as ipykernel's `_send_abort_reply` does."""
        self.status("busy", request.header)
        self.reply(socket, request, {"status": "aborted"}, _execution_metadata("aborted"))
        self.status("idle", request.header)


def _execution_metadata(status: str) -> Json:
    started = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"
    return {"started": started, "status": status}
