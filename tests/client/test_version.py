"""The version that processes without the package's metadata know is that of the package."""

from __future__ import annotations

from pathlib import Path

import bitfusion_client
from bitfusion_client.version import PACKAGE, VERSION


def test_it_is_that_of_pyproject() -> None:
    text = (Path(bitfusion_client.__file__).parent.parent / "pyproject.toml").read_text()
    assert f'[project]\nname = "{PACKAGE}"\nversion = "{VERSION}"\n' in text
