"""With the files that the how-to page has an apiserver shows a certificate to who demands one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bitfusion_cluster.certificates.test_client_authority import OTHERS, OURS, client_pair
from tests.cluster.cluster import Cluster
from tests.cluster.guide import yaml_block
from tests.cluster.notebooks import Room
from tests.manifests.built import NAMESPACES
from tests.manifests.installed import folder, kubeflow_namespace, remove
from tests.manifests.review_load import ReviewLoad
from tests.manifests.stand_in import StandIn
from tests.support.waiting import wait_until


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("known", [True, False], ids=["its authority", "another authority"])
def test_the_apiserver_is_let_in_by_the_certificate_that_the_guide_has_it_show(
    cluster: Cluster, tmp_path: Path, known: bool
) -> None:
    files = yaml_block("kind: AdmissionConfiguration")
    admission, kubeconfig = files.replace("/etc/kubernetes/", f"{tmp_path}/").split("---\n")
    (tmp_path / "admission.yaml").write_text(admission)
    (tmp_path / "webhooks.kubeconfig").write_text(kubeconfig)
    shown = client_pair(OURS)
    (tmp_path / "webhooks.crt").write_bytes(shown.certificate)
    (tmp_path / "webhooks.key").write_bytes(shown.key)
    authority = tmp_path / "clients.crt"
    authority.write_bytes((OURS if known else OTHERS).certificate)
    option = f"--admission-control-config-file={tmp_path / 'admission.yaml'}"
    own = Cluster.start(cluster.binaries, [option])
    try:
        demanding = StandIn(
            own,
            tmp_path,
            NAMESPACES["kubeflow"],
            handshakes=True,
            options=[f"--client-authority={authority}"],
        )
        with kubeflow_namespace(own), demanding as ours:
            own.kubectl("apply", "-k", folder("kubeflow"))
            wait_until(lambda: ours.served, "the controller is ready", 40)
            room = Room(own)
            load = ReviewLoad(room)
            if known:
                with load:
                    load.more(20)
                assert (load.lost, load.trouble) == ([], [])
            else:
                assert not any(load.seen() for _ in range(20))
                assert (
                    ours.processes[0].metric(
                        "bitfusion_admission_reviews_total", outcome="patched", webhook="notebooks"
                    )
                    == 0
                )
            remove(own, "kubeflow")
    finally:
        own.end()
