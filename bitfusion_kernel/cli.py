"""The command line of `bitfusion-kernel`: install, list, remove, doctor."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from bitfusion_client.command_line import parse_options
from bitfusion_client.errors import BitfusionError
from bitfusion_client.quantities import parse_memory
from bitfusion_client.request import GpuRequest
from bitfusion_kernel.install import kernelspec
from bitfusion_kernel.settings.table import REQUEST_SETTINGS
from bitfusion_kernel.settings.values import ACQUIRE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_kernel.install.spec_store import InstalledSpec

FROM_SETTINGS = "from settings"
"""What `list` shows where a kernelspec leaves the choice to config file and environment."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 (it could not be done), 2 (wrongly asked)."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.command(arguments)
    except BitfusionError as error:
        print(error.user_message, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"bitfusion-kernel: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bitfusion-kernel", description="The Jupyter kernel whose cells run on GPUs of a Bitfusion pool."
    )
    commands = parser.add_subparsers(required=True, metavar="install | list | remove | doctor")
    _add_install(commands.add_parser("install", help="make the kernel known to Jupyter"))
    listing = commands.add_parser("list", help="the Bitfusion kernels that Jupyter sees")
    listing.set_defaults(command=_list)
    removing = commands.add_parser("remove", help="remove a Bitfusion kernel from Jupyter")
    removing.add_argument("name", help="its name, as `list` shows it")
    removing.set_defaults(command=_remove)
    doctor = commands.add_parser("doctor", help="check that everything the kernel needs is there")
    doctor.add_argument("--name", help="check this kernel only")
    doctor.set_defaults(command=_doctor)
    return parser


def _add_install(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group(
        "where (default: for everybody on this machine)"
    ).add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for the current user")
    where.add_argument(
        "--sys-prefix", action="store_const", const=sys.prefix, dest="prefix", help=f"into {sys.prefix}"
    )
    where.add_argument("--prefix", help="into this prefix, e.g. of a conda or virtual environment")
    parser.add_argument(
        "--name", default=kernelspec.DEFAULT_NAME, help="name of the kernelspec (default: %(default)s)"
    )
    parser.add_argument(
        "--display-name", help="name in Jupyter's launcher (default: Bitfusion, and the size)"
    )
    size = parser.add_argument_group(
        "size (as the `bitfusion` command spells it; environment and config file win)"
    )
    for setting in REQUEST_SETTINGS:
        size.add_argument(
            *setting.install_flags,
            dest=setting.name,
            metavar=setting.metavar,
            action="append",
            help=f"{setting.help}, e.g. {setting.example}" + ("; may be repeated" * setting.repeatable),
        )
    parser.add_argument("--acquire", choices=ACQUIRE, help="when GPUs are asked for (default: first_cell)")
    parser.set_defaults(command=_install)


def _install(arguments: argparse.Namespace) -> int:
    from bitfusion_kernel.install import spec_store

    request = _request(arguments)
    display_name = arguments.display_name
    if not display_name:
        display_name = kernelspec.DEFAULT_DISPLAY_NAME + (f" ({_size(request)})" if request else "")
    folder = spec_store.install(
        arguments.name,
        display_name,
        user=arguments.user,
        prefix=arguments.prefix,
        request=request,
        acquire=arguments.acquire,
    )
    print(f'Installed kernel "{os.path.basename(folder)}" ({display_name}) in {folder}')
    if not any(spec.folder == folder for spec in spec_store.installed_specs()):
        data = os.path.dirname(os.path.dirname(folder))
        print(f"Jupyter of this environment does not look there unless JUPYTER_PATH holds {data}")
    return 0


def _request(arguments: argparse.Namespace) -> GpuRequest | None:
    """The size given, or None if there was none. Raises InvalidRequest, UsageError."""
    words: list[str] = []
    for setting in REQUEST_SETTINGS:
        given = getattr(arguments, setting.name) or []
        for value in given if setting.repeatable else given[-1:]:
            in_mib = setting.name == "memory"  # the client's own -m knows no units
            words += [setting.install_flags[0], str(parse_memory(value, "-m")) if in_mib else value]
    return parse_options(words, base=GpuRequest())[0] if words else None


def _size(request: GpuRequest) -> str:
    return GpuRequest(request.gpus, request.partial, request.memory_mib).describe()


def _list(_: argparse.Namespace) -> int:
    from bitfusion_kernel.install.spec_store import installed_specs

    specs = installed_specs()
    if not specs:
        print("No Bitfusion kernel is installed. `bitfusion-kernel install --user` makes one.")
        return 0
    rows = [("NAME", "SHOWN AS", "SIZE", "ACQUIRE", "FOLDER")]
    rows += [_row(spec) for spec in specs]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]))
    return 0


def _row(spec: InstalledSpec) -> tuple[str, str, str, str, str]:
    try:
        request = kernelspec.written_request(spec.kernel)
        size = _size(request) if request else FROM_SETTINGS
    except BitfusionError:
        size = "invalid"
    acquire = kernelspec.written_acquire(spec.kernel) or FROM_SETTINGS
    return spec.name, str(spec.kernel.get("display_name", "")), size, acquire, spec.folder


def _remove(arguments: argparse.Namespace) -> int:
    from bitfusion_kernel.install.spec_store import remove

    print(f'Removed kernel "{arguments.name}" from {remove(arguments.name)}')
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from bitfusion_kernel.install.doctor import run_checks

    return run_checks(arguments.name)


if __name__ == "__main__":
    sys.exit(main())
