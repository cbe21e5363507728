"""The version of this package, for programs that run without its metadata (`-I -S`)."""

from __future__ import annotations

PACKAGE = "kubeflow-bitfusion"
VERSION = "0.1.0"  # pyproject.toml has the same; a test compares them
