"""The identity controller on a real API server, with a real service of a pool and the manifests' rights."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Alive
from bitfusion_pool.messages.from_service import Granted, Refused
from tests.bitfusion_device_plugin.identity.running_identity import (
    SECRET,
    RunningIdentity,
    files,
    home_of,
    running_identity,
    token_id,
    token_in,
)
from tests.cluster.cluster import Cluster
from tests.cluster.quota import until_quota_refuses
from tests.manifests.queue_installed import asking_pod
from tests.pool.pool_client import COMMAND
from tests.pool.service.tls_client import half, refusal
from tests.support.files import replace_text
from tests.support.machine import scaled
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def identity(cluster: Cluster) -> Iterator[RunningIdentity]:
    with running_identity(cluster, "--most-gpus=2", "--default-gpus=1") as running:
        yield running


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    return cluster.new_namespace(prefix="team")


def test_a_namespace_that_is_opted_in_uses_the_pool_within_its_limit(
    identity: RunningIdentity, namespace: str, tmp_path: Path
) -> None:
    identity.opt_in(namespace)
    secret = identity.until_secret(namespace)
    listed = subprocess.run(
        [COMMAND, "list_gpus"],
        env=home_of(secret, tmp_path),
        capture_output=True,
        text=True,
        timeout=scaled(20),
    )
    assert "GPU 0: free memory 16160 MiB / 16160 MiB (Simulated" in listed.stdout
    token = token_in(secret)
    with identity.pool.remote(token) as first, identity.pool.remote(token) as second:
        granted = first.ask(half(), Granted)
        assert granted.entry.holder.user == f"cluster/{namespace}"
        assert refusal(second, half()).code == refusal_codes.OVER_LIMIT
        first.release(granted)
    assert "Limits: gpus 1." in identity.until_event(namespace, "Ready")
    wait_until(lambda: identity.metric('bitfusion_identity_namespaces{state="ready"}') >= 1)


def test_limits_are_those_of_the_annotations_and_at_most_the_administrators(
    identity: RunningIdentity, namespace: str
) -> None:
    identity.opt_in(namespace, annotations={"bitfusion.io/limit-gpus": "2"})
    first = token_id(identity.until_secret(namespace))
    assert "Limits: gpus 2." in identity.until_event(namespace, "Ready")
    identity.opt_in(
        namespace, role=False, annotations={"bitfusion.io/limit-gpus": "9", "bitfusion.io/limit-share": "0.5"}
    )
    identity.until_secret(namespace, but=first)
    words = identity.until_event(namespace, "WrongLimits")
    assert words == "bitfusion.io/limit-gpus is 9, and at most 2 is allowed"


def test_a_quota_is_the_tokens_limit_and_a_change_reaches_every_token_within_seconds(
    identity: RunningIdentity, namespace: str, tmp_path: Path
) -> None:
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"requests.bitfusion.io/gpu": "100"}
    identity.cluster.client.create(quotas, {"metadata": {"name": "gpus"}, "spec": {"hard": hard}})
    identity.opt_in(namespace, annotations={"bitfusion.io/limit-gpus": "2"})
    before = identity.until_secret(namespace)
    assert "Limits: gpus 2, units 100." in identity.until_event(namespace, "Ready")
    environ = home_of(before, tmp_path)
    with identity.pool.remote(token_in(before)) as client:
        granted = client.ask(half(), Granted)
        assert run(environ, "-p", "0.5").returncode == 0
        refused = run(environ, "-p", "0.51")
        assert refused.returncode != 0
        assert (
            "the name of your token may have 100 units, 100 are one GPU, you have or wait for 50, "
            "and this request is for 51"
        ) in refused.stdout + refused.stderr
        for units, words in (("50", "may have 50 units"), ("0", "may have 0 units")):
            changed_at = time.monotonic()
            merged = {"spec": {"hard": {"requests.bitfusion.io/gpu": units}}}
            identity.cluster.client.merge(f"{quotas}/gpus", merged)
            after = identity.until_secret(namespace, but=token_id(before))
            print(f"quota {units}: in the token {time.monotonic() - changed_at:.1f} s after the change")
            for secret in (before, after):  # the older token has the new limit, too
                home = home_of(secret, tmp_path / f"{units} {token_id(secret)}")
                done = run(home, "-p", "0.01")
                assert words in done.stdout + done.stderr
            before = after
        assert client.ask(Alive(), Alive) == Alive()  # what is held already goes on
        client.release(granted)


def run(environ: dict[str, str], *size: str) -> subprocess.CompletedProcess[str]:
    """The client's command, as in a pod with these files."""
    return subprocess.run(
        [COMMAND, "run", "-n", "1", *size, "--", "true"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=scaled(30),
    )


KEYS = (
    "bitfusion.io/gpu",
    "limits.bitfusion.io/gpu",
    "requests.bitfusion.io/gpu-50",
    "bitfusion.io/gpu-amount",
)


def test_a_quota_by_another_key_limits_nothing_and_its_event_says_which_one_counts(
    identity: RunningIdentity, namespace: str
) -> None:
    """In any namespace, whether it is opted in or not; the API server takes all of these keys."""
    client = identity.cluster.client
    place = f"/api/v1/namespaces/{namespace}"
    for number, key in enumerate(KEYS):
        client.create(
            f"{place}/resourcequotas", {"metadata": {"name": f"q{number}"}, "spec": {"hard": {key: "0"}}}
        )
    for number, key in enumerate(KEYS):
        status = f"{place}/resourcequotas/q{number}"
        wait_until(partial(counted, identity, status), key)
    client.create(f"{place}/pods", asking_pod("p"))  # 50 units, and none of these refuses it
    told = wait_until(lambda: said_at_quotas(identity, namespace, len(KEYS)), "each is told", 30)
    assert told == {
        f"q{number}": (
            f"This quota does not limit GPUs by {key}: use requests.bitfusion.io/gpu, in hundredths of "
            "a GPU, 150 for one and a half."
        )
        for number, key in enumerate(KEYS)
    }
    client.merge(
        f"{place}/resourcequotas/q0", {"spec": {"hard": {KEYS[0]: None, "requests.bitfusion.io/gpu": "50"}}}
    )
    assert "requested: requests.bitfusion.io/gpu=50, used: requests.bitfusion.io/gpu=50" in (
        until_quota_refuses(client, namespace, asking_pod("q"), quota="q0")
    )


def counted(identity: RunningIdentity, quota: str) -> bool:
    return "hard" in identity.cluster.client.get(quota).get("status", {})


def said_at_quotas(identity: RunningIdentity, namespace: str, count: int) -> dict[str, str] | None:
    """What is said by the quotas' names, once it is said at so many."""
    items = identity.cluster.client.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    found = {
        one["involvedObject"]["name"]: str(one["message"])
        for one in items
        if one["reason"] == "BitfusionQuotaKey" and one["involvedObject"]["kind"] == "ResourceQuota"
    }
    return found if len(found) == count else None


def test_a_missing_role_is_told_with_its_cure_and_cured_by_it(
    identity: RunningIdentity, namespace: str
) -> None:
    identity.opt_in(namespace, role=False)
    assert identity.until_event(namespace, "RoleMissing") == (
        "This namespace is labelled for the Bitfusion pool, but the controller may not write Secret "
        f"bitfusion-client here. An administrator must run: kubectl apply --namespace {namespace} -k "
        "manifests/namespace/standalone"
    )
    wait_until(lambda: identity.metric('bitfusion_identity_namespaces{state="no_role"}') == 1)
    assert identity.secret(namespace) is None
    assert f"cluster/{namespace}" not in identity.names_in_force()
    identity.apply_role(namespace)
    identity.until_secret(namespace)


def test_somebody_elses_secret_is_never_touched(identity: RunningIdentity, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    body = {"metadata": {"name": SECRET}, "stringData": {"client.yaml": "mine"}}
    made = identity.cluster.client.create(path, body)
    identity.opt_in(namespace)
    assert f"kubectl delete secret bitfusion-client --namespace {namespace}" in identity.until_event(
        namespace, "ForeignSecret"
    )
    counted = partial(identity.metric, 'bitfusion_identity_namespaces{state="foreign_secret"}')
    wait_until(lambda: counted() == 1)
    identity.opt_out(namespace)
    wait_until(lambda: counted() == 0)
    found = identity.secret(namespace)
    assert found is not None
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert f"cluster/{namespace}" not in identity.names_in_force()


def test_another_authority_of_the_pool_reaches_the_secret_and_the_older_token_stays_good(
    identity: RunningIdentity, namespace: str
) -> None:
    identity.opt_in(namespace)
    before = identity.until_secret(namespace)
    authority = identity.issuer / "ca.crt"
    replace_text(authority, authority.read_text() * 2)  # as an authority that is renewed
    after = identity.until_secret(namespace, but=token_id(before))
    assert files(after)["ca.crt"] == files(before)["ca.crt"] * 2
    for secret in (before, after):
        with identity.pool.remote(token_in(secret)):
            pass


def test_an_opt_out_takes_the_secret_away_and_the_token_with_it(
    identity: RunningIdentity, namespace: str
) -> None:
    identity.opt_in(namespace)
    token = token_in(identity.until_secret(namespace))
    identity.opt_out(namespace)
    wait_until(lambda: identity.secret(namespace) is None, lambda: identity.process.log.read_text(), 30)
    wait_until(lambda: f"cluster/{namespace}" not in identity.names_in_force(), limit_s=30)
    with identity.pool.stranger() as client:
        assert "was revoked" in client.say_hello(token, Refused).message


def test_a_namespace_that_is_deleted_gives_its_token_back(identity: RunningIdentity, namespace: str) -> None:
    identity.opt_in(namespace)
    identity.until_secret(namespace)
    identity.cluster.client.delete(f"/api/v1/namespaces/{namespace}")
    wait_until(lambda: f"cluster/{namespace}" not in identity.names_in_force(), limit_s=30)
