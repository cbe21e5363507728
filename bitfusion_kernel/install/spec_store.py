"""Bitfusion kernelspecs on disk: writes, finds and removes them, where jupyter_client looks for kernels.

Used by `bitfusion-kernel install | list | remove | doctor`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from typing import Any, NamedTuple

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_core.paths import SYSTEM_JUPYTER_PATH, jupyter_data_dir

import bitfusion_kernel
from bitfusion_client.errors import UsageError
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.install import kernelspec
from bitfusion_kernel.install.kernel_info import ask_kernel
from bitfusion_kernel.wrapped_kernel import WrappedKernel

ENTRY = os.path.abspath(bitfusion_kernel.__file__).replace("__init__.py", "__main__.py")
LOGOS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "logo")


class InstalledSpec(NamedTuple):
    """One of our kernelspecs as Jupyter finds it: name, folder, and the content of its kernel.json."""

    name: str
    folder: str
    kernel: dict[str, Any]

    def content(self, file: str) -> dict[str, Any]:
        """A JSON file of the spec's folder. Raises OSError, ValueError."""
        return _read(self.folder, file)


def install(
    name: str,
    display_name: str,
    *,
    user: bool = False,
    prefix: str | None = None,
    request: GpuRequest | None = None,
    acquire: str | None = None,
) -> str:
    """Write the spec that wraps the running interpreter's ipykernel; returns its folder.

    Starts that kernel once, to cache its kernel_info. An older spec of ours with this name is replaced.

    Raises:
        UsageError: A spec of this name is not ours, or its folder is not writable.
        KernelDied: The interpreter has no ipykernel that starts.
    """
    from ipykernel.kernelspec import get_kernel_dict

    name = kernelspec.checked_name(name)
    prefix = os.path.abspath(os.path.expanduser(prefix)) if prefix else None
    folder = spec_folder(name, user=user, prefix=prefix)
    _refuse_foreign(name, folder)
    wrapped = get_kernel_dict(python_arguments=["-Xfrozen_modules=off"])
    argv, env, language = wrapped["argv"], wrapped.get("env", {}), wrapped["language"]
    interrupt_mode = wrapped.get("interrupt_mode", "")
    files = WrappedKernel(argv, env, language, ask_kernel(argv, env), interrupt_mode).files()
    files[kernelspec.KERNEL_JSON] = kernelspec.kernel_json(
        python=sys.executable,
        entry=ENTRY,
        folder=folder,
        display_name=display_name,
        language=language,
        wrapped_metadata=wrapped.get("metadata", {}),
        request=request,
        acquire=acquire,
    )
    staged = tempfile.mkdtemp(prefix="bitfusion-kernel-install-")
    try:
        shutil.copytree(LOGOS, staged, dirs_exist_ok=True)
        for file, content in files.items():
            _write(staged, file, content)
        os.chmod(staged, 0o755)  # mkdtemp's 0700 would hide a system-wide spec from everybody else
        KernelSpecManager().install_kernel_spec(staged, kernel_name=name, user=user, prefix=prefix)
    except OSError as error:
        raise UsageError(
            f"cannot write {folder}: {error.strerror or error}",
            "install for yourself with --user, or into this environment with --sys-prefix",
        ) from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return folder


def spec_folder(name: str, *, user: bool = False, prefix: str | None = None) -> str:
    """Where Jupyter puts a spec; with neither user nor prefix for the whole machine."""
    if user:
        base = jupyter_data_dir()
    elif prefix:
        base = os.path.join(prefix, "share", "jupyter")
    else:
        base = SYSTEM_JUPYTER_PATH[0]
    return os.path.join(base, "kernels", name)


def installed_specs() -> list[InstalledSpec]:
    """Our specs that Jupyter sees, in the order of their names; an unreadable kernel.json is skipped."""
    places = sorted(KernelSpecManager().find_kernel_specs().items())
    return [spec for name, folder in places if (spec := installed_in(folder, name)) is not None]


def find(name: str) -> InstalledSpec:
    """One of our specs by its name. Raises UsageError if there is none, or it is not ours."""
    ours = installed_specs()
    for spec in ours:
        if spec.name == name.lower():
            return spec
    try:
        folder = KernelSpecManager().get_kernel_spec(name).resource_dir
    except (NoSuchKernel, OSError, ValueError):
        known = ", ".join(spec.name for spec in ours) or "none"
        raise UsageError(
            f'there is no Bitfusion kernel "{name}"', f"installed: {known}; see `bitfusion-kernel list`"
        ) from None
    raise UsageError(
        f'"{name}" in {folder} is not a Bitfusion kernel',
        f"remove it with `jupyter kernelspec remove {name}`",
    )


def with_display_name(display_name: str, *, but: str) -> list[tuple[str, str]]:
    """Name and folder of the kernels, of any kind, that Jupyter shows so; without the one called `but`."""
    found = []
    for name, folder in sorted(KernelSpecManager().find_kernel_specs().items()):
        try:
            shown = _read(folder, kernelspec.KERNEL_JSON).get("display_name")
        except (OSError, ValueError):
            continue
        if shown == display_name and name != but:
            found.append((name, folder))
    return found


def installed_in(folder: str, name: str = "") -> InstalledSpec | None:
    """Our spec in a folder, whether or not Jupyter looks there; `name`: as Jupyter calls it."""
    try:
        kernel = _read(folder, kernelspec.KERNEL_JSON)
    except (OSError, ValueError):
        return None
    ours = kernelspec.is_ours(kernel)
    return InstalledSpec(name or os.path.basename(folder), folder, kernel) if ours else None


def remove(spec: InstalledSpec) -> None:
    """Remove one of our specs. Raises UsageError."""
    try:
        if os.path.islink(spec.folder):
            os.unlink(spec.folder)
        else:
            shutil.rmtree(spec.folder)
    except OSError as error:
        raise UsageError(
            f"cannot remove {spec.folder}: {error.strerror or error}", "ask whoever installed it"
        ) from None


def _refuse_foreign(name: str, folder: str) -> None:
    try:
        kernel = _read(folder, kernelspec.KERNEL_JSON)
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        kernel = {}
    if not kernelspec.is_ours(kernel):
        raise UsageError(
            f'{folder} holds another kernel called "{name}"', "choose another name: --name bitfusion"
        )


def _read(folder: str, name: str) -> dict[str, Any]:
    """A file that holds a JSON object. Raises OSError, ValueError."""
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        content = json.load(file)
    if not isinstance(content, dict):
        raise ValueError(f"{name} does not hold a JSON object")
    return content


def _write(folder: str, name: str, content: dict[str, Any]) -> None:
    # `backslashreplace` writes a byte of a path that is no text as JSON does
    with open(os.path.join(folder, name), "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.write("\n")
