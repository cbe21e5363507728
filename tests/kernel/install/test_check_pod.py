"""The doctor in a pod: injected or not, with and without an identity, and what the client says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.install import check_client
from bitfusion_kernel.install.check_pod import check_pod
from bitfusion_kernel.pod.account import open_account, write_entry
from bitfusion_kernel.pod.turns import Entry
from bitfusion_kernel.processes.held_file import HeldFile
from tests.kernel.pod.fake_pod import FakePod

HEALTH = """cat <<'END'
Health report for localhost
 System Resources
  [PASS] Check pool in use: the one on the network
Health report for server: pool:7443
 System Resources
  [PASS] Check pool server port: 7443 answered in 0.4 ms
  [MARGINAL] Check pool token: accepted, it ends on 2026-12-01, renew it
  [SKIPPED] Check pool messages: the check before failed
END
"""


def lines(environ: dict[str, str]) -> list[str]:
    return [line for finding in check_pod(environ) for line in finding.lines()]


@pytest.fixture
def fake(tmp_path: Path, client: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> FakePod:
    """A pod as it should be, whose client is the one that was injected."""
    made = FakePod(tmp_path, "-n 2 -p 0.5", "100")
    for name in ("servers.conf", "client.yaml", "ca.crt"):
        made.write(f"identity/{name}", "x")
    own = made.root / "bin" / "bitfusion"
    own.parent.mkdir()
    own.symlink_to(client(HEALTH))
    return made


def test_a_pod_as_it_should_be(fake: FakePod, client: Callable[[str], Path]) -> None:
    environ = fake.environment | {"BITFUSION_CLIENT": str(client(HEALTH))}
    assert lines(environ) == [
        "[PASS] pod: team-a/digits-0, container digits: budget 2 GPUs × 50 % (100 units), client stand-in",
        "[PASS] pod budget: left of the pod's budget: 2 GPUs × 50 %",
        f"[PASS] pod identity: servers.conf, client.yaml, ca.crt in {fake.root}/identity",
        "[PASS] pool in use: the one on the network",
        "[PASS] pool server port: 7443 answered in 0.4 ms",
        "[WARN] pool token: accepted, it ends on 2026-12-01, renew it",
        "       ask your administrator",
    ]


def test_who_holds_what_of_the_budget(fake: FakePod, tmp_path: Path) -> None:
    environ = fake.environment | {"XDG_RUNTIME_DIR": str(tmp_path)}
    account = open_account(fake.pod, environ)
    held = []
    for number, holds in ((1, True), (2, False)):
        path = account.new_entry()
        held.append(HeldFile(path))
        write_entry(path, Entry(number, f"{number}.ipynb", GpuRequest(1, 0.5), False, holds, 0.0))
    told = next(line for line in lines(environ) if "pod budget" in line)
    assert "left of the pod's budget: 1 GPU × 50 %; held by 1.ipynb (1 GPU × 50 %, since 1970-01-01" in told
    assert "; waiting 2.ipynb (1 GPU × 50 %, since 1970-01-01" in told
    for file in held:
        file.release()


def test_a_pod_that_makes_gpu_pods_has_no_identity(fake: FakePod, client: Callable[[str], Path]) -> None:
    fake.write("pod/client", "pods")
    found = lines(fake.environment | {"BITFUSION_CLIENT": str(client(OF_GPU_PODS))})
    assert not any("identity" in line for line in found)
    assert any("`bitfusion health --connect`" in line for line in found)


def test_a_namespace_without_access(fake: FakePod) -> None:
    (fake.root / "identity" / "ca.crt").unlink()
    found = lines(fake.environment)
    denied = "has no ca.crt: the namespace team-a has no access to the pool"
    assert f"[FAIL] pod identity: {fake.root}/identity {denied}" in found
    assert any(
        "ask your administrator to let this namespace use the pool (its Secret" in line for line in found
    )


def test_another_client_than_the_injected_one(fake: FakePod, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    found = lines(fake.environment | {"BITFUSION_CLIENT": str(other)})
    own = f"{fake.root}/bin/bitfusion"
    at = found.index(f"[WARN] pod client: the kernel uses {other}, not the pod's {own}")
    assert found[at + 1] == f"       set BITFUSION_CLIENT={own}, unless that is meant"
    assert "[WARN] bitfusion health: it reported nothing" in found


def test_a_folder_that_was_not_filled(fake: FakePod, client: Callable[[str], Path]) -> None:
    (fake.root / "bin" / "bitfusion").unlink()
    found = lines(fake.environment | {"BITFUSION_CLIENT": str(client("true"))})
    assert any(
        line.startswith("[FAIL] pod client: ") and "is missing: the pod's first init" in line
        for line in found
    )


def test_a_pod_without_injection_is_told_what_is_missing(tmp_path: Path) -> None:
    environ = {"BITFUSION_TEST_POD_ROOT": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    warning, cure = lines(environ)
    assert warning == f"[WARN] pod: no Bitfusion client was injected: there is no {tmp_path}/pod"
    assert "choose a Bitfusion size in its form" in cure
    assert "ask your administrator whether the pod injector runs and looks at this namespace" in cure


OF_GPU_PODS = """case $1 in
version) echo "bitfusion version 4 (GPUs of this Kubernetes cluster)" ;;
health) echo "Health report for server: api"; echo "[FATAL] Check right to create pods in hub: missing" ;;
esac"""


def test_a_client_of_gpu_pods_is_asked_though_nobody_has_injected_it(
    tmp_path: Path, client: Callable[[str], Path]
) -> None:
    own = {"BITFUSION_CLIENT": str(client(OF_GPU_PODS))}
    environ = {"BITFUSION_TEST_POD_ROOT": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1", **own}
    assert lines(environ) == [
        "[PASS] pod: no injector was here, and this client needs none: it makes GPU pods by itself",
        "[FAIL] right to create pods in hub: missing",
        "       ask your administrator",
        "[PASS] GPU pod: `bitfusion health --connect` in a terminal tries image, volumes and connection, "
        "too: in a pod like a GPU pod, without a GPU",
    ]


def test_another_client_that_nobody_has_injected_is_told_as_before(
    tmp_path: Path, client: Callable[[str], Path]
) -> None:
    own = {"BITFUSION_CLIENT": str(client('echo "bitfusion version 4"'))}
    environ = {"BITFUSION_TEST_POD_ROOT": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1", **own}
    assert lines(environ)[0] == f"[WARN] pod: no Bitfusion client was injected: there is no {tmp_path}/pod"


def test_a_budget_that_cannot_be_read(fake: FakePod) -> None:
    fake.write("pod/request", "half a GPU")
    (found, *_) = lines(fake.environment)
    assert found.startswith('[FAIL] pod: Wrong setting the pod\'s budget="half a GPU" (from ')


def test_elsewhere_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert lines({"BITFUSION_TEST_POD_ROOT": str(tmp_path)}) == []


def test_the_size_of_a_kernelspec_without_one_is_what_is_left(
    spec: Path, fake: FakePod, report: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    _, said = report()
    assert "settings: what is left of 2 GPUs × 50 %, acquire first_cell" in said
    assert "[PASS] pod: team-a/digits-0, container digits: " in said


def test_a_token_that_ends_soon_is_a_warning_outside_pods_only(
    fake: FakePod, client: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> list[str]:
        findings = check_client.check_pool(str(client(HEALTH)))
        return next(finding.lines() for finding in findings if finding.subject == "pool token")

    ends = "pool token: pool:7443: accepted, it ends on 2026-12-01"
    assert told() == [f"[WARN] {ends}, renew it"]
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    assert told() == [f"[PASS] {ends}; in a pod the cluster sees to its renewal"]


def test_a_token_that_the_cluster_has_not_renewed_is_a_warning_in_pods_too(
    fake: FakePod, client: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    overdue = HEALTH.replace("renew it", "renew it: three quarters of its lifetime have passed")
    findings = check_client.check_pool(str(client(overdue)))
    assert next(finding.lines() for finding in findings if finding.subject == "pool token") == [
        "[WARN] pool token: pool:7443: accepted, it ends on 2026-12-01, renew it: three quarters of its "
        "lifetime have passed",
        "       in a pod the cluster renews it, and has not: ask your administrator to look at the log of "
        "bitfusion-identity and at the Events of this namespace, kubectl get events --field-selector "
        "involvedObject.kind=Namespace",
    ]
