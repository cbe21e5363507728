"""Golden GPU pods, of the rules that are shipped. ``python -m tests.pods.pod.golden_pods`` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bitfusion_client.gpu_pods.settings import PodSettings, parse_settings
from bitfusion_client.request.gpu_request import GpuRequest
from tests.pods.pod.notebook_pods import claim, made

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "examples" / "gpu-pods"
GOLDEN = Path(__file__).resolve().parent / "golden"

HALF = GpuRequest(1, 0.5)
CASES: dict[str, tuple[str, GpuRequest, dict[str, Any]]] = {
    "whole": ("whole", GpuRequest(2), {}),
    "whole-bound-to-node": (
        "whole",
        GpuRequest(1),
        {"claims": {"digits-home": claim("ReadWriteOnce")}},
    ),
    "whole-without-template": ("whole", GpuRequest(1), {"of_template": None}),
    "whole-in-kueue": ("whole", GpuRequest(1), {"queue": "team-a-gpus"}),
    "hami-share": ("hami", HALF, {}),
    "hami-memory": ("hami", GpuRequest(1, None, 8192), {}),
    "kai-whole": ("kai", GpuRequest(1), {}),
    "kai-share": ("kai", HALF, {}),
    "kai-memory": ("kai", GpuRequest(2, None, 8192), {}),
    "mig-smallest": ("mig", GpuRequest(1, 0.1), {}),
    "mig-half": ("mig", HALF, {}),
    "shared": ("shared", GpuRequest(1, 0.25), {}),
    "dra-one": ("dra", GpuRequest(1), {}),
    "dra-two": ("dra", GpuRequest(2), {}),
    "all-settings": ("all-settings", GpuRequest(2), {"queue": "gpus"}),
}


def settings(name: str) -> PodSettings:
    """Of an example."""
    file = RULES / f"{name}.yaml"
    return parse_settings(yaml.safe_load(file.read_text(encoding="utf-8")), str(file))


def golden_pod(case: str) -> dict[str, Any]:
    """What is made for one."""
    rules, request, others = CASES[case]
    return made(request=request, settings=settings(rules), **others)


def as_text(pod: dict[str, Any]) -> str:
    """As the files have it."""
    return yaml.dump(pod, Dumper=_Plain, sort_keys=False, width=110)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    for case in CASES:
        (GOLDEN / f"{case}.yaml").write_text(as_text(golden_pod(case)), encoding="utf-8")
