"""Values that the chart takes: each alone, and any of them together."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_DIGEST = "sha256:" + "5" * 64
_IMAGES = st.fixed_dictionaries(
    {},
    optional={
        "repository": st.sampled_from(["registry.example/team/x", "localhost:5000/x", "x"]),
        "tag": st.sampled_from(["0.1.0", "latest", "v1.0_rc.2", "7"]),
        "digest": st.sampled_from(["", _DIGEST]),
    },
)
_LIST = st.lists(st.sampled_from(["--log-level=debug", "--log-format=text"]), max_size=2, unique=True)
_CLIENT = {"os": "ubuntu20", "version": "450", "kind": "vmware", "image": "r.example/p:1", "package": "p.deb"}
_LABELS = {"kubernetes.io/arch": "amd64", "example.com/yes": "true", "number": "7"}

EACH: dict[str, st.SearchStrategy[Any]] = {
    "images": st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("client", "notebook", "notebookController", "pool"), _IMAGES)
    ),
    "imagePullSecrets": st.sampled_from([[], [{"name": "registry"}], [{"name": "a"}, {"name": "b"}]]),
    "profiles": st.sampled_from(
        [{"label": "bitfusion.io/identity=true"}, {"label": "team=7", "serve": False}]
    ),
    "form": st.booleans(),
    "sizes": st.sampled_from([{}, {"sizes": [{"label": "GPU: #1"}, {"label": "50 %", "share": "50 %"}]}]),
    "gpuPods": st.sampled_from([{}, {"cpu": "4", "queues": {"*": "gpus"}}, {"rules": [], "deadline": "6h"}]),
    "gpuNodes": st.fixed_dictionaries(
        {},
        optional={
            "label": st.sampled_from(["", "gpu", "example.com/gpu=a100"]),
            "taint": st.sampled_from(["", "example.com/gpu"]),
            "quotaKeys": st.sampled_from([[], ["requests.nvidia.com/mig-1g.5gb", "pods"]]),
        },
    ),
    "clients": st.sampled_from([[], [_CLIENT], [_CLIENT, {"os": "*", "version": "*", "kind": "pods"}]]),
    "clientImages": st.sampled_from([[], [{"image": "r.example/*:*", "os": "centos8", "version": "450"}]]),
    "vmware": st.fixed_dictionaries({}, optional={"image": _IMAGES, "package": st.just("other_1.deb")}),
    "queue": st.booleans(),
    "policies": st.booleans(),
    "networkPolicies": st.booleans(),
    "podDisruptionBudgets": st.booleans(),
    "gpuPodsOnly": st.sampled_from(["None", "Warn", "Deny"]),
    "kueuePlaces": st.booleans(),
    "certManager": st.booleans(),
    "openshift": st.booleans(),
    "webhookPort": st.sampled_from([8443, 9443]),
    "hostNetwork": st.booleans(),
    "replicas": st.sampled_from([1, 2, 3]),
    "nodeSelector": st.sampled_from([{}, _LABELS]),
    "extraArgs": st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("controller", "injector", "identity", "queue", "devicePlugin"), _LIST),
    ),
}
"""By the name of a value; the engine is chosen beside them."""

ENGINE = st.sampled_from(["cluster-gpus", "simulated", "vmware"])
ANY = st.fixed_dictionaries({"engine": ENGINE}, optional=EACH)

ALONE: list[dict[str, Any]] = [
    {"engine": "simulated"},
    {"engine": "vmware"},
    {"images": {"client": {"repository": "registry.example/team/client", "digest": _DIGEST}}},
    {"imagePullSecrets": [{"name": "registry"}]},
    {"profiles": {"label": "bitfusion.io/identity=true"}},
    {"engine": "simulated", "profiles": {"serve": False}},
    {"form": False},
    {"sizes": {"sizes": [{"label": "GPU: #1"}]}},
    {"gpuPods": {"cpu": "4", "queues": {"*": "gpus"}}},
    {"gpuNodes": {"label": "", "taint": "", "quotaKeys": []}},
    {"clients": [_CLIENT]},
    {"clientImages": [{"image": "r.example/*:*", "os": "centos8", "version": "450"}]},
    {"engine": "vmware", "vmware": {"image": {"repository": "r.example/p", "tag": "1"}, "package": "p.deb"}},
    {"engine": "simulated", "queue": False},
    {"policies": False},
    {"networkPolicies": False},
    {"podDisruptionBudgets": False},
    {"gpuPodsOnly": "Deny"},
    {"kueuePlaces": True},
    {"certManager": True},
    {"engine": "simulated", "openshift": True},
    {"webhookPort": 9443},
    {"hostNetwork": True},
    {"replicas": 3},
    {"nodeSelector": _LABELS},
    {
        "engine": "simulated",
        "extraArgs": {"controller": ["--log-level=debug"], "devicePlugin": ["--units=7"]},
    },
]
