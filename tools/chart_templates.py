"""A chart's templates from what kustomize builds: one object for all variants, line by line. Pure.

A *variant* is what one engine's folder builds, as it stands or with one switch thrown, such as cert-manager's
component. The texts of an object in all variants become one text, in which `if` stands around the lines that
some of them do not have. So a template says exactly what kustomize says; `tools/chart.py` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

import yaml

ENGINES = ("cluster-gpus", "simulated", "vmware")
NAMESPACE = "kubeflow"
"""Of the manifests; the release's takes its place."""
NAME_LABEL = "app.kubernetes.io/name"

PROFILES = (f"{NAME_LABEL.rpartition('/')[0]}/part-of", "kubeflow-profile")
"""By what the manifests know the namespaces that are served."""

Key = tuple[str, str, str]
"""An object's kind, namespace and name."""


@dataclass(frozen=True)
class Variant:
    """An engine, and the switch that is thrown, if any."""

    engine: str
    switch: str = ""


@dataclass(frozen=True)
class Switch:
    """A component that a value adds to an engine, or takes from it.

    Attributes:
        on: The template's expression for: the component is there.
        components: Folders of `manifests/components`, for all engines.
        more: Folders for one engine alone.
        by_default: The engines' folders have it, so that thrown means without it.
    """

    on: str
    components: tuple[str, ...]
    more: Mapping[str, tuple[str, ...]]
    by_default: bool = False

    def thrown(self, is_thrown: bool = True) -> str:
        """The expression for a variant with this switch thrown, or with it not thrown."""
        return self.on if self.by_default != is_thrown else f"(not {self.on})"

    def parts(self, engine: str) -> tuple[str, ...]:
        """The components of an engine."""
        return (*self.components, *self.more.get(engine, ()))


_UNITS = ("simulated", "vmware")
SWITCHES = {
    "certManager": Switch(".Values.certManager", ("cert-manager",), {}),
    "openshift": Switch(
        ".Values.openshift", ("openshift",), dict.fromkeys(_UNITS, ("device-plugin-openshift",))
    ),
    "hostNetwork": Switch(".Values.hostNetwork", ("host-network",), {}),
    "gpuPodsOnly": Switch('(ne .Values.gpuPodsOnly "None")', ("gpu-pods-only",), {}),
    "kueuePlaces": Switch(".Values.kueuePlaces", ("kueue-places",), {}),
    "profiles": Switch(
        '(include "bitfusion.profiles" .)', (), dict.fromkeys(_UNITS, ("profiles",)), by_default=True
    ),
    "form": Switch(".Values.form", ("form-job", "restrict-form", "form-give-back"), {}, by_default=True),
    "queue": Switch(".Values.queue", (), dict.fromkeys(_UNITS, ("queue",)), by_default=True),
}

POLICIES = '(include "bitfusion.policies" .)'
KINDS = {
    "NetworkPolicy": ".Values.networkPolicies",
    "PodDisruptionBudget": ".Values.podDisruptionBudgets",
    "ValidatingAdmissionPolicy": POLICIES,
    "ValidatingAdmissionPolicyBinding": POLICIES,
}
"""Objects of these kinds are there if a value says so."""

_DELETE = "before-hook-creation,hook-succeeded"
HOOKS = {
    ("Job", "bitfusion-form"): {
        "helm.sh/hook": "post-install,post-upgrade",
        "helm.sh/hook-delete-policy": _DELETE,
    },
    ("Job", "bitfusion-form-give-back"): {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-delete-policy": _DELETE,
    },
    ("Pod", "bitfusion-doctor"): {
        "helm.sh/hook": "test",
        "helm.sh/hook-delete-policy": "before-hook-creation",
    },
}
"""What helm runs at its time and does not count as the release's."""

IMAGES = {
    "notebook-controller": '{{ include "bitfusion.image" .Values.images.notebookController }}',
    "client": '{{ include "bitfusion.image" .Values.images.client }}',
    "pool": '{{ include "bitfusion.image" .Values.images.pool }}',
    "notebook": '{{ include "bitfusion.image" .Values.images.notebook }}',
    "packages": '{{ include "bitfusion.image" .Values.vmware.image }}',
}
_RELEASE = "{{ .Release.Namespace }}"
LINES = (
    (rf"^(\s*(?:- )?namespace: ){NAMESPACE}$", rf"\g<1>{_RELEASE}"),
    (rf"^(\s*kubernetes\.io/metadata\.name: ){NAMESPACE}$", rf"\g<1>{_RELEASE}"),
    (rf"^(\s*- ){NAMESPACE}$", rf"\g<1>{_RELEASE}"),
    (rf"(system:serviceaccount:){NAMESPACE}(:bitfusion-)", rf"\g<1>{_RELEASE}\g<2>"),
    (rf"(- bitfusion-[a-z-]+\.){NAMESPACE}(\.svc)", rf"\g<1>{_RELEASE}\g<2>"),
    (rf"(inject-ca-from: ){NAMESPACE}/", rf"\g<1>{_RELEASE}/"),
    (
        rf"^(\s*){re.escape(PROFILES[0])}: {PROFILES[1]}$",
        r'\g<1>{{ splitList "=" .Values.profiles.label | first }}: '
        r'{{ splitList "=" .Values.profiles.label | last | quote }}',
    ),
    (rf"{re.escape('='.join(PROFILES))}", "{{ .Values.profiles.label }}"),
    (r"^(\s*replicas: )2$", r"\g<1>{{ .Values.replicas }}"),
    (r"^(\s*- --port=)8443$", r"\g<1>{{ .Values.webhookPort }}"),
    (r"^(\s*- containerPort: )8443$", r"\g<1>{{ .Values.webhookPort }}"),
    (r"bitfusion-client-ubuntu2204_4\.5\.4-1_amd64\.deb", "{{ .Values.vmware.package }}"),
)
"""What of a line comes from the release or from a value."""
OPTIONS = {
    "--quota-keys=": (".Values.gpuNodes.quotaKeys", 'join "," .'),
    "--gpu-nodes=": (".Values.gpuNodes.label", "."),
    "--gpu-taint=": (".Values.gpuNodes.taint", "."),
}
"""Lines of arguments that an empty value takes away."""
FILES = {
    "bitfusion-clients": ("clients.yaml", "clients"),
    "bitfusion-gpu-pods": ("pods.yaml", "gpuPods"),
    "bitfusion-notebook-sizes": ("sizes.yaml", "sizes"),
    "bitfusion-client-images": ("images.yaml", "clientImages"),
}
"""Of a ConfigMap the file, and the value that takes its place unless it is empty."""
EXTRA = {
    "bitfusion-notebook-controller": "controller",
    "bitfusion-injector": "injector",
    "bitfusion-identity": "identity",
    "bitfusion-queue": "queue",
    "bitfusion-device-plugin": "devicePlugin",
}
"""Programs that take more options by a value."""

Presence = dict[Variant, bool]


def key_of(item: Mapping[str, Any]) -> Key:
    """By what two variants' objects are known as the same one."""
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


@lru_cache(None)  # most objects are the same text in all variants
def _read(document: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(document)
    return found


def documents(text: str) -> dict[Key, str]:
    """The objects of a build, as they are written there."""
    each = (one.rstrip("\n") for one in re.split(r"^---\n", text, flags=re.MULTILINE) if one.strip())
    return {key_of(_read(document)): document for document in each}


def merged(texts: Mapping[Variant, str]) -> list[tuple[str, frozenset[Variant]]]:
    """All lines of all variants in one order, each with the variants that have it."""
    lines: list[tuple[str, frozenset[Variant]]] = []
    for variant, text in texts.items():
        own, one = text.split("\n"), frozenset({variant})
        matcher = SequenceMatcher(None, [line for line, _ in lines], own, autojunk=False)
        found: list[tuple[str, frozenset[Variant]]] = []
        for what, first, last, start, end in matcher.get_opcodes():
            if what == "equal":
                found += [(line, who | one) for line, who in lines[first:last]]
            else:
                found += lines[first:last]
                found += [(line, one) for line in own[start:end]]
        lines = found
    return lines


def condition(presence: Presence) -> str:
    """The expression for: this is there. Empty if it always is.

    Raises ValueError where two switches say something different of one line: no variant shows what both make.
    """
    states: dict[str, list[str]] = {}
    engines = list(dict.fromkeys(variant.engine for variant in presence))
    for engine in engines:
        states.setdefault(_state(engine, presence), []).append(engine)
    terms = []
    for state, chosen in states.items():
        if state == "never":
            continue
        by_engine = "" if len(chosen) == len(engines) else _one_of(chosen, engines)
        terms.append(_all([by_engine, state]))
    if "" in terms:
        return ""
    return terms[0] if len(terms) == 1 else f"(or {' '.join(terms)})"


def _state(engine: str, presence: Presence) -> str:
    of_engine = {variant.switch: there for variant, there in presence.items() if variant.engine == engine}
    base = of_engine.get("")
    if base is None:  # the object itself is there with a switch only
        base = any(of_engine.values())
    differing = [SWITCHES[name] for name, there in of_engine.items() if there != base]
    if not differing:
        return "" if base else "never"
    if base:
        return _all([each.thrown(False) for each in differing])
    terms = [each.thrown() for each in differing]
    return terms[0] if len(terms) == 1 else f"(or {' '.join(terms)})"


def _one_of(chosen: Sequence[str], engines: Sequence[str]) -> str:
    if len(chosen) == 1:
        return f'(eq .Values.engine "{chosen[0]}")'
    others = [each for each in ENGINES if each not in chosen]
    if len(others) == 1 and set(engines) == set(ENGINES):
        return f'(ne .Values.engine "{others[0]}")'
    return f"(has .Values.engine (list {' '.join(f'{chr(34)}{each}{chr(34)}' for each in chosen)}))"


def _all(terms: Iterable[str]) -> str:
    wanted = [each for each in terms if each]
    return wanted[0] if len(wanted) == 1 else f"(and {' '.join(wanted)})" if wanted else ""


def _if(expression: str) -> str:
    # Without the parentheses around all of it.
    whole = expression.startswith("(") and expression.find(")") == len(expression) - 1
    whole = whole or re.match(r"\((and|or) ", expression) is not None
    return f"{{{{- if {expression[1:-1] if whole else expression} }}}}"


def template(key: Key, texts: Mapping[Variant, str], variants: Sequence[Variant]) -> str:
    """The template of one object, which is in some of all variants."""
    kind, _, name = key
    lines = merged(texts)
    rows: list[str] = []
    open_condition = ""
    for line, who in lines:
        needed = condition({variant: variant in who for variant in texts})
        if needed != open_condition:
            if open_condition:
                rows.append("{{- end }}")
            if needed:
                rows.append(_if(needed))
            open_condition = needed
        rows.append(substituted(line.replace("{{", '{{ "{{" }}')))
    if open_condition:
        rows.append("{{- end }}")
    rows = _with_values(kind, name, rows)
    there = condition({variant: variant in texts for variant in variants})
    needed = _all([KINDS.get(kind, ""), there])
    body = "\n".join(["---", *rows])
    return f"{_if(needed)}\n{body}\n{{{{- end }}}}" if needed else body


def substituted(line: str) -> str:
    """A line with what values and the release put in it."""
    line = re.sub(r"kubeflow-bitfusion/([a-z-]+):0\.1\.0", lambda found: IMAGES[found[1]], line)
    for pattern, replacement in LINES:
        line = re.sub(pattern, replacement, line)
    return line


def _with_values(kind: str, name: str, rows: list[str]) -> list[str]:
    if kind == "ConfigMap" and name in FILES:
        return _with_file(*FILES[name], rows)
    if name.startswith("bitfusion-gpu-pods") and kind == "ValidatingAdmissionPolicyBinding":
        return _with_actions(rows)
    found: list[str] = []
    options = False  # within those of the program
    seen = False
    for row in rows:
        indent = row[: len(row) - len(row.lstrip())]
        option = next((each for each in OPTIONS if row.strip().startswith(f"- {each}")), "")
        if option:
            value, spelled = OPTIONS[option]
            found += [f"{{{{- with {value} }}}}", f"{indent}- {option}{{{{ {spelled} }}}}", "{{- end }}"]
            continue
        if row == "      - args:" and name in EXTRA and kind in ("Deployment", "DaemonSet") and not seen:
            options = seen = True
        elif options and re.match(r"        (command|env):", row):
            value = f".Values.extraArgs.{EXTRA[name]}"
            found += [f"{{{{- with {value} }}}}", "        {{- toYaml . | nindent 8 }}", "{{- end }}"]
            options = False
        if row.strip() == "enableServiceLinks: false":
            fields = ["imagePullSecrets"] + ["nodeSelector"] * (kind != "DaemonSet")
            for field in fields:
                found += [f"{{{{- with .Values.{field} }}}}", f"{indent}{field}:"]
                found += [f"{indent}  {{{{- toYaml . | nindent {len(indent) + 2} }}}}", "{{- end }}"]
        if name == "bitfusion-form" and row.strip() == 'value: ""':
            row = f'{indent}value: {{{{ include "bitfusion.image" .Values.images.notebook | quote }}}}'
        found.append(row)
    return _as_hook(HOOKS[kind, name], found) if (kind, name) in HOOKS else found


def _as_hook(annotations: Mapping[str, str], rows: list[str]) -> list[str]:
    notes = [f"    {name}: {text}" for name, text in annotations.items()]
    place = rows.index("metadata:") + 1
    if rows[place] == "  annotations:":
        return [*rows[: place + 1], *notes, *rows[place + 1 :]]
    return [*rows[:place], "  annotations:", *notes, *rows[place:]]


def _with_file(file: str, value: str, rows: list[str]) -> list[str]:
    start = next(place for place, row in enumerate(rows) if row.startswith(f"  {file}: |"))
    end = next(place for place in range(start, len(rows)) if re.match(r"kind: ", rows[place]))
    return [
        *rows[: start + 1],
        f"{{{{- if .Values.{value} }}}}",
        f"    {{{{- toYaml .Values.{value} | nindent 4 }}}}",
        "{{- else }}",
        *rows[start + 1 : end],
        "{{- end }}",
        *rows[end:],
    ]


def _with_actions(rows: list[str]) -> list[str]:
    start = rows.index("  validationActions:")
    return [
        *rows[: start + 1],
        '{{- if eq .Values.gpuPodsOnly "Deny" }}',
        "  - Deny",
        "{{- else }}",
        *rows[start + 1 : start + 3],
        "{{- end }}",
        *rows[start + 3 :],
    ]


def file_of(key: Key, text: str) -> str:
    """In which template's file an object stands: that of its program."""
    labels = _read(text)["metadata"].get("labels", {})
    return str(labels.get(NAME_LABEL, "common")).removeprefix("bitfusion-") + ".yaml"


def templates(builds: Mapping[Variant, str]) -> dict[str, str]:
    """Every file of the chart's folder templates that is made here, by its name."""
    objects: dict[Key, dict[Variant, str]] = {}
    for variant, text in builds.items():
        for key, document in documents(text).items():
            objects.setdefault(key, {})[variant] = document
    files: dict[str, list[str]] = {}
    for key, texts in sorted(objects.items(), key=lambda each: each[0]):
        body = template(key, texts, list(builds))
        files.setdefault(file_of(key, next(iter(texts.values()))), []).append(body)
    head = "{{- /* Written by `make chart` from manifests/engines; change those. */}}\n"
    return {name: head + "\n".join(bodies) + "\n" for name, bodies in sorted(files.items())}
