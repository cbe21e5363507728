"""Makes Kubeflow's notebook form write Bitfusion's annotations on the notebooks it creates.

A configuration of gunicorn, which serves the form's backend: mounted into its pod as one file and named in
``GUNICORN_CMD_ARGS`` (``--config FILE``). Image and command stay as they are. Once a worker has loaded the
backend, `apps.common.form.set_notebook_gpus` is wrapped: after it has set the limits, the same rules as in
the admission webhook add annotations and a label. A size that cannot be is refused as the backend refuses:
HTTP 400, with the reason in the form's error bar. Whatever else goes wrong here is told in one line of
gunicorn's log, and the form works as if this file were not there.

Runs on the backend's own Python, 3.7 (Kubeflow 1.4 to 1.6), 3.8 (1.7), 3.10 (1.8 to 1.10) or 3.12 (1.11), and
needs no package: `kubeflow-bitfusion form --hook` appends what it needs. Names of settings of gunicorn are
not used here for anything else, since gunicorn takes them from this file.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The end of the generated file sets them.
VERSION = ""
IMAGE_RULES: tuple[tuple[str, str, str], ...] | None = None  # image, os, version; None: the default rules
SOURCES: dict[str, str] = {}  # name and source of modules, each after those it needs while it is imported

BACKEND = "apps.common.form"
FUNCTION = "set_notebook_gpus"
NAME = "bitfusion form hook"


def post_worker_init(worker: Any) -> None:
    """Wrap the backend's function. Called by gunicorn in every worker, before its first request."""
    try:
        form = importlib.import_module(BACKEND)
        wrapped = getattr(form, FUNCTION)
        if not hasattr(wrapped, "bitfusion_form_hook"):
            setattr(form, FUNCTION, wrap(wrapped, load_changed(), bad_request_of(form), worker.log))
        _tell(worker.log, f"{VERSION} is on")
    except Exception as error:
        _tell(worker.log, "is off; the form works without it", error)


def wrap(
    original: Callable[..., Any],
    changed: Callable[[Any], tuple[Any, str]],
    bad_request: Callable[[str], BaseException] | None,
    log: Any,
) -> Callable[..., Any]:
    """`original`, after which the notebook it was given (its first argument) has our changes.

    `changed` gives the changed notebook, or None and the words of a refusal; `bad_request` makes the
    backend's own error of these.
    """

    def set_notebook_gpus(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        refusal = None
        try:
            notebook = args[0] if args else kwargs["notebook"]
            result, words = changed(notebook)
            if result is not None:
                take_over(notebook, result)
            elif bad_request is not None:
                refusal = bad_request(words)
            else:
                _tell(log, "cannot refuse here: " + words)
        except Exception as error:
            _tell(log, "left a notebook unchanged", error)
        if refusal is not None:
            raise refusal
        return answer

    set_notebook_gpus.bitfusion_form_hook = VERSION  # type: ignore[attr-defined]  # tells a second call
    return set_notebook_gpus


def take_over(notebook: Any, result: Any) -> None:
    """Annotations and labels of `result` into `notebook`, which the backend holds on to, as do its maps."""
    new = result.get("metadata") or {}
    old = notebook.setdefault("metadata", {}) if new else {}
    for part in ("annotations", "labels"):
        if new.get(part) == old.get(part):
            continue
        if isinstance(old.get(part), dict):
            added = {name: value for name, value in new[part].items() if old[part].get(name) != value}
            removed = [name for name in old[part] if name not in new[part]]
            old[part].update(added)
            for name in removed:
                del old[part][name]
        else:
            old[part] = new[part]


def load_changed() -> Callable[[Any], tuple[Any, str]]:
    """The function that `wrap` wants, made of the embedded modules (of the installed ones without any)."""
    load_sources()
    from bitfusion_client.errors import InvalidRequest
    from bitfusion_client.kubernetes.client_images import DEFAULT_RULES, ImageRule
    from bitfusion_client.kubernetes.notebook_changes import apply_changes, notebook_changes
    from bitfusion_client.kubernetes.refusals import refusal

    rules = DEFAULT_RULES if IMAGE_RULES is None else tuple(ImageRule(*rule) for rule in IMAGE_RULES)

    def changed(notebook: Any) -> tuple[Any, str]:
        try:
            return apply_changes(notebook, notebook_changes(notebook, rules)), ""
        except InvalidRequest as error:
            return None, refusal(error)

    return changed


def load_sources() -> None:
    """Make the embedded modules importable. If one of them fails, none is left."""
    done = []
    try:
        for name, source in SOURCES.items():
            module = types.ModuleType(name)
            package, _, short = name.rpartition(".")
            done.append(name)
            sys.modules[name] = module
            exec(compile(source, f"<{name} in the {NAME}>", "exec", dont_inherit=True), module.__dict__)
            if package:
                setattr(sys.modules[package], short, module)
    except BaseException:
        for name in done:
            del sys.modules[name]
        raise


def bad_request_of(form: Any) -> Callable[[str], BaseException] | None:
    """The backend's own BadRequest, of werkzeug, which its error handler turns into HTTP 400."""
    found = getattr(form, "BadRequest", None)
    if found is None:
        found = getattr(sys.modules.get("werkzeug.exceptions"), "BadRequest", None)
    return found if callable(found) else None


def _tell(log: Any, what: str, error: Exception | None = None) -> None:
    try:
        reason = "" if error is None else f": {type(error).__name__}: {error}"
        line = " ".join(f"{NAME} {what}{reason}".split())
        (log.info if error is None else log.warning)("%s", line)
    except Exception:
        pass  # a log that fails must not stop the form either
