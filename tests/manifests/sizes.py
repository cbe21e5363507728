"""Sizes as they stand in limits, right and wrong ones, for whoever has to judge them: webhook and policy."""

from __future__ import annotations

from typing import Any

GPU = "bitfusion.io/gpu-"

COUNTS = (
    *("0", "0.5", "2", "1024", "1025", "-1", "two", "", "2.0", "2000m", "500m", "1k", "1e3", "1E1", "+2"),
    *(".5", "5.", "2e0", "0.0", "1Ki", "00", "0x1", "1e-1", "10e-1", " 2", "１", "1_0", "1e400", "1n"),
    *("15000m", "58000000u", "29.000", "2900m", "1e-9", "1000000001n", "1000000002e-9", "8Gi", "NaN", "inf"),
)
PERCENTS = ("0", "1", "50", "100", "101", "50.5", "x", "-1", "1e2", "0.5", "500m", "", "50000m", "%")
MEMORIES = (
    *("8Gi", "8000M", "0", "1Mi", "1023Ki", "8GB", "-1Gi", "", "2Ei", "1Ei", "1e6", "1048576", "1048575"),
    *("1.5Gi", "8gi", "1000m", "1048576000m"),
)
KEYS = (
    *("1", "100", "50", "0", "101", "050", "8gib", "8000mib", "0gib", "8gb", "8GiB", "foo", "", "1.5", "-1"),
    *("1073741824gib", "1073741825gib", "1099511627776mib", "1099511627777mib", "999999999999999mib"),
    *("99999999999999gib", "9999999999999999gib", "amounts", "gib", "1 0", "percent", "memory"),
    *("3x50", "3x100", "3x8gib", "3x8000mib", "2x1", "1024x1", "1025x1", "1x50", "03x50", "3x050", "0x50"),
    *("x50", "3x", "3x0", "3x101", "50x3", "3X50", "3*50", "3x50x2", "3xamount", "3x1073741825gib"),
    *("999x1099511627776mib", "99999999999999999999x5"),
    *("3x999999999999999gib", "3x9999999999999999gib"),
)

# Names that look like ours and are none: no node will ever have such a resource.
LOOKALIKES = (
    *("gpu", "gpus", "gpu_50", "GPU-50", "GPU", "Gpu-Amount", "gpu50", "gpu.50", "gpu_amount", "gpus-50"),
    *(
        "gpu-050",
        "gpu-8Gi",
        "gpu-8GB",
        "gpu-8000M",
        "gpu-0.5",
        "gpu-half",
        "gpu-num",
        "gpu-mem",
        "gpu-50-percent",
    ),
    *("gpu-1x50", "gpu-1x8gib", "gpu-1x", "gpu-03x50", "gpu-3x050", "gpu-3X50", "gpu-3*50", "gpu-3×50"),
    *("gpu-3x", "gpu-3-x-50", "GPU_3_X_50", "gpu-3x50%", "gpu-3xhalf", "gpu-3x8Gi", "gpu-50%x3", "gpu-8gb*3"),
    *("gpu-50X3", "gpu-0x50", "gpu-x50", "gpu-x3x", "gpu-3x0", "gpu-3x50x2", "gpu-50%x3*2", "gpu-3xpercent"),
    *("gpu-1025x50", "gpu-amountx2", "gpu3x50", "gpus-3x50", "gpu-1024x0001073741824g"),
    *("gpu-1024x999999999999999gi-b",),
    *("gpu-share", "gpu--50", "gpu-150", "gpu-tpu", "gpuﬀ", "gpu-٣", "gpu-", "gpu-50-", "GPU_0008_GIB"),
)

TABLE: tuple[dict[str, Any], ...] = (
    {},
    {"cpu": "1", "nvidia.com/gpu": "0.5"},
    {"bitfusion.io/fpga": "50", "example.com/gpu-50": "1"},  # somebody else's
    *({f"bitfusion.io/{name}": "1"} for name in LOOKALIKES),
    {"bitfusion.io/gpu": "50", f"{GPU}50": "1"},
    *({"bitfusion.io/gpu": value} for value in ("0", 0, "0m", "0e3", "0Ki", "-0", "0.0", "1m", "x", "")),
    {"bitfusion.io/gpu": "0", f"{GPU}50": "1"},
    {"bitfusion.io/gpu": "0", f"{GPU}50": "0"},
    {"bitfusion.io/GPU": "0"},
    {"bitfusion.io/gpus": "1", f"{GPU}amount": "1"},
    *({f"{GPU}amount": value} for value in (*COUNTS, 2, 0)),
    *({f"{GPU}amount": "1", f"{GPU}percent": value} for value in PERCENTS),
    *({f"{GPU}amount": "1", f"{GPU}memory": value} for value in MEMORIES),
    *({f"{GPU}{key}": "1"} for key in KEYS),
    *({f"{GPU}50": value} for value in ("0", "0.5", "2", 3)),
    {f"{GPU}amount": "1", f"{GPU}percent": "50", f"{GPU}memory": "8Gi"},
    {f"{GPU}percent": "5", f"{GPU}memory": "8Gi"},
    {f"{GPU}50": "1", f"{GPU}amount": "1"},
    {f"{GPU}50": "1", f"{GPU}25": "1"},
    {f"{GPU}50": "1", f"{GPU}percent": "20"},
    {f"{GPU}8gib": "1", f"{GPU}memory": "8Gi"},
    *({f"{GPU}3x50": value} for value in (*COUNTS, "341", "342", "1000", 2, 0)),
    *({f"{GPU}1024x50": value} for value in ("1", "2", "1000m")),
    {f"{GPU}3x50": "1", f"{GPU}50": "1"},
    {f"{GPU}3x50": "1", f"{GPU}amount": "1"},
    {f"{GPU}3x50": "1", f"{GPU}percent": "20"},
    {f"{GPU}3x8gib": "1", f"{GPU}memory": "8Gi"},
    {f"{GPU}foo": "1", f"{GPU}amount": "0"},
    {f"{GPU}amount": "0", f"{GPU}percent": "0"},
)


# Limits and requests of one container.
PLACES: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({f"{GPU}50": "1"}, {f"{GPU}50": "1"}),
    ({f"{GPU}50": 1}, {f"{GPU}50": "1"}),
    ({f"{GPU}50": "1"}, {f"{GPU}50": "1000m"}),
    ({f"{GPU}amount": "1", f"{GPU}percent": "50"}, {f"{GPU}amount": "1"}),
    ({}, {f"{GPU}50": "1"}),
    ({}, {"bitfusion.io/gpu": "50"}),
    ({}, {"bitfusion.io/gpu": "0"}),
    ({"bitfusion.io/gpu": "0"}, {"bitfusion.io/gpu": "0m"}),
    ({"bitfusion.io/gpu": "0"}, {"bitfusion.io/gpu": "50"}),
    ({f"{GPU}50": "1", "bitfusion.io/gpu": "0"}, {f"{GPU}50": "1", "bitfusion.io/gpu": "0"}),
    ({}, {"bitfusion.io/gpus": "1"}),
    ({}, {"bitfusion.io/GPU-50": "1"}),
    ({}, {"bitfusion.io/fpga": "1"}),
    ({f"{GPU}50": "1"}, {f"{GPU}25": "1"}),
    ({f"{GPU}50": "1"}, {f"{GPU}amount": "1"}),
    ({f"{GPU}50": "1"}, {f"{GPU}50": "2"}),
    ({f"{GPU}50": "1"}, {f"{GPU}50": "two"}),
    ({f"{GPU}50": "2"}, {f"{GPU}50": 1}),
    ({f"{GPU}50": "1"}, {f"{GPU}50": "1", "bitfusion.io/gpu": "50"}),
    ({f"{GPU}amount": "0"}, {f"{GPU}amount": "0"}),
    ({f"{GPU}amount": "1", f"{GPU}memory": "8Gi"}, {f"{GPU}amount": "1", f"{GPU}memory": "8192Mi"}),
    ({f"{GPU}amount": "1", f"{GPU}memory": "8Gi"}, {f"{GPU}amount": "1", f"{GPU}memory": "8G"}),
)

# Annotations that reach pods, with values that are allowed and others.
ANNOTATIONS: tuple[dict[str, str], ...] = (
    *({"auto-management/bitfusion": value} for value in ("injection", "none", "all", "ALL", "", "x" * 4000)),
    *(
        {f"bitfusion-client/{name}": value}
        for name in ("os", "version")
        for value in (
            "ubuntu22",
            "4.5-4_x",
            "a" * 63,
            "a" * 64,
            "",
            ".",
            "../../x",
            "ü",
            "４５４",
            "a b",
            "a\n",
        )
    ),
    *({"bitfusion-client/filter": value} for value in ("a=b", "", "f" * 1024, "f" * 1025, "ü" * 1024)),
    *({"bitfusion.io/path": value} for value in ("none", "", "None", "/opt", "x" * 4000)),
    *(
        {"bitfusion.io/gpu-image": value}
        for value in ("team/cuda:1", "", "i" * 512, "i" * 513, "two words", " ", "a\tb", "a\n", "ｉ", "~!")
    ),
    *({"bitfusion.io/request": " " * length + "-n 1"} for length in (0, 4092, 4093)),
    {"bitfusion-client/status": "../../x", "auto-management/status": "injected"},  # carried nowhere
)


def notebook(
    name: str,
    *limits: dict[str, Any],
    version: str = "v1beta1",
    requests: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A Notebook as the form posts it, a container for each of the limits; `requests` are the first one's."""
    containers = [
        {
            "name": name if number == 0 else f"{name}-{number}",
            "image": "kubeflownotebookswg/jupyter-scipy:v1.7.0",
            "resources": {
                "requests": {"cpu": "0.5", "memory": "1Gi", **((requests or {}) if number == 0 else {})},
                "limits": each,
            },
            "volumeMounts": [],
        }
        for number, each in enumerate(limits)
    ]
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "Notebook",
        "metadata": {"name": name, **({"annotations": annotations} if annotations else {})},
        "spec": {"template": {"spec": {"serviceAccountName": "default-editor", "containers": containers}}},
    }
