"""A page of JupyterLab that asks a person nothing, and one that nobody looks at."""

from __future__ import annotations

import json
from pathlib import Path

# No question about news (it would call home), none for a name at the first saving.
_SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"renameUntitledFileOnSave": False},
}

HIDE = """hidden => {
    const set = (name, value) => Object.defineProperty(document, name, { value, configurable: true });
    set('hidden', hidden);
    set('visibilityState', hidden ? 'hidden' : 'visible');
    document.dispatchEvent(new Event('visibilitychange'));
}"""
"""For `page.evaluate`: as a browser tells a page that another tab is in front, or no longer is."""


def write_quiet_settings(folder: Path) -> None:
    """Write them where JUPYTERLAB_SETTINGS_DIR points to, or will."""
    for name, content in _SETTINGS.items():
        file = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
