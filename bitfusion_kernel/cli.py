"""The command line of `bitfusion-kernel`: install, list, remove, doctor."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from bitfusion_client.any_bytes import print_any_bytes
from bitfusion_client.command.command_line import parse_options
from bitfusion_client.errors import BitfusionError, UsageError
from bitfusion_client.request.gpu_request import GpuRequest
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
    print_any_bytes()
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.command(arguments)
        sys.stdout.flush()
    except BitfusionError as error:
        print(error.user_message, file=sys.stderr)
        return 1
    except BrokenPipeError:  # `bitfusion-kernel doctor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's flush at its end
        return 128 + signal.SIGPIPE
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
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    _add_install(commands.add_parser("install", help="make the kernel known to Jupyter"))
    listing = commands.add_parser("list", help="the Bitfusion kernels that Jupyter sees")
    listing.set_defaults(command=_list)
    removing = commands.add_parser("remove", help="remove a Bitfusion kernel from Jupyter, or all")
    removing.add_argument("name", nargs="?", help="its name, as `list` shows it")
    removing.add_argument("--all", action="store_true", help="every Bitfusion kernel that Jupyter sees")
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
        "--display-name",
        help="name in Jupyter's launcher (default: Bitfusion and the size, if need be with --name)",
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
    name = kernelspec.checked_name(arguments.name)
    display_name = arguments.display_name or _own_display_name(name, request)
    prefix = os.path.abspath(os.path.expanduser(arguments.prefix)) if arguments.prefix else None
    before = spec_store.installed_in(spec_store.spec_folder(name, user=arguments.user, prefix=prefix))
    folder = spec_store.install(
        name,
        display_name,
        user=arguments.user,
        prefix=prefix,
        request=request,
        acquire=arguments.acquire,
    )
    print(f'Installed kernel "{os.path.basename(folder)}" ({display_name}) in {folder}')
    if before is not None:
        _, shown, size, acquire, _ = _row(before)
        print(f"It replaces the kernel that was there: {shown}, size {size}, acquire {acquire}")
    for other, place in spec_store.with_display_name(display_name, but=name):
        print(f'Jupyter\'s launcher will show two tiles "{display_name}": also that of "{other}" in {place}')
    if not any(spec.folder == folder for spec in spec_store.installed_specs()):
        data = os.path.dirname(os.path.dirname(folder))
        print(f"Jupyter of this environment does not look there unless JUPYTER_PATH holds {data}")
    return 0


def _own_display_name(name: str, request: GpuRequest | None) -> str:
    """A name that no other kernel has: with the size, and where that is not enough with the spec's name."""
    from bitfusion_kernel.install import spec_store

    plain = kernelspec.DEFAULT_DISPLAY_NAME
    size = _size(request) if request else ""
    display_name = f"{plain} ({size})" if size else plain
    if spec_store.with_display_name(display_name, but=name):
        return f"{plain} ({size}, {name})" if size else f"{plain} ({name})"
    return display_name


def _request(arguments: argparse.Namespace) -> GpuRequest | None:
    """The size given, or None if there was none. Raises InvalidRequest, UsageError."""
    words: list[str] = []
    for setting in REQUEST_SETTINGS:
        given = getattr(arguments, setting.name) or []
        for value in given if setting.repeatable else given[-1:]:
            words += [setting.install_flags[0], value]
    return parse_options(words, base=GpuRequest(), units=True)[0] if words else None


def _size(request: GpuRequest) -> str:
    return GpuRequest(request.gpus, request.partial, request.memory_mib).describe()


def _list(_: argparse.Namespace) -> int:
    from bitfusion_client.text_table import display_width, pad
    from bitfusion_kernel.install.spec_store import installed_specs

    specs = installed_specs()
    if not specs:
        print("No Bitfusion kernel is installed. `bitfusion-kernel install --user` makes one.")
        return 0
    rows = [("NAME", "SHOWN AS", "SIZE", "ACQUIRE", "FOLDER")]
    rows += [_row(spec) for spec in specs]
    widths = [max(display_width(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join([*map(pad, row, widths), row[4]]))
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
    from bitfusion_kernel.install import spec_store

    if bool(arguments.name) == arguments.all:
        raise UsageError(
            "bitfusion-kernel remove takes the name of one kernel, or --all",
            "`bitfusion-kernel list` shows the names.",
        )
    if arguments.all:
        return _remove_all()
    spec = spec_store.find(arguments.name)
    spec_store.remove(spec)
    _tell_removed(spec)
    return 0


def _remove_all() -> int:
    """Also those that are hidden behind others of the same name; 1 if some could not be removed."""
    from bitfusion_kernel.install import spec_store

    left: set[str] = set()
    removed = 0
    while specs := [spec for spec in spec_store.installed_specs() if spec.folder not in left]:
        for spec in specs:
            try:
                spec_store.remove(spec)
            except UsageError as error:
                left.add(spec.folder)
                print(error.user_message, file=sys.stderr)
            else:
                removed += 1
                _tell_removed(spec)
    if not removed and not left:
        print("No Bitfusion kernel is installed where Jupyter looks.")
    return 1 if left else 0


def _tell_removed(spec: InstalledSpec) -> None:
    print(f'Removed kernel "{spec.name}" from {spec.folder}')


def _doctor(arguments: argparse.Namespace) -> int:
    from bitfusion_kernel.install.doctor import run_checks

    return run_checks(arguments.name)


if __name__ == "__main__":
    sys.exit(main())
