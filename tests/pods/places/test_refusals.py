"""A pod that the API server does not take: what passes, what the person must do, in which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pods.places.refusals import (
    BUSY,
    ERROR,
    EXISTS,
    POLICY,
    QUOTA,
    REFUSED,
    RETRY,
    RIGHTS,
    SECRET,
    WAITS,
    refusal_of,
)

POD = 'pods "nb-0-gpu-x7k2q" is forbidden: '


def quota(requested: str, used: str, limited: str) -> str:
    return f"{POD}exceeded quota: kf-resource-quota, requested: {requested}, used: {used}, limited: {limited}"


GPU_KEY = "requests.nvidia.com/gpu"
GPU = quota(f"{GPU_KEY}=1", f"{GPU_KEY}=2", f"{GPU_KEY}=2")
CPU = quota("requests.cpu=4", "requests.cpu=14", "requests.cpu=16")
BOTH = quota(f"requests.cpu=4,{GPU_KEY}=1", f"requests.cpu=14,{GPU_KEY}=2", f"requests.cpu=16,{GPU_KEY}=2")
GPUS_USED = "2 of 2 GPUs are in use"
CPUS_USED = "14 of 16 requests.cpu are in use, 4 more requested"


@pytest.mark.parametrize(
    ("message", "ours_hold", "kind", "words"),
    [
        (GPU, False, WAITS, GPUS_USED),
        (CPU, False, ERROR, CPUS_USED),
        (CPU, True, WAITS, CPUS_USED),
        (BOTH, False, ERROR, f"{CPUS_USED}; {GPUS_USED}"),
        (BOTH, True, WAITS, f"{CPUS_USED}; {GPUS_USED}"),
        # more than there will ever be
        (quota(f"{GPU_KEY}=4", f"{GPU_KEY}=0", f"{GPU_KEY}=2"), True, ERROR, "4 GPUs requested, 2 allowed"),
        (quota(f"{GPU_KEY}=1", f"{GPU_KEY}=0", f"{GPU_KEY}=0"), True, ERROR, "1 GPU requested, 0 allowed"),
        (
            quota("limits.memory=64Gi", "limits.memory=0", "limits.memory=65535Mi"),
            True,
            ERROR,
            "64Gi limits.memory requested, 65535Mi allowed",
        ),
        (quota("pods=1", "pods=10", "pods=10"), True, WAITS, "10 of 10 pods are in use, 1 more requested"),
        # somebody else's, whatever we hold
        (
            quota("requests.storage=1Gi", "requests.storage=1Gi", "requests.storage=1Gi"),
            True,
            ERROR,
            "1Gi of 1Gi requests.storage are in use, 1Gi more requested",
        ),
    ],
)
def test_a_quota_waits_only_on_what_gpu_pods_give_back(
    message: str, ours_hold: bool, kind: str, words: str
) -> None:
    found = refusal_of(403, "Forbidden", message, ours_hold=ours_hold)
    assert (found.kind, found.words) == (kind, f"quota kf-resource-quota: {words}")
    assert found.reason == QUOTA
    assert bool(found.next_step) == (kind == ERROR)


def test_a_quota_that_cannot_be_read_is_an_error_in_its_own_words() -> None:
    found = refusal_of(403, "Forbidden", f"{POD}exceeded quota: x", ours_hold=True)
    assert (found.kind, found.words, found.reason) == (ERROR, "exceeded quota: x", QUOTA)


def test_only_the_rules_own_resources_are_gpus() -> None:
    key = "requests.nvidia.com/mig-1g.5gb"
    mig = quota(f"{key}=1", f"{key}=7", f"{key}=7")
    assert refusal_of(403, "Forbidden", mig).kind == ERROR
    assert refusal_of(403, "Forbidden", mig, gpus=("nvidia.com/mig-1g.5gb",)).kind == WAITS


SECRET_ONE = 'secrets "nb-0-gpu-x7k2q" is forbidden: '


@pytest.mark.parametrize(
    ("status", "message", "kind", "words", "cure"),
    [
        (
            403,
            'secrets is forbidden: User "system:serviceaccount:alice:default-viewer" cannot create resource '
            '"secrets" in API group "" in the namespace "alice"',
            ERROR,
            "this notebook may not create secrets in the namespace alice: its service account "
            '"default-viewer" has no such right',
            "for the right to create Secrets there, in a Kubeflow profile the role kubeflow-edit for "
            "alice:default-viewer",
        ),
        (
            403,
            f"{SECRET_ONE}exceeded quota: q, requested: count/secrets=1, used: count/secrets=9, limited: "
            "count/secrets=9",
            ERROR,
            "quota q: 9 of 9 count/secrets are in use, 1 more requested",
            "larger quota (q)",
        ),
        (
            403,
            f"{SECRET_ONE}ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no Secrets here",
            ERROR,
            "the policy p refuses the pod's Secret: no Secrets here",
            "what the policy p requires",
        ),
        (
            422,
            'Secret "nb-0-gpu-x7k2q" is invalid: data: Too long: may not be more than 1048576 bytes',
            ERROR,
            'the cluster refuses the pod\'s Secret: Secret "nb-0-gpu-x7k2q" is invalid: data: Too long: may '
            "not be more than 1048576 bytes",
            "ask your administrator",
        ),
        (
            409,
            'secrets "nb-0-gpu-x7k2q" already exists',
            RETRY,
            "a pod's Secret of this name already exists",
            "",
        ),
        (500, "etcd", RETRY, "the cluster's API is busy (500): etcd", ""),
    ],
)
def test_a_secret_that_is_not_taken_is_told_as_such(
    status: int, message: str, kind: str, words: str, cure: str
) -> None:
    found = refusal_of(status, "", message, ours_hold=True, kind=SECRET)
    assert (found.kind, found.words) == (kind, words)
    assert cure in found.next_step


SERVICE_ACCOUNT = (
    'pods is forbidden: User "system:serviceaccount:alice:default-viewer" cannot create resource '
    '"pods" in API group '
    '"" in the namespace "alice"'
)


@pytest.mark.parametrize(
    ("status", "reason", "message", "why", "words", "cure"),
    [
        (
            403,
            "Forbidden",
            SERVICE_ACCOUNT,
            RIGHTS,
            "this notebook may not create pods in the namespace alice: its service account "
            '"default-viewer" has no such right',
            "kubeflow-edit for alice:default-viewer",
        ),
        (
            403,
            "Forbidden",
            'pods is forbidden: User "ann" cannot create resource "pods" in API group "" in the '
            'namespace "a;rm"',
            RIGHTS,
            'this notebook may not create pods in the namespace a;rm: its user "ann" has no such right',
            "right to make pods there.",
        ),
        (
            401,
            "Unauthorized",
            "Unauthorized",
            RIGHTS,
            "the cluster does not accept this pod's service account",
            "restart the notebook's pod",
        ),
        (
            403,
            "Forbidden",
            f'{POD}violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
            '(container "program" '
            "must set securityContext.allowPrivilegeEscalation=false)",
            POLICY,
            "the namespace's Pod Security (restricted:latest) refuses the pod: "
            "allowPrivilegeEscalation != false "
            '(container "program" must set securityContext.allowPrivilegeEscalation=false)',
            "security context",
        ),
        (
            403,
            "Forbidden",
            f"{POD}[maximum cpu usage per Container is 2, but limit is 4, maximum memory usage per "
            "Pod is 4Gi, but limit is 8589934592]",
            POLICY,
            "the namespace's LimitRange refuses the pod: maximum cpu usage per Container is 2, but "
            "limit is 4, "
            "maximum memory usage per Pod is 4Gi, but limit is 8589934592",
            "settings",
        ),
        (
            403,
            "Forbidden",
            f"{POD}failed quota: q: must specify limits.cpu for: program; limits.memory for: program",
            POLICY,
            "a quota requires each container to state what it needs: q: must specify limits.cpu for: "
            "program; "
            "limits.memory for: program",
            "must set these",
        ),
        (
            400,
            "",
            'admission webhook "vpod.kb.io" denied the request: spec.schedulingGates: may not be set',
            POLICY,
            "the admission webhook vpod.kb.io refuses the pod: spec.schedulingGates: may not be set",
            "vpod.kb.io",
        ),
        (
            403,
            "Forbidden",
            'admission webhook "x.example.com" denied the request without explanation',
            POLICY,
            "the admission webhook x.example.com refuses the pod: no reason given",
            "x.example.com",
        ),
        (
            422,
            "Invalid",
            f"{POD}ValidatingAdmissionPolicy 'gpus' with binding 'profiles' denied request: GPU pods "
            "queue here",
            POLICY,
            "the policy gpus refuses the pod: GPU pods queue here",
            "the policy gpus",
        ),
        (
            422,
            "Invalid",
            'Pod "x" is invalid: spec.containers[0].image: Required value',
            REFUSED,
            'the cluster refuses the pod: Pod "x" is invalid: spec.containers[0].image: Required value',
            "administrator",
        ),
        (
            403,
            "Forbidden",
            f"{POD}error looking up service account alice/default-editor: serviceaccount "
            '"default-editor" not found',
            REFUSED,
            "the cluster refuses the pod: error looking up service account alice/default-editor: "
            'serviceaccount "default-editor" not found',
            "administrator",
        ),
        (418, "", "", REFUSED, "the cluster refuses the pod: HTTP 418", "administrator"),
    ],
)
def test_what_the_person_must_do_something_about_is_an_error(
    status: int, reason: str, message: str, why: str, words: str, cure: str
) -> None:
    found = refusal_of(status, reason, message)
    assert (found.kind, found.reason, found.words) == (ERROR, why, words)
    assert cure in found.next_step


@pytest.mark.parametrize(
    ("status", "reason", "message", "why", "words"),
    [
        (409, "AlreadyExists", 'pods "x" already exists', EXISTS, "a pod of this name already exists"),
        (
            409,
            "Conflict",
            'Operation cannot be fulfilled on resourcequotas "q": the object has been modified',
            BUSY,
            "the cluster was changing an object that this needs",
        ),
        (
            403,
            "Forbidden",
            f"{POD}status unknown for quota: q, resources: pods",
            BUSY,
            "quota is being counted",
        ),
        (
            500,
            "InternalError",
            'Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: Post '
            '"https://kueue-webhook-service.kueue-system.svc:443/mutate": dial tcp 10.0.0.7:443: '
            "connect: connection refused",
            BUSY,
            "the admission webhook mpod.kb.io does not answer",
        ),
        (429, "TooManyRequests", "too many requests, please try again later", BUSY, "busy (429)"),
        (503, "", "", BUSY, "busy (503): no reason given"),
        (0, "", "[Errno 111] Connection refused", BUSY, "the cluster's API does not answer: [Errno 111]"),
    ],
)
def test_what_passes_is_tried_again(status: int, reason: str, message: str, why: str, words: str) -> None:
    found = refusal_of(status, reason, message)
    assert (found.kind, found.reason) == (RETRY, why)
    assert words in found.words


pieces = st.sampled_from(
    [
        POD,
        "exceeded quota: ",
        ", requested: ",
        ", used: ",
        ", limited: ",
        "cpu=1e999",
        "=",
        ",",
        'User "',
        '" cannot ',
        "violates PodSecurity ",
        " denied ",
        "admission webhook ",
        "1" * 5000,
    ]
)


@given(
    st.integers(), st.text(), st.lists(pieces | st.text(max_size=5), max_size=15).map("".join), st.booleans()
)
def test_any_answer_is_told_in_one_short_line(
    status: int, reason: str, message: str, ours_hold: bool
) -> None:
    found = refusal_of(status, reason, message, ours_hold=ours_hold)
    assert 0 < len(found.words) <= 200
    assert found.words.isprintable()
    assert found.next_step.isprintable()
