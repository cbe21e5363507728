"""Keeps the Secrets of all namespaces right: takes one after another from a queue, decides, does, retries.

Several threads, each with another namespace: what takes long is a program that asks the pool.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import (
    ApiError,
    ApiFailure,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
)
from bitfusion_cluster.api.events import Said
from bitfusion_cluster.api.paths import events_path
from bitfusion_cluster.leading.term import NotLeading
from bitfusion_cluster.watching.cache import Cache, Key
from bitfusion_cluster.watching.work_queue import WorkQueue
from bitfusion_device_plugin.identity import events, metrics
from bitfusion_device_plugin.identity.decisions import Decision, Step, decide
from bitfusion_device_plugin.identity.handed_out import HandedOutMap
from bitfusion_device_plugin.identity.limits import LimitRules, Limits, limits_text, namespace_limits
from bitfusion_device_plugin.identity.metrics import IdentityMetrics
from bitfusion_device_plugin.identity.namespace_secret import NamespaceSecret
from bitfusion_device_plugin.identity.quotas import NamespaceQuotas
from bitfusion_device_plugin.identity.records import Identity, NamespaceRecord, SecretRecord
from bitfusion_device_plugin.identity.secret_owner import SecretOwner
from bitfusion_device_plugin.identity.served import Profiles
from bitfusion_device_plugin.identity.sources import IdentitySource, NoIdentity, fingerprint_of
from bitfusion_device_plugin.identity.unread_secret import ProfileSecret, UnreadSecret

log = logging.getLogger(__name__)
EVERYTHING: Key = ("", "")
LOOK_AGAIN_S = 600.0
_LONGEST_WAIT_S = 86400.0
MOST_CHANGES, SETTLE_S = 2, 120.0
"""So many changes of its limits reach a namespace's token at once, and no more in so many seconds.

The pool keeps three secrets of a name in force, and pods see a new one after up to 90 s: a fourth would end
the secret that they have.
"""
NO_RIGHT = '" cannot '  # as the API server's authorizer words it; another 403 is admission's


@dataclass(frozen=True, slots=True)
class KeeperContext:
    """What the keeper works with; made once by the process.

    Attributes:
        own_namespace: Where the controller runs: it decides which manifest an administrator applies.
        replica: Reports Events.
        leading: Asked before every write.
        clock: Seconds since the epoch.
        profiles: The label of the namespaces that are served without a Role of theirs; None: none are.
    """

    api: KubernetesApi
    manager: str
    own_namespace: str
    source: IdentitySource
    rules: LimitRules
    metrics: IdentityMetrics
    replica: str
    leading: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.time
    profiles: Profiles | None = None


@dataclass(slots=True)
class _Known:
    """What is remembered of namespaces while this replica leads."""

    in_force: dict[str, frozenset[str]] | None = None
    issued: list[tuple[str, str]] = field(default_factory=list)
    """Namespaces and ids of tokens that were issued since the pool was last asked for all of them."""
    states: dict[str, str] = field(default_factory=dict)
    renewals: dict[str, float] = field(default_factory=dict)
    undelivered: dict[str, tuple[str, Identity]] = field(default_factory=dict)
    """Identities that were issued and could not be written, by namespace, and what they were made of."""
    told: dict[str, tuple[str, str]] = field(default_factory=dict)
    changes: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """When a token was replaced because its limits or the pool's files had changed; the last few."""


class Keeper:
    """Works off the queue during one term of leadership.

    Args:
        context: See there.
        namespaces: All that are served.
        quotas: What ResourceQuotas allow.
        queue: Keys of namespaces, as the cache has them; `EVERYTHING` for all and for what is left over.
    """

    def __init__(
        self,
        context: KeeperContext,
        namespaces: Cache[NamespaceRecord],
        quotas: NamespaceQuotas,
        queue: WorkQueue,
    ) -> None:
        self._context = context
        self._namespaces = namespaces
        self._quotas = quotas
        self._queue = queue
        self._secrets = _secrets(context)
        self._known = _Known()

    def work(self) -> None:
        """Until the queue is closed. The target of each thread."""
        self._queue.work_off(self.work_on)

    def look_at_everything(self) -> None:
        """Look at every namespace, and at names for which the pool has tokens. Raises NoIdentity."""
        for key in self._namespaces.known_keys():
            self._queue.add(key)
        self._queue.add(EVERYTHING, LOOK_AGAIN_S)
        known = self._known
        before = len(known.issued)
        found = self._context.source.in_force()
        in_force = None if found is None else dict(found)
        if in_force is not None:
            for name, token_id in known.issued[before:]:  # which the answer may not have yet
                in_force[name] = in_force.get(name, frozenset()) | {token_id}
        del known.issued[:before]
        known.in_force = in_force
        for name in {*(found or ()), *self._secrets.names()}:
            if self._namespaces.get("", name) is None:
                self._queue.add(("", name))

    def keep(self, name: str) -> Decision:
        """Do for one namespace what is to be done. Raises ApiFailure, NoIdentity, NotLeading."""
        context, namespace = self._context, self._namespaces.get("", name)
        if namespace is None:
            return self._let_go(name)
        if namespace.is_ending:  # nothing is asked for there any more, and nothing is due
            self._known.renewals.pop(name, None)
            return decide(namespace, None, "", None, context.clock())
        limits: Limits = {}
        if context.source.has_limits:
            quota = self._quotas.units(name)
            limits, problems = namespace_limits(dict(namespace.limits), context.rules, quota)
            if problems:
                self._tell(namespace, events.wrong_limits(problems))
        wanted = fingerprint_of([context.source.fingerprint(), limits_text(limits)])
        secret = self._secrets.read(name)
        known = None if self._known.in_force is None else self._known.in_force.get(name, frozenset())
        decision = decide(namespace, secret, wanted, known, context.clock())
        if decision.step is Step.LEAVE_FOREIGN:
            self._tell(namespace, events.foreign_secret(name))
            self._set_state(name, metrics.FOREIGN)
        elif decision.step is Step.NOTHING:
            self._set_state(name, metrics.READY, decision.again_at)
        elif decision.step is Step.UPDATE and secret is not None and secret.wanted != wanted:
            self._change(namespace, secret, wanted, limits, decision)
        else:
            self._write(namespace, secret, wanted, limits, decision)
        return decision

    # --- one namespace ---------------------------------------------------------------------------------

    def _change(
        self,
        namespace: NamespaceRecord,
        secret: SecretRecord,
        wanted: str,
        limits: Limits,
        decision: Decision,
    ) -> None:
        name, now = namespace.name, self._context.clock()
        recent = tuple(at for at in self._known.changes.get(name, ()) if now - SETTLE_S < at <= now)
        if len(recent) >= MOST_CHANGES:
            self._queue.add(namespace.key, recent[-MOST_CHANGES] + SETTLE_S - now)
            return
        self._write(namespace, secret, wanted, limits, decision)
        self._known.changes[name] = (*recent, now)

    def _write(
        self,
        namespace: NamespaceRecord,
        secret: SecretRecord | None,
        wanted: str,
        limits: Limits,
        decision: Decision,
    ) -> None:
        name, context = namespace.name, self._context
        identity = self._identity(name, secret, wanted, limits)
        self._check_leading()
        if secret is None:
            self._secrets.create(name, identity, wanted)
        else:
            self._secrets.update(name, secret, identity, wanted)
        self._known.undelivered.pop(name, None)
        context.metrics.steps.labels(decision.step.value, metrics.DONE).inc()
        log.info(
            "identity written",
            extra={"namespace": name, "reason": decision.why, "token": identity.token_id},
        )
        if identity.lowered:
            self._tell(namespace, events.limits_lowered(limits, identity.lowered))
        self._tell(namespace, events.ready(limits_text({**limits, **identity.lowered})))
        self._set_state(name, metrics.READY, identity.renew_at)

    def _identity(self, name: str, secret: SecretRecord | None, wanted: str, limits: Limits) -> Identity:
        """One that was issued before and could not be written, or a new one."""
        made_of, left = self._known.undelivered.get(name, ("", None))
        now = self._context.clock()
        if left is not None and made_of == wanted and (left.renew_at is None or now < left.renew_at):
            return left
        self._check_leading()
        identity = self._context.source.identity(name, limits, secret.token_id if secret else "")
        self._known.undelivered[name] = (wanted, identity)
        if identity.token_id:
            self._known.issued.append((name, identity.token_id))
            in_force = self._known.in_force
            if in_force is not None:
                in_force[name] = in_force.get(name, frozenset()) | {identity.token_id}
        return identity

    def _let_go(self, name: str) -> Decision:
        """It was opted out, or is gone: our Secret goes first, then the token."""
        secret = None
        try:
            secret = self._secrets.read(name)
        except (Forbidden, NotFound):
            pass  # the Role went first, or the whole namespace; the token's end makes it worthless
        decision = decide(None, secret, "", None, self._context.clock())
        self._check_leading()
        if decision.step is Step.REMOVE and secret is not None:
            self._secrets.delete(name, secret)
            self._context.metrics.steps.labels(Step.REMOVE.value, metrics.DONE).inc()
        count = self._context.source.revoke(name)
        if count:
            self._context.metrics.steps.labels(Step.REVOKE.value, metrics.DONE).inc()
        if count or decision.step is Step.REMOVE:
            log.info(
                "identity taken back", extra={"namespace": name, "reason": decision.why, "tokens": count}
            )
        self._secrets.forget(name)
        known = self._known
        for kept in (
            *(known.states, known.renewals, known.undelivered, known.told, known.changes),
            known.in_force or {},
        ):
            kept.pop(name, None)
        self._show()
        return decision

    # --- the loop --------------------------------------------------------------------------------------

    def work_on(self, key: Key) -> None:
        """One key: do what is to be done, tell what cannot be, and look again later. Never raises."""
        name = key[1]
        try:
            if key == EVERYTHING:
                self.look_at_everything()
            else:
                self._look_again(key, self.keep(name))
            self._queue.forget(key)
        except NotLeading:
            self._queue.retry(key)
        except Conflict as error:
            self._context.metrics.steps.labels("write", metrics.CONFLICT).inc()
            self._retry(key, str(error), logging.DEBUG)
        except Forbidden as error:
            if NO_RIGHT in error.message:
                event = events.role_missing(name, self._context.own_namespace)
                self._fail(key, metrics.NO_ROLE, str(error), event)
            else:
                self._fail(key, metrics.FAILED, str(error), events.refused(error.message))
        except Invalid as error:
            self._fail(key, metrics.FAILED, str(error), events.refused(error.message))
        except NoIdentity as error:
            self._fail(key, metrics.NO_TOKEN, str(error), events.no_token(str(error)))
        except ApiFailure as error:
            self._fail(key, metrics.FAILED, str(error), None)
        except Exception as error:  # one namespace's bug must not end the thread
            log.exception("identity not kept", extra={"namespace": name})
            self._fail(key, metrics.FAILED, str(error), None)

    def _look_again(self, key: Key, decision: Decision) -> None:
        renewal = self._known.renewals.get(key[1])
        if renewal is not None:
            self._queue.add(key, min(_LONGEST_WAIT_S, max(0.1, renewal - self._context.clock())))

    def _fail(self, key: Key, state: str, why: str, event: Said | None) -> None:
        self._context.metrics.steps.labels("look", metrics.ERROR).inc()
        namespace = self._namespaces.get(*key)
        if namespace is not None:
            self._set_state(key[1], state)
            if event is not None:
                self._tell(namespace, event)
        extra = {"cure": event.message} if state == metrics.NO_ROLE and event is not None else {}
        self._retry(key, why, logging.WARNING, **extra)

    def _retry(self, key: Key, why: str, level: int, **extra: str) -> None:
        wait_s = self._queue.retry(key)
        what = {"namespace": key[1], "reason": why, "wait_s": round(wait_s, 1), **extra}
        log.log(level, "namespace will be examined again", extra=what)

    def _set_state(self, name: str, state: str, renewal: float | None = None) -> None:
        known = self._known
        known.states[name] = state
        if state == metrics.READY:
            known.renewals.pop(name, None)
        if renewal is not None:
            known.renewals[name] = renewal
        self._show()

    def _show(self) -> None:
        known = self._known
        self._context.metrics.show(known.states, min(list(known.renewals.values()), default=0.0))

    def _tell(self, namespace: NamespaceRecord, event: Said) -> None:
        """Create an Event, unless the namespace was told the same last; that it fails harms nobody."""
        said = (event.reason, event.message)
        if self._known.told.get(namespace.name) == said:
            return
        body = events.event_body(namespace, event, self._context.replica)
        try:
            self._context.api.create(events_path(namespace.name), body)
        except Conflict:
            pass  # said before
        except ApiFailure as error:
            level = logging.DEBUG if isinstance(error, ApiError) and error.status == 404 else logging.WARNING
            log.log(level, "event not written", extra={"namespace": namespace.name, "error": str(error)})
            return
        self._known.told[namespace.name] = said

    def _check_leading(self) -> None:
        if not self._context.leading():
            raise NotLeading


def _secrets(context: KeeperContext) -> NamespaceSecret | ProfileSecret:
    owner = SecretOwner(context.api, context.manager)
    by_role = NamespaceSecret(context.api, context.manager, owner)
    if context.profiles is None:
        return by_role
    noted = HandedOutMap(context.api, context.own_namespace, context.manager)
    return ProfileSecret(by_role, UnreadSecret(context.api, context.manager, owner, noted))
