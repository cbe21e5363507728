"""``subPathExpr`` of a mount, with the notebook's variables put in: the GPU pod has none of them. Pure."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text
from bitfusion_pods.pod.cannot_copy import NotebookUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

EXPRESSION = "subPathExpr"
LONGEST = 4096
NOT_KNOWN = "mount {} names its folder with a variable whose value only the notebook's container knows"
_FIELDS = {"metadata.name": "name", "metadata.namespace": "namespace", "metadata.uid": "uid"}


def expanded(
    mount: dict[str, Any], container: Mapping[str, Any], notebook: Mapping[str, Any]
) -> dict[str, Any]:
    """The mount with a plain ``subPath``, the folder that the notebook has. Raises NotebookUnusable.

    Kubernetes' rules: ``$(NAME)`` is a variable, ``$$`` a dollar.
    """
    if EXPRESSION not in mount:
        return mount
    result = {name: value for name, value in mount.items() if name != EXPRESSION}
    rest = text(mount[EXPRESSION])[:LONGEST]
    path = ""
    while rest:
        plain, dollar, rest = rest.partition("$")
        path += plain
        if rest[:1] == "(" and ")" in rest:
            name, _, rest = rest[1:].partition(")")
            value = _variable(name, container, notebook)
            if not value:
                raise NotebookUnusable("", NOT_KNOWN.format(text(mount.get("mountPath"))))
            path += value
        else:
            path += dollar
            rest = rest.removeprefix("$")
    return {**result, "subPath": path} if path else result


def _variable(name: str, container: Mapping[str, Any], notebook: Mapping[str, Any]) -> str:
    for variable in reversed(mappings(container.get("env"))):
        if variable.get("name") == name:
            path = mapping(mapping(variable.get("valueFrom")).get("fieldRef")).get("fieldPath")
            field = _FIELDS.get(text(path))
            value = text(metadata_of(notebook).get(field) if field else variable.get("value"))
            return "" if "$(" in value else value
    return ""
