"""A pod or its Secret that the API server does not take: whether that passes, and what it wants. Pure.

The forms are those of kubernetes 1.34: apiserver/pkg/admission/plugin/resourcequota/controller.go,
plugin/pkg/admission/limitranger/admission.go, pod-security-admission/admission/admission.go,
apiserver/pkg/endpoints/handlers/responsewriters/errors.go (rights), …/plugin/policy/validating/dispatcher.go,
…/plugin/webhook/errors/statuserror.go.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.one_line import one_line
from bitfusion_client.request.quantities import parse_quantity
from bitfusion_pods.places.statuses import LONGEST_READ, name_of, words

if TYPE_CHECKING:
    from collections.abc import Sequence

WAITS, RETRY, ERROR = "waits", "retry", "error"

QUOTA = "quota"
RIGHTS = "rights"
POLICY = "policy"
EXISTS = "exists"
BUSY = "busy"
REFUSED = "refused"
"""Reasons of a Refusal: a ResourceQuota; no right; Pod Security, LimitRange, policy or webhook; there is one
of that name; the API server or a webhook cannot answer now; anything else."""

ALREADY_EXISTS = "AlreadyExists"
"""Kubernetes' word, which alone of all a 409 may mean tells that there is such an object."""

POD, SECRET = "pod", "pod's Secret"
"""What was to be made."""

_ASK = "ask your administrator"
_COMPUTE = ("cpu", "memory", "ephemeral-storage", "pods", "count/pods")
_QUOTA = "exceeded quota: "


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why it was not made.

    Attributes:
        kind: `WAITS`: ask again when somebody has given back; `RETRY`: soon; `ERROR`: the person must do
            something.
        words: One line.
        next_step: What to do; empty where it waits. Of `RETRY`: what to do where it does not pass within a
            minute; empty where it is no more than the API server itself, for which one waits.
        reason: Which sort of refusal.
    """

    kind: str
    words: str
    next_step: str = ""
    reason: str = REFUSED


def refusal_of(
    status: int,
    reason: str,
    message: str,
    gpus: Sequence[str] = ("nvidia.com/gpu",),
    ours_hold: bool = False,
    kind: str = POD,
) -> Refusal:
    """What the answer to the creation of a pod or its Secret means.

    Args:
        status: Of HTTP; 0 if there was no answer.
        reason: ``reason`` of the Status object; may be empty.
        message: Its ``message``, of any length, or what was answered instead.
        gpus: Names of the resources by which the pod asks for GPUs.
        ours_hold: Whether GPU pods of any notebook hold CPU and memory in this namespace, so that a quota
            of those is given back with them.
        kind: `POD` or `SECRET`.
    """
    said = one_line(message[:LONGEST_READ], LONGEST_READ)
    core = said.partition(" is forbidden: ")[2] if said.startswith(("pods ", "secrets ")) else said
    core = core or said
    if status == 403 and core.startswith(_QUOTA):
        return _quota(core, gpus, ours_hold)
    for known in (_policy, _rights, _busy):
        found = known(status, reason, core, kind)
        if found is not None:
            return found
    return Refusal(ERROR, words(f"the cluster refuses the {kind}: {core or f'HTTP {status}'}"), f"{_ASK}.")


# -- quota -------------------------------------------------------------------------------------------------


def _quota(core: str, gpus: Sequence[str], ours_hold: bool) -> Refusal:
    name, lists = _quota_lists(core)
    waits = bool(lists)
    parts = []
    for key, (requested, used, limited) in lists.items():
        known = key.removeprefix("requests.").removeprefix("limits.")
        is_gpu = known in gpus
        fits = _fits(requested, limited)
        waits = waits and fits and (is_gpu or (ours_hold and known in _COMPUTE))
        shown = name_of(key) if not is_gpu else "GPU" if requested == "1" and not fits else "GPUs"
        if fits:
            parts.append(
                f"{used} of {limited} {shown} are in use"
                + (f", {requested} more requested" if not is_gpu else "")
            )
        else:
            parts.append(f"{requested} {shown} requested, {limited} allowed")
    said = words(f"quota {name}: {'; '.join(parts)}" if parts else core)
    if waits:
        return Refusal(WAITS, said, reason=QUOTA)
    cure = f"request less, end something in this namespace, or {_ASK} for a larger quota ({name})."
    return Refusal(ERROR, said, cure, QUOTA)


def _quota_lists(core: str) -> tuple[str, dict[str, tuple[str, str, str]]]:
    """The quota's name, and of each key what was requested, used and limited."""
    name, _, rest = core.removeprefix(_QUOTA).partition(", requested: ")
    requested, _, rest = rest.partition(", used: ")
    used, _, limited = rest.partition(", limited: ")
    columns = [
        dict(pair.split("=", 1) for pair in half.split(",") if "=" in pair)
        for half in (requested, used, limited)
    ]
    first = columns[0]
    return name_of(name), {
        key: (
            name_of(value),
            name_of(columns[1].get(key, "")) or "?",
            name_of(columns[2].get(key, "")) or "?",
        )
        for key, value in list(first.items())[:20]
    }


def _fits(requested: str, limited: str) -> bool:
    """Whether so much could be given at all; where it cannot be read, it could."""
    try:
        (up, below), (most, part) = parse_quantity(requested), parse_quantity(limited)
    except ValueError:
        return True
    return up * part <= most * below


# -- policies ----------------------------------------------------------------------------------------------


def _policy(status: int, reason: str, core: str, kind: str) -> Refusal | None:
    if core.startswith("violates PodSecurity "):
        level = name_of(core.partition('"')[2].partition('"')[0])
        rest = core.partition(": ")[2]
        said = f"the namespace's Pod Security ({level}) refuses the pod: {rest}"
        cure = f"{_ASK}: its GPU pod gets the notebook's security context."
        return Refusal(ERROR, words(said), cure, POLICY)
    if " usage per " in core or " max limit to request ratio per " in core:
        said = f"the namespace's LimitRange refuses the pod: {core.strip('[]')}"
        return Refusal(
            ERROR, words(said), f"{_ASK}: the CPU and memory of a GPU pod are in its settings.", POLICY
        )
    if core.startswith("failed quota: "):
        said = (
            f"a quota requires each container to state what it needs: {core.removeprefix('failed quota: ')}"
        )
        return Refusal(ERROR, words(said), f"{_ASK}: the rule for GPU pods must set these.", POLICY)
    for beginning in ("admission webhook ", "ValidatingAdmissionPolicy ", "policy "):
        denied = core.partition(" denied ")
        if core.startswith(beginning) and denied[1]:
            name = name_of(
                denied[0].removeprefix(beginning).replace("'", '"').partition('"')[2].partition('"')[0]
            )
            what = "the admission webhook" if beginning.startswith("adm") else "the policy"
            why = denied[2].partition(": ")[2] or "no reason given"
            cure = f"{_ASK} what {what} {name} requires of GPU pods."
            return Refusal(ERROR, words(f"{what} {name} refuses the {kind}: {why}"), cure, POLICY)
    return None


# -- rights ------------------------------------------------------------------------------------------------


def _rights(status: int, reason: str, core: str, kind: str) -> Refusal | None:
    if status == 401:
        said = "the cluster does not accept this pod's service account"
        return Refusal(ERROR, said, f"restart the notebook's pod; if that does not help, {_ASK}.", RIGHTS)
    if status != 403 or not core.startswith('User "') or '" cannot ' not in core:
        return None
    user = core.removeprefix('User "').partition('" cannot ')[0]
    namespace = name_of(core.partition('in the namespace "')[2].partition('"')[0])
    verb = name_of(core.partition('" cannot ')[2].partition(" ")[0])
    what = name_of(core.partition('resource "')[2].partition('"')[0]) or "this"
    account = user.removeprefix("system:serviceaccount:").partition(":")
    shown = f'service account "{name_of(account[2])}"' if account[2] else f'user "{name_of(user)}"'
    said = f"this notebook may not {verb} {what} in the namespace {namespace}: its {shown} has no such right"
    cure = f"{_ASK} for the right to {'make pods' if kind == POD else 'create Secrets'} there"
    if account[2] and _is_plain(account[0]) and _is_plain(account[2]) and _is_plain(namespace):
        cure += f", in a Kubeflow profile the role kubeflow-edit for {account[0]}:{account[2]}"
    return Refusal(ERROR, words(said), cure + ".", RIGHTS)


def _is_plain(name: str) -> bool:
    return 0 < len(name) <= 63 and name.isascii() and name.replace("-", "").replace(".", "").isalnum()


# -- what passes -------------------------------------------------------------------------------------------


def _busy(status: int, reason: str, core: str, kind: str) -> Refusal | None:
    if status == 409:
        if reason == ALREADY_EXISTS or core.endswith("already exists"):
            return Refusal(RETRY, f"a {kind} of this name already exists", reason=EXISTS)
        return Refusal(
            RETRY, words(f"the cluster was changing an object that this needs: {core}"), reason=BUSY
        )
    if core.startswith("status unknown for quota: "):
        cure = f"{_ASK}: the cluster's kube-controller-manager should count quotas, but does not."
        return Refusal(RETRY, "the namespace's quota is being counted", cure, BUSY)
    if 'failed calling webhook "' in core:
        name = name_of(core.partition('failed calling webhook "')[2].partition('"')[0])
        said = f"the admission webhook {name} does not answer"
        return Refusal(RETRY, words(said), f"{_ASK} about the program that serves {name}.", BUSY)
    if status == 0:
        return Refusal(RETRY, words(f"the cluster's API does not answer: {core}"), reason=BUSY)
    if status == 429 or status >= 500:
        return Refusal(
            RETRY, words(f"the cluster's API is busy ({status}): {core or 'no reason given'}"), reason=BUSY
        )
    return None
