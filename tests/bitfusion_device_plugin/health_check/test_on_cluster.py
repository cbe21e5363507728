"""The sample's CronJob and rights on a real API server: its account can write the Event, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.bitfusion_device_plugin.health_check.test_process import PROGRAM
from tests.cluster.cluster import Cluster
from tests.manifests.built import MANIFESTS
from tests.support.machine import scaled
from tests.support.waiting import wait_until

NAMESPACE = "bitfusion-device-plugin"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:bitfusion-health"
PASSES = "Health report for server: a:1\\n[PASS   ] x\\n"
FAILS = "Health report for server: a:1\\n[FATAL  ] Check GPU ECC errors\\n"

RIGHTS = [("events", "patch]"), ("cronjobs.batch", "[get]")]


def rights(cluster: Cluster) -> list[tuple[str, str]]:
    """What the account may do with what it could be interested in, and the last verb of each."""
    may = cluster.kubectl("auth", "can-i", "--list", f"--as={ACCOUNT}", "-n", NAMESPACE)
    own = [
        line.split()
        for line in may.splitlines()
        if line.startswith(("events", "cronjobs", "secrets", "pods"))
    ]
    return [(words[0], words[-1]) for words in own]


@pytest.mark.long
def test_the_result_is_an_event_of_the_cron_job_by_the_samples_own_rights(
    cluster: Cluster, tmp_path: Path
) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    existed = NAMESPACE in cluster.kubectl("get", "namespaces", "-o", "name")
    (tmp_path / "namespace.yaml").write_text(yaml.safe_dump(namespace))
    cluster.kubectl("apply", "-f", str(tmp_path / "namespace.yaml"))
    folder = str(MANIFESTS / "samples" / "monitoring" / "health-check")
    try:
        cluster.kubectl("apply", "-k", folder)
        wait_until(lambda: rights(cluster) == RIGHTS, lambda: str(rights(cluster)), 20)
        kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, "bitfusion-health")
        for report, status in ((FAILS, 1), (FAILS, 1), (PASSES, 0)):
            client = tmp_path / "client"
            client.write_text(f"#!/bin/sh\nprintf '{report}'\n")
            client.chmod(0o755)
            done = subprocess.run(
                [
                    *(sys.executable, "-c", PROGRAM),
                    *(f"--client={client}", f"--namespace={NAMESPACE}", f"--kubeconfig={kubeconfig}"),
                ],
                capture_output=True,
                text=True,
                timeout=scaled(90),
            )
            assert done.returncode == status, done.stderr
            assert "No Event" not in done.stderr, done.stderr
        found = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "events", "-o", "json"))["items"]
        events = [one for one in found if one["source"].get("component") == "bitfusion-health-check"]
        told = {one["reason"]: one for one in events}
        assert len(events) == len(told) == 2  # one for each result, of three runs
        assert (told["BitfusionHealthFatal"]["type"], told["BitfusionHealthFatal"]["count"]) == ("Warning", 2)
        assert told["BitfusionHealthPassed"]["message"].startswith("All is well: 1 check. The report: ")
        described = cluster.kubectl("-n", NAMESPACE, "describe", "cronjob", "bitfusion-health")
        assert "1 of 1 checks is FATAL: a:1: Check GPU ECC errors." in described
    finally:
        cluster.kubectl("delete", "-k", folder, "--ignore-not-found")
        if not existed:
            cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
