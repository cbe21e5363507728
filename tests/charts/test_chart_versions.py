"""What the chart renders for a version of Kubernetes fits that version's schemas, field by field."""

from __future__ import annotations

import pytest

from tests.charts.conftest import Built
from tests.cluster.helm import Helm
from tests.support.schemas import validate
from tools.chart_templates import ENGINES

VERSIONS = ("1.27", "1.30", "1.34", "1.36")
POLICY = "ValidatingAdmissionPolicy"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "engine", [pytest.param(each, marks=[pytest.mark.long] * (each != "simulated")) for each in ENGINES]
)
def test_an_installation_fits(helm: Helm, built: Built, engine: str, version: str) -> None:
    values = {"engine": engine, "gpuPodsOnly": "Deny", "kueuePlaces": True}
    rendered = helm.template(f"--kube-version={version}", values=values)
    for item in rendered:
        validate(item, version)
    assert any(item["kind"].startswith(POLICY) for item in rendered) == (version != "1.27")
    for item in built(engine):
        if version != "1.27" or not item["kind"].startswith(POLICY):
            validate(item, version)


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(Exception, match=r"chart requires kubeVersion: >=1\.27"):
        helm.template("--kube-version=1.26")
