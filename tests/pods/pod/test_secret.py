"""The Secret of a GPU pod: what its pod mounts of it, and whose it is."""

from __future__ import annotations

import base64

from bitfusion_pods.pod.secret import PATHS, agent_secret
from tests.pods.pod.notebook_pods import UID, made, notebook
from tests.support.schemas import validate

FILES: dict[str, bytes | str] = {
    "bitfusion": b"#!/bin/sh\n",
    "agent.zip": b"PK\0",
    "tls.key": "key",
    "tls.crt": "its own",
    "client.crt": "the command's",
}


def test_it_has_all_that_its_pod_mounts_and_nothing_else() -> None:
    pod = made()
    pod["metadata"]["uid"] = "b2"
    secret = agent_secret(pod, notebook(), '{"port":1}', FILES)
    validate(secret)
    (volume,) = [each["secret"] for each in pod["spec"]["volumes"] if "secret" in each]
    assert volume["secretName"] == secret["metadata"]["name"]
    assert {each["key"]: each["path"] for each in volume["items"]} == PATHS
    assert {key: base64.b64decode(value, validate=True) for key, value in secret["data"].items()} == {
        "bitfusion": b"#!/bin/sh\n",
        "agent.zip": b"PK\0",
        "tls.key": b"key",
        "tls.crt": b"its own",
        "client.crt": b"the command's",
        "name": b"digits-0-gpu-7f3a",
        "namespace": b"team-a",
        "uid": b"b2",
        "notebook": b"digits",
        "container": b"program",
        "request": b"-n 1",
        "client": b"pods",
        "pods.json": b'{"port":1}',
    }
    assert PATHS.keys() == secret["data"].keys()


def test_it_goes_with_its_pod_and_is_found_as_its_pod_is() -> None:
    pod = made()
    pod["metadata"]["uid"] = "b2"
    secret = agent_secret(pod, notebook(), "", FILES)
    assert secret["metadata"] == {
        "name": "digits-0-gpu-7f3a",
        "namespace": "team-a",
        "labels": {"bitfusion.io/gpu-pod-of": UID},
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "digits-0-gpu-7f3a",
                "uid": "b2",
                "controller": False,
                # true is refused to users where OwnerReferencesPermissionEnforcement is on
                "blockOwnerDeletion": False,
            }
        ],
    }
    assert secret["immutable"] is True
    assert secret["type"] == "Opaque"
