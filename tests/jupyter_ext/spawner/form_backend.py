"""A stand-in for the backend of Kubeflow's notebook form, as far as the hook can tell the difference.

`write_backend` makes the package tree of one version: ``apps.common.form`` with the same function, calling
shape and errors, a small WSGI application ``entrypoint:app`` that calls it through the module as the real one
does, and ``werkzeug.exceptions.BadRequest``, which is all of werkzeug that matters here. What differs between
versions is told in `VERSIONS`.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple


class BackendVersion(NamedTuple):
    """A version of Kubeflow, the Python its backend runs on, and how it reads the number of GPUs."""

    kubeflow: str
    python: str
    number: str


# up to 1.6 the limit becomes a number, from 1.7 on text
VERSIONS = (
    BackendVersion("1.4", "3.7", "int"),
    BackendVersion("1.6", "3.7", "int"),
    BackendVersion("1.7", "3.8", "str"),
    BackendVersion("1.10", "3.10", "str"),
    BackendVersion("1.11", "3.12", "str"),
)

_EXCEPTIONS = """
class HTTPException(Exception):
    code = 500

    def __init__(self, description=None):
        super().__init__()
        self.description = description


class BadRequest(HTTPException):
    code = 400
"""

_FORM = """
from werkzeug.exceptions import BadRequest


def get_form_value(body, defaults, field):
    given = body.get(field)
    if field not in defaults:
        return given
    if defaults[field].get("readOnly"):
        if field in body:
            raise BadRequest("'%s' is readonly but a value was provided: %s" % (field, given))
        return defaults[field]["value"]
    if given is None:
        raise BadRequest("No value provided for: %s" % field)
    return given


def set_notebook_image(notebook, body, defaults):
    notebook["spec"]["template"]["spec"]["containers"][0]["image"] = get_form_value(body, defaults, "image")


def set_notebook_gpus(notebook, body, defaults):
    chosen = get_form_value(body, defaults, "gpus")
    if "num" not in chosen:
        raise BadRequest("'gpus' must have a 'num' field")
    if chosen["num"] == "none":
        return
    if "vendor" not in chosen:
        raise BadRequest("'gpus' must have a 'vendor' field")
    try:
        number = NUMBER(chosen["num"])
    except ValueError:
        raise BadRequest("gpus.num is not a valid number: %s" % chosen["num"])
    resources = notebook["spec"]["template"]["spec"]["containers"][0]["resources"]
    limits = resources.get("limits", {})
    limits[chosen["vendor"]] = number
    resources["limits"] = limits


def set_notebook_configurations(notebook, body, defaults):
    for label in body.get("configurations", []):
        notebook["metadata"]["labels"][label] = "true"
"""

_ENTRYPOINT = '''
import json

from apps.common import form
from werkzeug.exceptions import HTTPException

DEFAULTS = {
    "image": {"value": "kubeflownotebookswg/jupyter-scipy:v1.8.0"},
    "gpus": {"value": {"num": "none", "vendor": "", "vendors": []}},
}


def create_notebook(body, defaults=DEFAULTS):
    """What the backend posts to Kubernetes. `annotations` of the body stand for an admin's own template."""
    annotations = {"notebooks.kubeflow.org/server-type": "jupyter"}
    annotations.update(body.get("annotations", {}))
    requests = {"cpu": "0.5", "memory": "1Gi"}
    container = {"name": body["name"], "resources": {"requests": requests}, "volumeMounts": [], "env": []}
    pod = {"serviceAccountName": "default-editor", "containers": [container], "volumes": []}
    metadata = {"name": body["name"], "namespace": "ada", "labels": {"app": body["name"]}}
    metadata["annotations"] = annotations
    notebook = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Notebook", "metadata": metadata}
    notebook["spec"] = {"template": {"spec": pod}}
    form.set_notebook_image(notebook, body, defaults)
    form.set_notebook_gpus(notebook, body, defaults)
    form.set_notebook_configurations(notebook, body, defaults)
    return notebook


def answer(body, defaults=DEFAULTS):
    """Status, and the notebook or the words of the form's error bar."""
    try:
        return 200, create_notebook(body, defaults)
    except HTTPException as error:
        return error.code, error.description
    except Exception as error:
        return 500, "An error occured in the backend."


def app(environ, start_response):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    status, result = answer(json.loads(environ["wsgi.input"].read(length).decode("utf-8")))
    content = json.dumps([status, result]).encode("utf-8")
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
    start_response("%d ." % status, headers)
    return [content]
'''


def write_backend(folder: Path, version: BackendVersion) -> Path:
    """The backend's tree, as it lies in ``/src`` of the image."""
    files = {
        "werkzeug/__init__.py": "",
        "werkzeug/exceptions.py": _EXCEPTIONS,
        "apps/__init__.py": "",
        "apps/common/__init__.py": "",
        "apps/common/form.py": _FORM.replace("NUMBER(", version.number + "("),
        "entrypoint.py": _ENTRYPOINT,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@functools.cache
def find_python(version: str) -> str | None:
    """An interpreter of this version (``3.7``): of pyenv, or on PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    named = shutil.which(f"python{version}")
    for path in [*found, named] if named else found:
        question = "import sys; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run([path, "-I", "-S", "-c", question], capture_output=True, text=True)
        if answer.stdout.strip() == version:
            return path
    return None
