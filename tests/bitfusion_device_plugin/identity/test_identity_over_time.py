"""The identity controller over time: renewals, outages of the pool, restarts; what it was seen to ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bitfusion_pool.access.token_rules import IssuerBounds, TokenLimits
from bitfusion_pool.messages.from_client import Alive
from bitfusion_pool.messages.from_service import Granted
from tests.bitfusion_device_plugin.identity.running_identity import (
    SECRET,
    RunningIdentity,
    files,
    running_identity,
    token_id,
    token_in,
)
from tests.cluster.binaries import binaries
from tests.cluster.cluster import Cluster
from tests.pool.service.tls_client import half
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]
LIFE_S = 30.0  # of tokens that are renewed here: after 20 s


@pytest.fixture
def identity(cluster: Cluster) -> Iterator[RunningIdentity]:
    with running_identity(cluster) as running:
        yield running


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    return cluster.new_namespace(prefix="team")


def test_a_token_is_renewed_and_a_program_that_runs_goes_on(
    identity: RunningIdentity, namespace: str
) -> None:
    identity.issue("short", IssuerBounds(TokenLimits(gpus=1), longest_s=LIFE_S))
    identity.opt_in(namespace)
    before = identity.until_secret(namespace)
    with identity.pool.remote(token_in(before)) as running:
        granted = running.ask(half(), Granted)
        after = identity.until_secret(namespace, but=token_id(before))
        assert running.ask(Alive(), Alive) == Alive()
        with identity.pool.remote(token_in(after)) as later:
            later.release(later.come_back(granted, Granted))


def test_a_pool_that_is_away_changes_no_secret_and_serves_later_what_was_asked(
    identity: RunningIdentity, namespace: str, cluster: Cluster
) -> None:
    identity.opt_in(namespace)
    before = identity.until_secret(namespace)
    identity.pool.end()
    late = cluster.new_namespace(prefix="team")
    identity.opt_in(late)
    identity.opt_in(namespace, role=False, annotations={"bitfusion.io/limit-gpus": "1"})
    for name in (late, namespace):
        assert "none of the servers responded" in identity.until_event(name, "NotIssued")
    assert identity.secret(namespace) == before
    identity.pool.start()
    identity.until_secret(late)
    identity.until_secret(namespace, but=token_id(before))


def test_what_happened_while_the_controller_was_down_is_made_good(
    identity: RunningIdentity, cluster: Cluster
) -> None:
    out, deleted, edited, gone = (cluster.new_namespace(prefix="team") for _ in range(4))
    for name in (out, deleted, edited, gone):
        identity.opt_in(name)
    secrets = {name: identity.until_secret(name) for name in (out, deleted, edited, gone)}
    identity.process.kill()
    identity.opt_out(out)
    path = f"/api/v1/namespaces/{deleted}/secrets/{SECRET}"
    cluster.client.delete(path)
    cluster.client.merge(
        f"/api/v1/namespaces/{edited}/secrets/{SECRET}", {"data": {"ca.crt": "eA==", "more": "eA=="}}
    )
    cluster.client.delete(f"/api/v1/namespaces/{gone}")
    identity.process.start(limit_s=30)
    wait_until(lambda: identity.secret(out) is None, lambda: identity.process.log.read_text(), 60)
    identity.until_secret(deleted, but=token_id(secrets[deleted]))
    whole = identity.until_secret(edited, but=token_id(secrets[edited]))
    assert set(files(whole)) == {"servers.conf", "client.yaml", "ca.crt"}
    left = {f"cluster/{name}" for name in (deleted, edited)}
    wait_until(lambda: identity.names_in_force() == left, lambda: identity.names_in_force(), 60)


def test_one_set_of_files_is_handed_out_and_taken_back_where_there_is_no_issuer(cluster: Cluster) -> None:
    """As with VMware's product."""
    with running_identity(cluster, without_issuer=True) as identity:
        teams = [cluster.new_namespace(prefix="team") for _ in range(2)]
        for name in teams:
            identity.opt_in(name)
        assert {files(identity.until_secret(name))["client.yaml"] for name in teams} == {
            (identity.issuer / "client.yaml").read_text()
        }
        (identity.issuer / "client.yaml").write_text("renewed\n")
        for name in teams:
            wait_until(partial(_has_file, identity, name, "renewed\n"), limit_s=30)
        identity.opt_out(teams[0])
        wait_until(lambda: identity.secret(teams[0]) is None, limit_s=30)
        assert identity.secret(teams[1]) is not None


def _has_file(identity: RunningIdentity, namespace: str, text: str) -> bool:
    return files(identity.until_secret(namespace))["client.yaml"] == text


POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{group: "", resources: [secrets]}]
- level: None
"""


def test_no_other_secret_is_read_or_written_as_the_audit_log_says(tmp_path: Path) -> None:
    """A cluster of its own, whose API server keeps an audit log of every request about Secrets."""
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(POLICY)
    cluster = Cluster.start(binaries(), [f"--audit-policy-file={policy}", f"--audit-log-path={log}"])
    try:
        team, foreign, without = (cluster.new_namespace(prefix="team") for _ in range(3))
        for name in (team, foreign):
            others = {"metadata": {"name": "database"}, "stringData": {"password": "x"}}
            cluster.client.create(f"/api/v1/namespaces/{name}/secrets", others)
        cluster.client.create(f"/api/v1/namespaces/{foreign}/secrets", {"metadata": {"name": SECRET}})
        with running_identity(cluster) as identity:
            for name in (team, foreign):
                identity.opt_in(name)
            identity.opt_in(without, role=False)
            identity.until_secret(team)
            identity.until_event(foreign, "ForeignSecret")
            identity.until_event(without, "RoleMissing")
            identity.opt_out(team)
            wait_until(lambda: identity.secret(team) is None, limit_s=30)
            account = f"system:serviceaccount:{identity.namespace}:bitfusion-identity"
        found = [json.loads(line) for line in log.read_text().splitlines()]
        ours = [
            (
                one["verb"],
                one["objectRef"]["namespace"],
                one["objectRef"].get("name"),
                one["responseStatus"]["code"],
            )
            for one in found
            if one["user"]["username"] == account
        ]
        assert {verb for verb, *_ in ours} <= {"get", "create", "delete", "patch"}  # never list or watch
        assert {name for verb, _, name, _ in ours if verb != "create"} == {SECRET}
        assert {(namespace, name) for verb, namespace, name, _ in ours if verb == "create"} == {
            (team, SECRET)
        }
        written = {(verb, namespace) for verb, namespace, _, code in ours if verb != "get" and code < 300}
        assert written == {("create", team), ("delete", team)}
        assert {code for _, namespace, _, code in ours if namespace == without} == {403}
    finally:
        cluster.end()
