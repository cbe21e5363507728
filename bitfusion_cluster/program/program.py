"""A long-running program as a command: options from a table of settings, one line for whatever goes wrong.

Exit status: 0 ended by a signal, 1 it could not start or run, 2 a wrong setting. Each is one line on stderr.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from bitfusion_client.errors import BitfusionError, UsageError, WrongInput
from bitfusion_client.version import VERSION
from bitfusion_cluster.program.settings_table import SettingsTable

OWN = ("bitfusion_", "notebook_controller_patch")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Program(Generic[S]):
    """One command.

    Attributes:
        name: As it is typed.
        description: What it does; `epilog` follows the options in the help.
        read: Makes the settings of options (by their names) and environment. Raises WrongSetting.
        run: Runs until a signal. Raises BitfusionError. Imported by the caller only when it is called: the
            client of the cluster and the server take a third of a second, which --help should not wait for.
        extra: Of the distribution, with the packages that `run` imports.
    """

    name: str
    description: str
    epilog: str
    table: SettingsTable
    read: Callable[[Mapping[str, str | None], Mapping[str, str]], S]
    run: Callable[[S], None]
    extra: str = "controller"

    def main(self, args: Sequence[str] | None = None) -> int:
        """Entry point; returns the exit status."""
        if args is None:
            # The first process of a container sees no signal without a handler, and we import for a while.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _leave)
        try:
            settings = self.settings_of(sys.argv[1:] if args is None else args, os.environ)
            self.run(settings)
        except WrongInput as error:
            return self._told(error, 2)
        except BitfusionError as error:
            return self._told(error, 1)
        except ModuleNotFoundError as error:
            if str(error.name).startswith(OWN):
                raise
            cure = f"pip install 'kubeflow-bitfusion[{self.extra}]'"
            return self._told(UsageError(f"the Python module {error.name} is missing", cure), 2)
        return 0

    def settings_of(self, args: Sequence[str], environ: Mapping[str, str]) -> S:
        """Those of a command line. Raises WrongSetting and UsageError; ends at --help and --version."""
        options, rest = self._parser().parse_known_args(list(args))
        if rest:
            raise UsageError(f'unknown option "{rest[0]}"; {self.name} --help lists all')
        return self.read(vars(options), environ)

    def _parser(self) -> argparse.ArgumentParser:
        parser = _Parser(
            self.name,
            usage="%(prog)s [--option value …]",
            description=self.description,
            epilog=self.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        shown = f"{self.name} {VERSION}"
        parser.add_argument("--version", action="version", version=shown, help="show the version and end")
        groups = {name: parser.add_argument_group(name) for name in self.table.groups}
        for setting in self.table.rows:
            groups[setting.group].add_argument(setting.option, metavar=setting.metavar, help=setting.help)
        return parser

    def _told(self, error: BitfusionError, status: int) -> int:
        *first, last = error.user_message.split("\n")
        sentences = [*(line if line.endswith((".", ":", ",")) else f"{line}." for line in first), last]
        text = " ".join(" ".join(sentences).split())
        print(f"{self.name}: {text[:1].upper()}{text[1:]}", file=sys.stderr, flush=True)
        return status


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help lists all options")


def _leave(number: int, frame: object) -> NoReturn:
    sys.exit(0)
