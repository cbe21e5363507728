"""The generated hook in the backend's own Pythons, called as the backends of Kubeflow 1.4 to 1.11 call."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.client_images import DEFAULT_RULES, parse_image_rules
from bitfusion_client.kubernetes.notebook_changes import apply_changes, notebook_changes
from bitfusion_cluster.webhooks.review import Review, Verdict
from jupyter_ext.spawner import form_hook
from jupyter_ext.spawner.hook_bundle import hook_file
from notebook_controller_patch.admission.notebook import admit_notebook
from tests.jupyter_ext.spawner.form_backend import VERSIONS, BackendVersion, find_python, write_backend
from tests.support.machine import scaled

RUNNER = Path(__file__).with_name("run_hook.py")
RULES = parse_image_rules([{"image": "team/*", "os": "centos8", "version": 401}])
OLD_IMAGE = "public.ecr.aws/j1r0q0g6/notebooks/notebook-servers/jupyter-scipy:v1.4"
INJECTED = {"auto-management/bitfusion": "injection"}
UBUNTU_22 = {**INJECTED, "bitfusion-client/os": "ubuntu22", "bitfusion-client/version": "454"}
UBUNTU_20 = {**INJECTED, "bitfusion-client/os": "ubuntu20", "bitfusion-client/version": "450"}


def body(gpus: object = None, **more: object) -> dict[str, Any]:
    answer = {"name": "digits", "image": "kubeflownotebookswg/jupyter-scipy:v1.8.0", **more}
    return answer if gpus is None else {**answer, "gpus": gpus}


def chosen(vendor: str, num: object, **more: object) -> dict[str, Any]:
    return body({"num": num, "vendor": vendor}, **more)


# what users choose, and the annotations they get for it
ASKING = [
    (chosen("bitfusion.io/gpu-amount", "2"), UBUNTU_22),
    (chosen("bitfusion.io/gpu-amount", 2), UBUNTU_22),
    (chosen("bitfusion.io/gpu-50", "1"), UBUNTU_22),
    (chosen("bitfusion.io/gpu-8gib", "4", image=OLD_IMAGE), UBUNTU_20),
    (chosen("bitfusion.io/gpu-3x50", "1"), UBUNTU_22),
    (chosen("bitfusion.io/gpu-3x8gib", "2"), UBUNTU_22),
    (
        chosen("bitfusion.io/gpu-50", "1", image="mirror.example/team/lab:v3"),
        {**INJECTED, "bitfusion-client/os": "centos8", "bitfusion-client/version": "401"},
    ),
    # the user's own win
    (
        chosen("bitfusion.io/gpu-50", "1", annotations={"bitfusion-client/os": "mine", "other/one": "kept"}),
        {**UBUNTU_22, "bitfusion-client/os": "mine", "other/one": "kept"},
    ),
    (chosen("bitfusion.io/gpu-25", "8", configurations=["add-secret"]), UBUNTU_22),
]
PASSING = [
    body({"num": "none"}),
    body({"num": "none", "vendor": "bitfusion.io/gpu-50"}),
    chosen("nvidia.com/gpu", "1"),
    chosen("nvidia.com/gpu", 2, annotations={"bitfusion-client/os": "mine"}),
    chosen("bitfusion.io/fpga", "100"),  # somebody else's
    chosen("example.com/never-heard-of", "1"),
]
# refused by the backend itself, in its own words
THEIRS = [
    (body(), "No value provided for: gpus"),
    (body({}), "'gpus' must have a 'num' field"),
    (body({"num": "1"}), "'gpus' must have a 'vendor' field"),
]
NO_SIZE = (
    "is not a Bitfusion size; sizes are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 "
    "(percent), gpu-8gib and gpu-8000mib, also for 2 to 1024 GPUs at once: gpu-3x50. If the form offers "
    "it, ask your administrator to correct the form's list."
)
REFUSED = [
    (
        chosen("bitfusion.io/gpu-amount", "0"),
        'Invalid value "0" for bitfusion.io/gpu-amount: must be a whole number from 1 to 1024. '
        "If the notebook needs no GPU, choose None for GPUs or leave the key out.",
    ),
    (
        chosen("bitfusion.io/gpu-50", "-1"),
        'Invalid value "-1" for bitfusion.io/gpu-50: must be a whole number from 1 to 1024.',
    ),
    (
        chosen("bitfusion.io/gpu-0", "1"),
        f"bitfusion.io/gpu-0 {NO_SIZE}",
    ),
    (
        chosen("bitfusion.io/gpu-101", "1"),
        f"bitfusion.io/gpu-101 {NO_SIZE}",
    ),
    (
        chosen("bitfusion.io/gpu-1x50", "1"),
        "bitfusion.io/gpu-1x50 is not a Bitfusion size; did you mean bitfusion.io/gpu-50? If the form "
        "offers it, ask your administrator to correct the form's list.",
    ),
    (
        chosen("bitfusion.io/gpu-512x50", "4"),
        'Invalid value "4" for bitfusion.io/gpu-512x50: must be a whole number from 1 to 2, each of 512 '
        "GPUs.",
    ),
    (
        chosen("bitfusion.io/gpu", "100"),  # the unit that is counted, never a request
        "bitfusion.io/gpu is not a Bitfusion size: it is what the cluster counts; only the pod "
        "injector may write it. Write bitfusion.io/gpu-amount: 1 for a whole GPU, bitfusion.io/gpu-50: 1 for "
        "half of one.",
    ),
    (
        chosen("bitfusion.io/GPU_050", "1"),
        "bitfusion.io/GPU_050 is not a Bitfusion size; did you mean bitfusion.io/gpu-50? If the form "
        "offers it, ask your administrator to correct the form's list.",
    ),
    (
        chosen("bitfusion.io/gpu-percent", "50"),
        "bitfusion.io/gpu-percent also needs bitfusion.io/gpu-amount. Add bitfusion.io/gpu-amount: 1.",
    ),
]
HALF_A_GPU = (
    'Invalid value "0.5" for bitfusion.io/gpu-amount: must be a whole number from 1 to 1024. For part of a '
    "GPU, request a share: bitfusion.io/gpu-50: 1 is half a GPU."
)


@pytest.fixture(params=VERSIONS, ids=lambda version: f"kubeflow-{version.kubeflow}")
def version(request: pytest.FixtureRequest) -> BackendVersion:
    found: BackendVersion = request.param
    return found


@pytest.fixture
def backend(tmp_path: Path, version: BackendVersion) -> Path:
    return write_backend(tmp_path / "src", version)


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hook") / "bitfusion_form_hook.py"
    path.write_text(hook_file(RULES, "1.2.3"), encoding="utf-8")
    return path


def run(python: str, backend: Path, hook: Path | None, bodies: list[Any]) -> dict[str, Any]:
    """Answers of a backend, [status, notebook or words] for each body, and the lines in its log."""
    asked = [item if isinstance(item, list) else [item, None] for item in bodies]
    command = [python, "-I", "-S", "-B", str(RUNNER), str(backend), str(hook or "")]
    result = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=scaled(50)
    )
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def python_of(version: BackendVersion) -> str:
    found = find_python(version.python)
    if found is None:
        pytest.skip(f"no Python {version.python} here, which Kubeflow {version.kubeflow}'s form runs on")
    return found


def reviewed(notebook: dict[str, Any]) -> Verdict:
    """What the admission webhook says to the notebook that the plain form would post."""
    return admit_notebook(
        Review("1", "CREATE", "Notebook", "digits", "ada", notebook, None, True, "ada", ""),
        RULES,
    )


def webhook(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook as the webhook leaves it."""
    verdict = reviewed(notebook)
    assert verdict.allowed, verdict.message
    patched: dict[str, Any] = jsonpatch.apply_patch(copy.deepcopy(notebook), list(verdict.patch))
    return patched


def test_the_form_makes_the_same_notebook_as_the_webhook(
    version: BackendVersion, backend: Path, hook: Path
) -> None:
    python = python_of(version)
    bodies = [given for given, _ in ASKING] + PASSING
    plain = run(python, backend, None, bodies)["answers"]
    hooked = run(python, backend, hook, bodies)
    assert [status for status, _ in plain] == [200] * len(bodies)
    assert hooked["answers"] == [[200, webhook(notebook)] for _, notebook in plain]
    for (_, notebook), (_, wanted) in zip(hooked["answers"], ASKING, strict=False):
        expected = {"notebooks.kubeflow.org/server-type": "jupyter", **wanted}
        assert notebook["metadata"]["annotations"] == expected
        assert notebook["metadata"]["labels"]["bitfusion.io/requested"] == "true"
        changes = notebook_changes(notebook, RULES)
        assert changes.is_empty()  # the webhook behind it has nothing left to do
    assert hooked["log"] == [["info", "bitfusion form hook 1.2.3 is on"]] * 2  # one for each call
    assert hooked["packages"] == []


def test_other_vendors_and_none_pass_untouched(version: BackendVersion, backend: Path, hook: Path) -> None:
    python = python_of(version)
    assert run(python, backend, hook, PASSING)["answers"] == run(python, backend, None, PASSING)["answers"]


def test_a_size_that_cannot_be_is_the_forms_own_400_with_our_words(
    version: BackendVersion, backend: Path, hook: Path
) -> None:
    python = python_of(version)
    bodies = [given for given, _ in REFUSED]
    assert run(python, backend, hook, bodies)["answers"] == [[400, words] for _, words in REFUSED]
    half = run(python, backend, hook, [chosen("bitfusion.io/gpu-amount", "0.5")])["answers"][0]
    theirs = "gpus.num is not a valid number: 0.5"
    assert half == [400, theirs if version.number == "int" else HALF_A_GPU]


def test_what_the_form_refuses_itself_stays_its_own(
    version: BackendVersion, backend: Path, hook: Path
) -> None:
    python = python_of(version)
    answers = run(python, backend, hook, [given for given, _ in THEIRS])["answers"]
    assert answers == [[400, words] for _, words in THEIRS]


def test_what_an_admin_fixed_for_everybody_is_annotated_too(
    version: BackendVersion, backend: Path, hook: Path
) -> None:
    fixed = {"num": "1", "vendor": "bitfusion.io/gpu-50", "vendors": []}
    defaults = {"gpus": {"readOnly": True, "value": fixed}}
    status, notebook = run(python_of(version), backend, hook, [[body(), defaults]])["answers"][0]
    assert status == 200
    assert UBUNTU_22.items() <= notebook["metadata"]["annotations"].items()


BROKEN_HOOKS = {
    "a module that cannot be loaded": (
        "\nSOURCES['bitfusion_client.errors'] = 'raise ValueError(\"broken\\\\n in two lines\")'\n",
        "bitfusion form hook is off; the form works without it: ValueError: broken in two lines",
    ),
    "a module that is no Python": (
        "\nSOURCES['bitfusion_client.errors'] = 'this is no Python'\n",
        "bitfusion form hook is off; the form works without it: SyntaxError: invalid syntax",
    ),
    "a backend that looks otherwise": (
        "\nFUNCTION = 'set_gpus_of_another_year'\n",
        "bitfusion form hook is off; the form works without it: AttributeError: "
        "module 'apps.common.form' has no attribute 'set_gpus_of_another_year'",
    ),
    "rules that fail when they are used": (
        "\nIMAGE_RULES = ((1, 2, 3),)\n",
        "bitfusion form hook left a notebook unchanged: ",
    ),
}


@pytest.mark.parametrize("broken", BROKEN_HOOKS)
def test_a_hook_that_fails_never_stops_the_form(
    version: BackendVersion, backend: Path, hook: Path, tmp_path: Path, broken: str
) -> None:
    python = python_of(version)
    more, words = BROKEN_HOOKS[broken]
    path = tmp_path / "broken.py"
    path.write_text(hook.read_text(encoding="utf-8") + more, encoding="utf-8")
    bodies = [chosen("bitfusion.io/gpu-50", "1"), *PASSING]
    result = run(python, backend, path, bodies)
    assert result["answers"] == run(python, backend, None, bodies)["answers"]
    warnings = [line for level, line in result["log"] if level == "warning"]
    assert warnings[0].startswith(words)
    assert all("\n" not in line for line in warnings)


def test_it_is_told_where_a_refusal_cannot_be_given(backend: Path, version: BackendVersion) -> None:
    """Without werkzeug's error there is no way to refuse: the size goes on to those behind the form."""
    lines: list[str] = []

    class Log:
        def warning(self, text: str, *values: object) -> None:
            lines.append(text % values)

        info = warning

    posted: list[object] = []
    wrapped = form_hook.wrap(lambda notebook: posted.append(notebook), lambda _: (None, "why"), None, Log())
    wrapped({"metadata": {}})
    assert posted == [{"metadata": {}}]
    assert lines == ["bitfusion form hook cannot refuse here: why"]


def _fail(notebook: object) -> tuple[Any, str]:
    raise ZeroDivisionError


def test_a_log_that_fails_does_not_stop_the_form_either() -> None:
    wrapped = form_hook.wrap(lambda notebook: "made", _fail, None, None)
    assert wrapped({"metadata": {}}) == "made"


TEXTS = st.text(max_size=6)
VENDORS = st.sampled_from(["gpu-amount", "gpu-50", "gpu-8gib", "gpu-101", "gpu", "gpu-percent", "gpu-", ""])
NUMBERS = st.one_of(st.integers(-1, 9), st.integers(-1, 9).map(str), st.sampled_from(["0.5", "1e1", "x", ""]))
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["bitfusion-client/os", "auto-management/bitfusion", "bitfusion.io/request", "other"]),
    st.one_of(TEXTS, st.sampled_from(["-n 2 -p 0.5", '{"gpus": 1}'])),
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "annotations": st.none() | ANNOTATIONS,
        "labels": st.none() | st.dictionaries(st.sampled_from(["bitfusion.io/requested", "app"]), TEXTS),
    },
)


@given(METADATA, VENDORS, NUMBERS, st.sampled_from([None, OLD_IMAGE, "team/lab"]))
def test_any_choice_gives_the_same_notebook_or_the_same_words_as_the_webhook(
    metadata: dict[str, Any], vendor: str, number: object, image: str | None
) -> None:
    container: dict[str, Any] = {"name": "digits", "image": image, "resources": {}}
    plain = {
        "kind": "Notebook",
        "metadata": metadata,
        "spec": {"template": {"spec": {"containers": [container]}}},
    }

    def original(notebook: dict[str, Any]) -> None:
        found = notebook["spec"]["template"]["spec"]["containers"][0]
        found["resources"]["limits"] = {"bitfusion.io/" + vendor: number}

    rules = form_hook.IMAGE_RULES
    form_hook.IMAGE_RULES = tuple((rule.image, rule.client_os, rule.client_version) for rule in RULES)
    try:
        changed = form_hook.load_changed()
    finally:
        form_hook.IMAGE_RULES = rules
    lines: list[str] = []
    log = SimpleNamespace(warning=lambda text, *values: lines.append(text % values))
    hooked = copy.deepcopy(plain)
    words = None
    try:
        form_hook.wrap(original, changed, ValueError, log)(hooked)
    except ValueError as refused:
        words = str(refused)
    original(plain)
    verdict = reviewed(plain)
    assert words == (None if verdict.allowed else verdict.message)
    if verdict.allowed:
        assert hooked == jsonpatch.apply_patch(plain, list(verdict.patch))
    assert lines == []


def test_the_notebook_is_found_however_the_backend_passes_it() -> None:
    changed = form_hook.load_changed()
    limits = {"bitfusion.io/gpu-50": "1"}
    notebook = {"spec": {"template": {"spec": {"containers": [{"resources": {"limits": limits}}]}}}}
    expected = apply_changes(notebook, notebook_changes(notebook, DEFAULT_RULES))
    wrapped = form_hook.wrap(lambda notebook, body, defaults: None, changed, None, None)
    for call in ("positions", "names"):
        given = copy.deepcopy(notebook)
        wrapped(given, {}, {}) if call == "positions" else wrapped(notebook=given, body={}, defaults={})
        assert given == expected


def test_maps_that_the_backend_holds_on_to_are_changed_in_place() -> None:
    annotations, labels = {"mine": "1", "bitfusion-client/os": "ubuntu22"}, {"bitfusion.io/requested": "true"}
    notebook = {"metadata": {"annotations": annotations, "labels": labels}}
    result = apply_changes(notebook, notebook_changes({**notebook, "spec": {}}))
    form_hook.take_over(notebook, result)
    assert notebook["metadata"]["annotations"] is annotations
    assert notebook == result


def test_the_generated_file_runs_alone_and_leaves_nothing_half_loaded(
    hook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name in sys.modules if name.partition(".")[0] == "bitfusion_client"]
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    space: dict[str, Any] = {"__name__": "__config__"}
    exec(compile(hook.read_text(encoding="utf-8"), "hook", "exec"), space)
    space["SOURCES"]["bitfusion_client.request.gpu_request"] = "1 / 0"
    with pytest.raises(ZeroDivisionError):
        space["load_sources"]()
    assert not [name for name in sys.modules if name.partition(".")[0] == "bitfusion_client"]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=lambda value: str(value)[:60])
def test_the_words_are_those_of_the_webhook(given: dict[str, Any], words: str) -> None:
    limits = {given["gpus"]["vendor"]: given["gpus"]["num"]}
    notebook = {"spec": {"template": {"spec": {"containers": [{"resources": {"limits": limits}}]}}}}
    assert reviewed(notebook).message == words
