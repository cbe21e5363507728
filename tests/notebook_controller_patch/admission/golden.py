"""Reviews and the exact bytes of their answers, in ``golden.json``: what two replicas must agree on.

While a new version is rolled out, an old and a new replica answer side by side; were their patches different,
the notebook controller's writes would go to and fro between them. So a change of these bytes is a change that
has to be thought through. ``python -m tests.notebook_controller_patch.admission.golden`` compares (standard
library only, for every Python); with ``--write`` it writes the file anew.
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
import sys
from pathlib import Path
from typing import Any

from bitfusion_client.kubernetes.names import LABEL_ADMISSION
from tests.notebook_controller_patch.admission.random_reviews import decide
from tests.notebook_controller_patch.admission.reviews import (
    AMOUNT,
    DEFAULTS,
    LABEL,
    MEMORY,
    OLD_IMAGE,
    OS,
    OURS,
    PENDING,
    PERCENT,
    REQUEST,
    STOPPED,
    VERSION,
    answered,
    notebook,
    review,
    statefulset,
)

FILE = Path(__file__).with_name("golden.json")
HALF = "bitfusion.io/gpu-50"
FOREIGN = {"a/b~c": "d", "ü": "日本", "kubectl.kubernetes.io/last-applied-configuration": "{}\n"}


def cases() -> dict[str, tuple[dict[str, Any], dict[str, str] | None]]:
    """The reviews by name, each with the annotations of the owner as a look-up gives them."""
    asking = notebook({AMOUNT: "2"}, DEFAULTS, {LABEL: "true"})
    bare = notebook({HALF: "1"})
    bare["metadata"]["annotations"] = None
    del bare["metadata"]["labels"]
    two = notebook({AMOUNT: "1"})
    two["spec"]["template"]["spec"]["containers"].append({"name": "b", "resources": {"limits": {HALF: "1"}}})
    stopped = copy.deepcopy(asking)
    stopped["metadata"]["annotations"][STOPPED] = "2026-11-21T08:00:00Z"
    wrong = notebook({AMOUNT: "0"})
    wrong_stopped = notebook({AMOUNT: "0"}, {STOPPED: "2026-11-21T08:00:00Z"})
    running = statefulset({AMOUNT: "2"}, {**DEFAULTS, **FOREIGN})
    bigger = {**DEFAULTS, REQUEST: "-n 2 -p 0.5", PENDING: "x", **FOREIGN}

    def of(
        replicas: int | None, annotations: dict[str, str] | None = None, limit: str = "2"
    ) -> dict[str, Any]:
        return statefulset({AMOUNT: limit}, annotations, replicas)

    return {
        "notebook created, whole GPUs": (review(notebook({AMOUNT: "2"}, FOREIGN)), None),
        "notebook created, dry run": (review(notebook({AMOUNT: 2}), dryRun=True), None),
        "notebook created, half a GPU, no maps": (review(bare), None),
        "notebook created, memory": (review(notebook({AMOUNT: "1", MEMORY: "8Gi"}, image=OLD_IMAGE)), None),
        "notebook created, size by annotation": (review(notebook({}, {REQUEST: "-n 1 -p 0.5"})), None),
        "notebook created, own client": (
            review(notebook({HALF: "1"}, {OS: "centos8", VERSION: "401"})),
            None,
        ),
        "notebook created, no Bitfusion": (review(notebook({"nvidia.com/gpu": "1"})), None),
        "notebook refused, no GPU": (review(wrong), None),
        "notebook refused, share": (review(notebook({AMOUNT: "1", PERCENT: "101"})), None),
        "notebook refused, two containers": (review(two), None),
        "notebook unchanged": (review(asking, asking), None),
        "notebook stopped": (review(stopped, asking), None),
        "notebook, GPU removed": (review(notebook({}, DEFAULTS, {LABEL: "true"}), asking), None),
        "notebook, another size in the spec": (
            review(notebook({AMOUNT: "1"}, DEFAULTS, {LABEL: "true"}), asking),
            None,
        ),
        "notebook to be left alone": (
            review(notebook({AMOUNT: "0"}, labels={LABEL_ADMISSION: "ignore"})),
            None,
        ),
        "notebook wrong before, stopped": (review(wrong_stopped, wrong), None),
        "statefulset created": (review(of(None)), {**DEFAULTS, **FOREIGN}),
        "statefulset created, copied already": (review(of(1, {**DEFAULTS, **FOREIGN})), DEFAULTS),
        "statefulset created, owner unknown": (review(of(1)), None),
        "statefulset created, owner bare": (review(of(1, {**DEFAULTS, "a": "b"})), {}),
        "statefulset running, written again": (review(running, running), bigger),
        "statefulset running, tampered": (review(of(1, {OS: "x", "c": "d"}), running), bigger),
        "statefulset running, older than us": (review(of(1), of(1)), bigger),
        "statefulset running, other limits": (review(of(1, DEFAULTS, "1"), of(1, DEFAULTS)), bigger),
        "statefulset stopped": (review(of(0, {**DEFAULTS, **FOREIGN}), running), bigger),
        "statefulset edited while stopped": (review(of(0, DEFAULTS), of(0, DEFAULTS)), bigger),
        "statefulset started": (review(of(1, DEFAULTS), of(0, DEFAULTS)), bigger),
        "statefulset, pending copied by Kubeflow": (review(of(1, {**DEFAULTS, PENDING: "x"})), DEFAULTS),
        "statefulset written by the reconciler": (review(of(1), running, username=OURS), bigger),
        "statefulset without a notebook": (review(statefulset({AMOUNT: "2"}, owned=False)), bigger),
    }


def answer_text(data: dict[str, Any], owner: dict[str, str] | None) -> str:
    """The answer, written by the standard library."""
    parsed, verdict = decide(data, owner)
    return json.dumps(answered(parsed, verdict))


def differences() -> list[str]:
    """The names of the reviews in the file that are answered otherwise now."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    return [one["name"] for one in stored if answer_text(one["review"], one["owner"]) != one["answer"]]


def write() -> None:
    """Write the file anew; ``patch`` is there to be read, the answer is what is compared."""
    stored = []
    for name, (data, owner) in cases().items():
        text = answer_text(data, owner)
        patch = json.loads(text)["response"].get("patch")
        shown = base64.b64decode(patch).decode() if patch else ""
        stored.append({"name": name, "review": data, "owner": owner, "patch": shown, "answer": text})
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in stored)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write golden.json anew")
    if parser.parse_args().write:
        write()
    different = differences()
    for name in different:
        print(f"answered otherwise: {name}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
