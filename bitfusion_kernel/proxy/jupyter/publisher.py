"""What the proxy itself publishes on iopub: status, welcome, displays, streams, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitfusion_kernel.protocol.wire import Wire

Json = dict[str, Any]


if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class PublishingSocket(Protocol):
        """The methods of a zmq XPUB that are used here."""

        def send_multipart(self, msg_parts: list[bytes]) -> Any:
            """Send one message."""

        def recv(self) -> bytes:
            """The next subscription: one byte, 1 for a new one or 0 for one that ends, then the topic."""

        def close(self, linger: int | None = None) -> None:
            """Close the socket; `linger`: milliseconds for the last messages to leave."""


class Publisher:
    """Publishes on the clients' iopub, or on the inlet of the output relay once the kernel is connected."""

    def __init__(self, wire: Wire, iopub: PublishingSocket) -> None:
        self._wire = wire
        self._iopub = iopub
        self._busy_with: Json | None = None

    def stay_busy_with(self, parent: Json | None) -> None:
        """Until None is given the kernel is busy with this request, whatever is answered beside it.

        Clients show the state that was said last: without this a cell that waits looks idle as soon as
        something else is answered, or to a page that was reloaded.
        """
        self._busy_with = parent

    def move_to(self, iopub: PublishingSocket) -> None:
        """Publish on another socket from now on."""
        self._iopub = iopub

    def close(self) -> None:
        """Publish nothing more; what has been published still leaves."""
        self._iopub.close(linger=500)

    def publish(self, message_type: str, content: Json, parent: Json | None = None) -> None:
        """One message; `parent` is the header of the request it belongs to."""
        topic = f"kernel.bitfusion.{message_type}".encode()
        self.relay(self._wire.build(message_type, content, parent=parent, identities=[topic]))

    def relay(self, frames: list[bytes]) -> None:
        """Publish a message of the kernel as it came."""
        self._iopub.send_multipart(frames)

    def status(self, state: str, parent: Json | None = None) -> None:
        """The kernel's execution state: `starting`, `busy`, `idle`."""
        self.publish("status", {"execution_state": state}, parent)
        if state == "idle" and self._busy_with is not None:
            self.publish("status", {"execution_state": "busy"}, self._busy_with)

    def welcome_subscriber(self) -> None:
        """Read one subscription; greet a new subscriber as ipykernel does since 7.0 (JEP 65).

        A cell that waits is told to it.
        """
        subscription = self._iopub.recv()
        if subscription[:1] != b"\x01":
            return
        topic = subscription[1:]
        content = {"subscription": topic.decode("utf-8", "replace")}
        identities = [topic] if topic else []
        self.relay(self._wire.build("iopub_welcome", content, identities=identities))
        if self._busy_with is not None:
            self.status("busy", self._busy_with)

    def display(self, data: Mapping[str, Any], display_id: str, parent: Json, *, update: bool) -> None:
        """Show a MIME bundle, or replace the one shown under the same id."""
        kind = "update_display_data" if update else "display_data"
        self.publish(kind, {"data": data, "metadata": {}, "transient": {"display_id": display_id}}, parent)

    def show(self, data: Mapping[str, Any], parent: Json) -> None:
        """A MIME bundle that stays."""
        self.publish("display_data", {"data": data, "metadata": {}, "transient": {}}, parent)

    def clear(self, parent: Json) -> None:
        """Remove the cell's outputs now; nothing of a wait is left in the notebook file."""
        self.publish("clear_output", {"wait": False}, parent)

    def stream(self, text: str, parent: Json, name: str = "stdout") -> None:
        """Text output."""
        self.publish("stream", {"name": name, "text": text}, parent)

    def error(self, name: str, value: str, traceback: list[str], parent: Json) -> None:
        """An exception, as a cell shows it."""
        self.publish("error", {"ename": name, "evalue": value, "traceback": traceback}, parent)
