"""`bitfusion-pool serve`: the options of the service, and starting it."""

from __future__ import annotations

import argparse
import os
import sys

from bitfusion_client.errors import BitfusionError, ClientFailed, WrongInput
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WRONG_INPUT = 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the settings of the service to the parser of `serve`; ``--dir`` is the whole command's."""
    from bitfusion_pool.service.settings import DEFAULT_FILE, TABLE

    parser.add_argument(
        "--settings", metavar="FILE", help=f"a TOML file of settings. Default: {DEFAULT_FILE}"
    )
    parser.add_argument("--print-unit", action="store_true", help="print a systemd unit, and end")
    for setting in TABLE.rows:
        if setting.name != "dir":
            parser.add_argument(setting.option, metavar=setting.metavar, help=setting.help)


def serve(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Serve until a signal; returns the exit status: 0 after a signal, 1 cannot start, 2 a wrong setting."""
    from bitfusion_pool.service.settings import read_settings

    if options.print_unit:
        return _print_unit(options.settings)
    try:
        settings = read_settings(vars(options), environ, options.settings)
        from bitfusion_client.structured_logs import configure_logging
        from bitfusion_pool.service.process import serve as serve_until_signal

        configure_logging(settings.log_format, settings.log_level)
        serve_until_signal(settings, environ)
    except WrongInput as error:
        return _told(error, WRONG_INPUT)
    except BitfusionError as error:
        return _told(error, 1)
    return 0


def _print_unit(settings: str | None) -> int:
    """Print the unit, unless its account could not read the Python that it starts."""
    import bitfusion_pool.service.process  # noqa: F401  # what the service imports is looked at
    from bitfusion_pool.service.account_access import check_account
    from bitfusion_pool.service.systemd_unit import ACCOUNT, unit_text

    try:
        check_account(ACCOUNT)
    except ClientFailed as error:
        print(f"Error: {error}. What to do: {error.next_step}", file=sys.stderr)
        return 1
    sys.stdout.write(unit_text(sys.executable, os.path.abspath(settings) if settings else None))
    return 0


def _told(error: BitfusionError, status: int) -> int:
    print(f"Error: {error}", file=sys.stderr)
    return status
