"""What needs a browser and JupyterLab is left out where an environment has the packages' tests alone."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("nbformat") and find_spec("playwright") else ["labextension"]
