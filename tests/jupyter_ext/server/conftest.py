"""What runs a Jupyter server is left out where none is installed, as in the tests of other Pythons."""

from __future__ import annotations

from importlib.util import find_spec

NEEDS_ONE = ["test_events.py", "test_live.py", "test_openapi.py", "test_who_may.py"]

collect_ignore = [] if find_spec("jupyter_server") else NEEDS_ONE
