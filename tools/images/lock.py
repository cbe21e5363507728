"""images.lock.yaml, a values file for helm, and images-lock/, the same as a component for kustomize. Pure.

Both come from one list, so that no image's name is typed twice. A later build of some images keeps the lines
of the others; that is why `parse` reads what `values` writes, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tools.images.wishes import Refused

VALUES = "images.lock.yaml"
COMPONENT = "images-lock/kustomization.yaml"
_KEYS = {"notebook-controller": "notebookController"}
_NAMES = {key: name for name, key in _KEYS.items()}
_ENTRY = re.compile(
    r"  (?P<key>\w+):\n    repository: (?P<repository>\S+)\n"
    r'    tag: "(?P<tag>[\w.-]+)"\n    digest: "(?P<digest>[\w:]*)"\n'
)
_HEAD = "# Written by `make images`.\n"
_FORM = """patches:
- target: {{kind: Job, name: bitfusion-form}}
  patch: |
    - {{op: test, path: {env}/name, value: BITFUSION_FORM_IMAGE}}
    - {{op: replace, path: {env}/value, value: "{image}"}}
"""
"""The image that the notebook form gets. As no container has it, `images` does not reach it."""
_ENV = "/spec/template/spec/containers/0/env/1"


@dataclass(frozen=True)
class Locked:
    """Where an image is; the digest is empty if it was not pushed."""

    repository: str
    tag: str
    digest: str = ""

    @property
    def reference(self) -> str:
        """As a container names it."""
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"


def values(images: Mapping[str, Locked]) -> str:
    """images.lock.yaml, by the images' names."""
    lines = [f"{_HEAD}# helm install … -f {VALUES}; for kustomize see {COMPONENT}\nimages:\n"]
    for name, image in sorted(images.items()):
        lines.append(f"  {_KEYS.get(name, name)}:\n    repository: {image.repository}\n")
        lines.append(f'    tag: "{image.tag}"\n    digest: "{image.digest}"\n')
    return "".join(lines)


def component(images: Mapping[str, Locked]) -> str:
    """The component for kustomize."""
    lines = [f"{_HEAD}apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nimages:\n"]
    for name, image in sorted(images.items()):
        lines.append(f"- name: kubeflow-bitfusion/{name}\n  newName: {image.repository}\n")
        lines.append(f"  digest: {image.digest}\n" if image.digest else f'  newTag: "{image.tag}"\n')
    if "notebook" in images:
        lines.append(_FORM.format(env=_ENV, image=images["notebook"].reference))
    return "".join(lines)


def parse(text: str) -> dict[str, Locked]:
    """The images in what `values` has written."""
    _, _, entries = text.partition("\nimages:\n")
    found = {
        _NAMES.get(match["key"], match["key"]): Locked(match["repository"], match["tag"], match["digest"])
        for match in _ENTRY.finditer(entries)
    }
    if values(found) != text:
        raise Refused(
            f"{VALUES} is not as `make images` has written it: remove it, and build all images again."
        )
    return found
