"""What the tests of outages look at: our annotations, our Events, and the number of requests of a replica."""

from __future__ import annotations

from tests.cluster.notebooks import Room
from tests.cluster.our_controller import OurController

MANAGEMENT, OS, VERSION = "auto-management/bitfusion", "bitfusion-client/os", "bitfusion-client/version"
REQUEST, PENDING, LABEL = "bitfusion.io/request", "bitfusion.io/pending", "bitfusion.io/requested"
CLIENT = {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}
TWO = {"bitfusion.io/gpu-amount": "2"}


def ours_of(annotations: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if "bitfusion" in name}


def notes(room: Room, name: str = "mine") -> dict[str, str]:
    return ours_of(room.notebook(name)["metadata"].get("annotations") or {})


def template(room: Room, name: str = "mine") -> dict[str, str]:
    return ours_of(room.template_annotations(name))


def told(room: Room, name: str) -> list[str]:
    """The reasons of the Events on a notebook that are ours."""
    listed = room.client.get(f"/api/v1/namespaces/{room.namespace}/events")["items"]
    return sorted(
        event["reason"]
        for event in listed
        if event["involvedObject"]["name"] == name and event["reason"].startswith("Bitfusion")
    )


def say(text: str) -> None:
    print(f"\noutage: {text}")


class Asked:
    """How many requests a replica that runs as a process has sent, by its own metrics."""

    def __init__(self, controller: OurController) -> None:
        self._controller = controller
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        return {
            **self._controller.metrics("bitfusion_watch_queries_total"),
            **self._controller.metrics("bitfusion_reconcile_actions_total"),
        }

    def since(self, prefix: str = "bitfusion_") -> int:
        now = self._now()
        return round(sum(now[name] - self._before.get(name, 0) for name in now if name.startswith(prefix)))
