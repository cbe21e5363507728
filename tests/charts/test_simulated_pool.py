"""The simulated pool makes an issuer's files by itself: its init containers, run as they are written."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import time
from pathlib import Path

from bitfusion_device_plugin.identity.issuer_secret import secret_data
from tests.charts.conftest import Built

FOLDER = "/var/lib/bitfusion-pool"


def test_the_issuers_files_are_made_once(built: Built, tmp_path: Path) -> None:
    (pool,) = [
        item
        for item in built("simulated")
        if (item["kind"], item["metadata"]["name"]) == ("Deployment", "bitfusion-pool")
    ]
    containers = {each["name"]: each for each in pool["spec"]["template"]["spec"]["initContainers"]}
    assert list(containers) == ["volume", "certificate", "issuer", "issuer-secret"]
    assert containers["issuer-secret"]["args"] == [f"{FOLDER}/issuer", "kubeflow", "bitfusion-issuer"]
    tmp_path.chmod(0o700)

    def run(name: str) -> None:
        (script,) = containers[name]["args"]
        command = [*containers[name]["command"], script.replace(FOLDER, str(tmp_path))]
        programs = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
        environ = os.environ | {"PATH": programs}
        subprocess.run(command, check=True, capture_output=True, text=True, env=environ)

    for name in ("certificate", "issuer"):
        run(name)
    first = secret_data(str(tmp_path / "issuer"))
    for name in ("certificate", "issuer"):  # the pod is started again
        run(name)
    assert secret_data(str(tmp_path / "issuer")) == first
    a_year_ago = time.time() - 366 * 24 * 3600
    os.utime(tmp_path / "issuer" / "client.yaml", (a_year_ago, a_year_ago))
    run("issuer")
    second = secret_data(str(tmp_path / "issuer"))
    assert second["data"]["client.yaml"] != first["data"]["client.yaml"]
    assert second["data"]["ca.crt"] == first["data"]["ca.crt"]
    assert "bitfusion-pool.bitfusion-pool.svc" in (tmp_path / "issuer" / "servers.conf").read_text()
