"""The doctor's checks of an installed kernelspec: its files, interpreter, settings and cached kernel_info."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from bitfusion_client.errors import BitfusionError
from bitfusion_kernel.install import kernelspec
from bitfusion_kernel.install.finding import FAIL, PASS, WARN, Finding
from bitfusion_kernel.install.kernel_info import ask_kernel
from bitfusion_kernel.install.spec_store import InstalledSpec
from bitfusion_kernel.protocol.arguments import last_value
from bitfusion_kernel.settings.resolve import current_settings
from bitfusion_kernel.settings.table import BY_NAME
from bitfusion_kernel.settings.unknown_variables import hints
from bitfusion_kernel.wrapped_kernel import KERNEL_FILE, KERNEL_INFO_FILE


def check_kernelspec(spec: InstalledSpec) -> Iterator[Finding]:
    """All that can be said of one spec; ends at the first finding that makes the others meaningless."""
    subject = f"kernelspec {spec.name}"
    again = f"bitfusion-kernel install --name {spec.name} (with the options it was installed with)"
    yield Finding(PASS, subject, f"Jupyter sees it in {spec.folder}")
    damage = _damage(spec)
    if damage:
        yield Finding(FAIL, subject, damage, again)
        return
    yield check_settings(spec, f"{subject} settings")
    yield check_start(spec, f"{subject} start")
    yield check_cached_information(spec, f"{subject} ipykernel", again)


def _damage(spec: InstalledSpec) -> str:
    """Why Jupyter could not start the proxy from this spec; empty if it could."""
    argv = spec.kernel.get("argv")
    if not isinstance(argv, list) or len(argv) < 4 or not all(isinstance(word, str) for word in argv):
        return "its command line is damaged"
    for path in kernelspec.needed_files(spec.kernel):
        if not os.path.exists(path):
            return f"{path} is gone"
    folder = last_value(argv, "spec")
    if folder is not None and os.path.realpath(folder) != os.path.realpath(spec.folder):
        return f"it was moved here from {folder}"
    return ""


def check_settings(spec: InstalledSpec, subject: str) -> Finding:
    """Whether the spec's options, the environment and the config files together are valid."""
    try:
        settings = current_settings(kernelspec.entry_options(spec.kernel), os.environ)
    except BitfusionError as error:
        return Finding.from_error(subject, error)
    left = "what is left of " if settings.takes_what_is_left else ""
    found = f"{left}{settings.request.describe()}, acquire {settings.acquire}"
    odd = hints(os.environ)
    if odd:
        return Finding(WARN, subject, f"{found}; {' '.join(odd)}", "correct the variable, or remove it")
    return Finding(PASS, subject, found)


def check_start(spec: InstalledSpec, subject: str) -> Finding:
    """Whether the spec's own command answers Jupyter; it asks for no GPU meanwhile."""
    argv = [word.replace("{resource_dir}", spec.folder) for word in spec.kernel["argv"]]
    env = {**(spec.kernel.get("env") or {}), BY_NAME["acquire"].variable: "first_cell"}
    try:
        ask_kernel(argv, env)
    except BitfusionError as error:
        found = f"the kernel does not start: {error.answered}"
        return Finding(FAIL, subject, found, f"install what is missing for {argv[0]}; Jupyter's log has more")
    return Finding(PASS, subject, "the kernel's own command answers")


def check_cached_information(spec: InstalledSpec, subject: str, again: str) -> Finding:
    """Whether the wrapped kernel starts, and is still the one whose kernel_info was cached."""
    try:
        wrapped = spec.content(KERNEL_FILE)
        cached = spec.content(KERNEL_INFO_FILE)
        real = ask_kernel(wrapped["argv"], wrapped.get("env") or {})
    except (OSError, ValueError, KeyError) as error:
        return Finding(FAIL, subject, f"the spec's files cannot be read ({error})", again)
    except BitfusionError as error:
        return Finding.from_error(subject, error)
    different = differences(cached, real)
    if different:
        changes = "; ".join(different)
        return Finding(WARN, subject, f"the kernel has changed since it was installed: {changes}", again)
    version = real.get("implementation_version", "")
    answer = f"{wrapped['argv'][0]} answers as cached ({real.get('implementation')} {version})"
    return Finding(PASS, subject, answer)


def differences(cached: dict[str, Any], real: dict[str, Any]) -> list[str]:
    """In words, what differs in two kernel_info contents; IPython's tip of the day does not count."""
    found = []
    for key in sorted({*cached, *real}):
        before, now = cached.get(key), real.get(key)
        if key == "banner":
            before, now = _without_tip(before), _without_tip(now)
        if before != now:
            short = isinstance(before, (str, int, type(None))) and isinstance(now, (str, int, type(None)))
            found.append(f"{key} {before} → {now}" if short and key != "banner" else f"{key} differs")
    return found


def _without_tip(banner: object) -> str:
    return re.sub(r"(?m)^Tip: .*\n?", "", str(banner or "")).strip()
