"""Pods that ask for nothing, without an end, as whoever may make pods in a namespace may make them.

A program for a pod of that namespace, with the standard library alone: ``python pod_flood.py --gate NAME
--seconds 60``. Its pods wait at this scheduling gate, and no node would take them. At its end it prints what
it did as JSON.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_AT_ONCE = 4
_RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _pod(gate: str, zero: bool) -> dict[str, Any]:
    limits = {"limits": {"bitfusion.io/gpu": "0"}} if zero else {}
    container = {"name": "main", "image": "x", "securityContext": _RESTRICTED, "resources": limits}
    spec = {
        "schedulingGates": [{"name": gate}],
        "nodeSelector": {"no": "node"},
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "idle-"}, "spec": spec}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gate", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    words = parser.parse_args(arguments)
    began = time.monotonic()
    trusting = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    server = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    headers = {
        "Authorization": f"Bearer {(_ACCOUNT / 'token').read_text()}",
        "Content-Type": "application/json",
    }
    path = f"/api/v1/namespaces/{(_ACCOUNT / 'namespace').read_text()}/pods"
    made = [0] * _AT_ONCE
    refused: list[str] = []

    def make(thread: int) -> None:
        connection = http.client.HTTPSConnection(*server, timeout=30, context=trusting)
        for number in count():
            if time.monotonic() - began > words.seconds:
                break
            try:
                connection.request("POST", path, json.dumps(_pod(words.gate, number % 10 == 0)), headers)
                answer = connection.getresponse()
                text = answer.read().decode()
            except (OSError, http.client.HTTPException) as error:
                connection.close()  # the next request opens it anew
                refused.append(str(error))
                continue
            if answer.status == http.client.CREATED:
                made[thread] += 1
            else:
                refused.append(text)
        connection.close()

    threads = [threading.Thread(target=make, args=(number,)) for number in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = refused[-1][:300] if refused else ""
    print(json.dumps({"made": sum(made), "refused": len(refused), "the last one": last}))


if __name__ == "__main__":
    main(sys.argv[1:])
