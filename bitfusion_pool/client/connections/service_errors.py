"""The errors of a service that is away, refuses, or is none; in words that name its place and what to do."""

from __future__ import annotations

from bitfusion_client.errors import ClientFailed, PoolUnreadable, TokenExpired
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line, words_of
from bitfusion_pool.messages.refusal_codes import ERRORS, WRONG_TOKEN

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.messages.from_service import Refused

OWN_INSTEAD = "for simulated GPUs of your own set BITFUSION_POOL=own"
_EXPIRED = "Token expired at: "  # how a service, and the real client, say so


class ServiceAway(PoolUnreadable):
    """Nobody answers at the place, or no longer: the same may succeed once the service can be reached again.

    `reason` is what was found, without the place: ``connection refused``.
    """

    reason = ""


def gone(place: str, why: object) -> ServiceAway:
    """The error for a service that hung up."""
    reason = words_of(why)
    return _away(
        reason,
        f"pool service at {place} has gone: {reason}",
        f"try again; if that does not help, ask {administrator(place)} to start it, or {OWN_INSTEAD}",
    )


def slow(place: str, seconds: float) -> ServiceAway:
    """The error for a service that says nothing for so long."""
    reason = f"no answer in {seconds:g} s"
    return _away(
        reason,
        f"pool service at {place} gave {reason}",
        f"try again; if that does not help, ask {administrator(place)} to look at it, or {OWN_INSTEAD}",
    )


def not_reached(place: str, why: str) -> ServiceAway:
    """The error for a place where nobody takes a connection."""
    return _away(
        why,
        f"pool service at {place} cannot be reached: {why}",
        f"check the network and servers.conf; ask {administrator(place)} whether it runs; or {OWN_INSTEAD}",
    )


def nonsense(place: str, why: object) -> PoolUnreadable:
    """The error for what is no message."""
    where = "BITFUSION_POOL" if place.startswith("/") else "servers.conf"
    return PoolUnreadable(
        "",
        f"pool service at {place} does not speak as a pool's service does: {why}",
        f"check which program listens there, and {where}; or {OWN_INSTEAD}",
    )


def refused(place: str, refusal: Refused, asked: GpuRequest | str = "") -> BitfusionError:
    """The error for a service that does not do what was `asked`, or does not take this client."""
    message, next_step = one_line(refusal.message), one_line(refusal.next_step)
    if refusal.code == WRONG_TOKEN and message.startswith(_EXPIRED):
        return TokenExpired("", message, next_step)
    kind = ERRORS.get(refusal.code)
    if kind is not None:
        return kind("" if kind is ClientFailed else asked, message, next_step)
    return PoolUnreadable(
        "",
        f"pool service at {place} refuses this: {message}",
        next_step or f"ask {administrator(place)}, or {OWN_INSTEAD}",
    )


def administrator(place: str) -> str:
    """Whom to ask: sockets are of this machine."""
    return "this machine's administrator" if place.startswith("/") else "the pool's administrator"


def _away(reason: str, answered: str, next_step: str) -> ServiceAway:
    error = ServiceAway("", answered, next_step)
    error.reason = reason
    return error
