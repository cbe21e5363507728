"""What a GPU pod takes over from its notebook's pod, and what it does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.gpu_pods.settings import DEFAULT_SETTINGS, PodSettings, parse_settings
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pods.pod.cannot_copy import FilesElsewhere, NotebookUnusable
from tests.pods.pod.notebook_pods import UID, claim, made, notebook, program, template
from tests.support.schemas import validate

SHARES = parse_settings(
    {
        "rules": [
            {
                "name": "any",
                "serves": {"whole": True, "share": True, "memory": True},
                "container": {"resources": {"limits": {"nvidia.com/gpu": "{gpus}"}}},
            }
        ]
    }
)


def with_spec(**fields: Any) -> dict[str, Any]:
    """The template with other fields in its spec."""
    changed = template()
    changed["spec"].update(fields)
    return changed


def test_no_label_comes_along_but_those_the_admin_lists() -> None:
    assert set(made()["metadata"]["labels"]) == {"bitfusion.io/gpu-pod-of", "sidecar.istio.io/inject"}
    listed = made(settings=parse_settings({"labels": ["access-ml-pipeline", "absent"]}))
    assert listed["metadata"]["labels"]["access-ml-pipeline"] == "true"
    assert not {"statefulset", "notebook-name", "app", "absent"} & set(listed["metadata"]["labels"])


def test_sidecars_variables_ports_and_probes_do_not_come_along() -> None:
    changed = template()
    container = changed["spec"]["containers"][0]
    container |= {
        "envFrom": [{"secretRef": {"name": "tokens"}}],
        "livenessProbe": {"tcpSocket": {"port": 8888}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "stdin": True,
    }
    for pod in (made(), made(of_template=None), made(of_template=changed)):
        names = {"ports", "env", "envFrom", "livenessProbe", "lifecycle", "stdin"}
        assert not names & set(program(pod))
        assert not {"initContainers", "nodeSelector", "nodeName", "hostname", "priority"} & set(pod["spec"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("securityContext", {"runAsUser": 1000, "fsGroup": 5}),
        ("automountServiceAccountToken", False),
        ("imagePullSecrets", [{"name": "registry"}]),
        ("priorityClassName", "notebooks"),
        ("dnsConfig", {"searches": ["example.org"]}),
        ("hostAliases", [{"ip": "10.0.0.1", "hostnames": ["data"]}]),
        ("hostUsers", False),
    ],
)
def test_what_says_who_the_notebook_is_comes_along(field: str, value: Any) -> None:
    assert made(of_template=with_spec(**{field: value}))["spec"][field] == value


def test_tolerations_come_along_but_not_those_of_a_lost_node() -> None:
    pod = made(of_template=None)
    assert [(each["key"], each.get("tolerationSeconds")) for each in pod["spec"]["tolerations"]] == [
        ("team", None),
        ("node.kubernetes.io/not-ready", 30),
        ("node.kubernetes.io/unreachable", 30),
        ("nvidia.com/gpu", None),
    ]


def test_the_notebooks_pod_owns_it_and_its_deletion_is_not_held_up() -> None:
    (owner,) = made()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "digits-0", UID)
    assert owner["controller"] is owner["blockOwnerDeletion"] is False


def test_the_agent_is_started_on_the_admins_port() -> None:
    container = program(made(settings=parse_settings({"port": 9000})))
    assert container["command"] == ["/bin/sh", "/bitfusion/bin/bitfusion", "agent"]
    assert container["args"] == ["--keys", "/bitfusion/keys", "--port", "9000"]


@pytest.mark.parametrize(
    ("given", "gpus", "limits", "requests"),
    [
        ({}, 2, {"cpu": "600m", "memory": "1288490188"}, {"cpu": "500m", "memory": "1Gi"}),
        ({"cpu": 4}, 2, {"cpu": "8", "memory": "1288490188"}, {"cpu": "8", "memory": "1Gi"}),
        ({"cpu": "500m", "memory": "16Gi"}, 3, *[{"cpu": "1500m", "memory": "49152Mi"}] * 2),
        ({"memory": "1G"}, 1, *[{"cpu": "600m", "memory": "1000000000"}, {"cpu": "500m"}]),
    ],
)
def test_cpu_and_memory_are_the_notebooks_or_by_the_gpu(
    given: Any, gpus: int, limits: dict[str, str], requests: dict[str, str]
) -> None:
    pod = made(request=GpuRequest(gpus), settings=parse_settings(given))
    resources = program(pod)["resources"]
    assert resources["limits"] == {**limits, "nvidia.com/gpu": str(gpus)}
    assert resources["requests"] == {**requests, "memory": requests.get("memory", "1000000000")}


def test_a_rules_own_cpu_replaces_the_notebooks_in_both_parts() -> None:
    rule = {"name": "a", "serves": {"whole": True}, "container": {"resources": {"limits": {"cpu": "250m"}}}}
    resources = program(made(settings=parse_settings({"rules": [rule]})))["resources"]
    assert resources == {
        "limits": {"memory": "1288490188", "cpu": "250m"},
        "requests": {"memory": "1Gi"},  # 500m of CPU would be above the limit
    }


@pytest.mark.parametrize(
    ("request_", "holds"),
    [
        (GpuRequest(2), "-n 2"),
        (GpuRequest(1, 0.5, timeout=9), "-n 1 -p 0.5"),
        (GpuRequest(1, None, 8192), "-n 1 -m 8192"),
    ],
)
def test_what_it_holds_is_told_to_people(request_: GpuRequest, holds: str) -> None:
    assert made(request=request_, settings=SHARES)["metadata"]["annotations"] == {
        "bitfusion.io/holds": holds,
        "sidecar.istio.io/inject": "false",
    }


def test_the_secret_of_its_name_is_its_clients_folder_and_readable_for_any_user() -> None:
    pod = made()
    (volume,) = [each for each in pod["spec"]["volumes"] if "secret" in each]
    assert volume["secret"]["secretName"] == pod["metadata"]["name"]
    assert volume["secret"]["defaultMode"] == 0o444
    (script,) = [each for each in volume["secret"]["items"] if "mode" in each]
    assert script == {"key": "bitfusion", "path": "bin/bitfusion", "mode": 0o555}
    (mount,) = [each for each in program(pod)["volumeMounts"] if each["name"] == volume["name"]]
    assert mount == {"name": volume["name"], "mountPath": "/bitfusion", "readOnly": True}


def test_a_fragment_cannot_take_the_labels_or_annotations_that_are_ours() -> None:
    label = {"app.example.org/kind": "gpu", "kueue.x-k8s.io/queue-name": "of-the-fragment"}
    pod = made(settings=parse_settings({"pod": {"metadata": {"labels": label}}}), queue="mine")
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "mine"
    assert pod["metadata"]["labels"]["app.example.org/kind"] == "gpu"


def test_the_admins_node_affinity_and_the_notebooks_node_both_hold() -> None:
    term = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100", "h100"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, term]}}
    settings_ = parse_settings({"pod": {"spec": {"affinity": {"nodeAffinity": required}}}})
    pod = made(settings=settings_, claims={"digits-home": claim("ReadWriteOnce")})
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    here = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert affinity == {"nodeSelectorTerms": [{**term, "matchFields": [here]}] * 2}
    validate(pod)


def test_the_node_affinities_of_settings_and_rule_both_hold() -> None:
    """Kubernetes takes a node of any one term: of settings or rule, if the lists were joined."""

    def asks(*pairs: tuple[str, str]) -> dict[str, Any]:
        terms = [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in pairs
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {"spec": {"affinity": {"nodeAffinity": required}}}

    rule = {
        "name": "slices",
        "serves": {"whole": True},
        "pod": asks(("mig", "a100"), ("mig", "h100")),
        "container": {"resources": {"limits": {"nvidia.com/gpu": "{gpus}"}}},
    }
    pod = made(settings=parse_settings({"pod": asks(("pool", "notebooks")), "rules": [rule]}))
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    shown = [
        [f"{each['key']}={each['values'][0]}" for each in term["matchExpressions"]]
        for term in affinity["nodeSelectorTerms"]
    ]
    assert shown == [["pool=notebooks", "mig=a100"], ["pool=notebooks", "mig=h100"]]
    validate(pod)


@pytest.mark.parametrize(
    ("others", "part"),
    [
        ({"container": "other"}, "no container other"),
        ({"name": "Upper"}, "name that Kubernetes does not accept: Upper"),
        ({"name": "a" * 64}, "does not accept"),
        ({"queue": "no queue"}, "does not accept: no queue"),
        ({"pod": {"metadata": {"name": "a", "namespace": "b"}}}, "name, namespace and uid"),
    ],
)
def test_what_makes_no_pod_is_refused_in_words(others: dict[str, Any], part: str) -> None:
    with pytest.raises(NotebookUnusable) as caught:
        made(**others)
    assert part in caught.value.user_message
    assert "What to do" in caught.value.user_message


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=4)
    | st.floats(allow_nan=False, width=16),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "key", "spec", "emptyDir", "mountPath"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values of an object."""
    found = [path]
    if isinstance(value, dict):
        for key, each in value.items():
            found += places(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            found += places(each, (*path, index))
    return found


def changed(draw: Any, value: Any) -> Any:
    """The object with something else in one or several of its places."""
    result = copy.deepcopy(value)
    for path in draw(st.lists(st.sampled_from(places(value)[1:]), max_size=4)):
        target = result
        try:
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = draw(JSON)
        except (KeyError, IndexError, TypeError):
            continue
    return result


SETTINGS: list[PodSettings] = [
    DEFAULT_SETTINGS,
    SHARES,
    parse_settings({"labels": ["app"], "rwo_anywhere": True}),
]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_whatever_the_api_tells_makes_a_sound_pod_or_an_error_in_words(data: st.DataObject) -> None:
    pod = changed(data.draw, notebook())
    of_template = (
        data.draw(st.just(None) | JSON) if data.draw(st.booleans()) else changed(data.draw, template())
    )
    claims = {"digits-home": changed(data.draw, claim("ReadWriteOnce"))}
    given_settings = data.draw(st.sampled_from(SETTINGS))
    before = copy.deepcopy((pod, of_template, claims))
    result: Any = None
    try:
        result = made(pod=pod, of_template=of_template, claims=claims, settings=given_settings)
    except (NotebookUnusable, FilesElsewhere, InvalidRequest) as error:
        told = error.user_message
    assert (pod, of_template, claims) == before
    if result is None:
        assert 1 <= len(told.splitlines()) <= 4
        return
    spec = result["spec"]
    container = program(result)
    mounted = {each["name"] for each in container["volumeMounts"]}
    devices = {each["name"] for each in container.get("volumeDevices", [])}
    volumes = [each["name"] for each in spec["volumes"]]
    assert set(volumes) == mounted | devices
    assert len(volumes) == len(set(volumes))
    paths = [each["mountPath"].rstrip("/") for each in container["volumeMounts"]]
    assert len(paths) == len(set(paths))
    assert set(result["metadata"]["labels"]) <= {"app", "bitfusion.io/gpu-pod-of", "sidecar.istio.io/inject"}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert spec["restartPolicy"] == "Never"
    assert len(spec["containers"]) == 1
    # nothing is shared with what was given
    for path in places(result):
        target = result
        for step in path:
            target = target[step]
        if isinstance(target, dict):
            target["changed"] = True
    assert (pod, of_template, claims) == before
