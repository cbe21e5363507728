"""A long-running program as a command: options from a table of settings, one line for whatever goes wrong.

Exit status: 0 ended by a signal, 1 it could not start or run, 2 a wrong setting. Each is one line on stderr.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

from bitfusion_client.errors import BitfusionError, UsageError, WrongInput, WrongSetting
from bitfusion_client.listening.many_files import allow_many_files
from bitfusion_client.settings_table import GivenSettings, SettingsTable
from bitfusion_client.structured_logs import configure_logging
from bitfusion_client.version import VERSION
from bitfusion_cluster.program.common_settings import NAMESPACE_FILE, ProgramSettings, parse_label

OWN = ("bitfusion_", "notebook_controller_patch")
S = TypeVar("S")

log = logging.getLogger(__name__)


class CannotStart(BitfusionError):
    """Something this process needs is not there; `headline` says what, `next_step` what to do."""

    def __init__(self, headline: str, next_step: str) -> None:
        super().__init__(next_step=next_step)
        self.args = (headline, next_step)
        self.headline = headline


def port_not_opened(error: OSError, address: str, port: int, option: str) -> CannotStart:
    """What to raise for the error of a listener; `option` chooses another port."""
    in_use = error.errno == errno.EADDRINUSE
    reason = os.strerror(error.errno) if error.errno else str(error)  # asyncio's words repeat the address
    what = "is in use" if in_use else f"cannot be opened: {reason}"
    return CannotStart(
        f"Port {port} of {address} {what}.",
        f"stop the program that uses it, or choose another port with {option}.",
    )


def begin(settings: ProgramSettings) -> None:
    """Set up the log, say which variables are no settings, allow many files. The first call of a process."""
    allow_many_files()
    configure_logging(settings.log_format, settings.log_level)
    for name in settings.ignored:
        log.warning("this variable is not a setting and is ignored", extra={"variable": name})


@dataclass(frozen=True, slots=True)
class Program(Generic[S]):
    """One command, beside the table of its settings; its `main` is the entry point.

    Attributes:
        name: As it is typed.
        description: What it does.
        example: The setting that shows in the help how one is given in the environment.
        epilog: Follows that.
        table: Its settings.
        make: Its class of settings, whose fields have the names of the table's rows.
        process: The module whose ``run(settings)`` runs until a signal, and raises BitfusionError. Imported
            when it is called: the client of the cluster and the server take a third of a second, which
            --help should not wait for.
        whose: Whose namespace must be given outside a pod: "the controller's Service"; empty without one.
        finish: Checks and completes the values. Raises WrongSetting.
        extra: Of the distribution, with the packages that `process` imports.
    """

    name: str
    description: str
    example: str
    epilog: str
    table: SettingsTable
    make: Callable[..., S]
    process: str
    whose: str = ""
    finish: Callable[[GivenSettings], None] = lambda given: None
    extra: str = "controller"

    def main(self, args: Sequence[str] | None = None) -> int:
        """Entry point; returns the exit status."""
        if args is None:
            # The first process of a container sees no signal without a handler, and we import for a while.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _leave)
        try:
            settings = self.settings_of(sys.argv[1:] if args is None else args, os.environ)
            import_module(self.process).run(settings)
        except WrongInput as error:
            return self._told(error, 2)
        except BitfusionError as error:
            return self._told(error, 1)
        except ModuleNotFoundError as error:
            if str(error.name).startswith(OWN):
                raise
            cure = f"pip install '.[{self.extra}]', in a checkout of kubeflow-bitfusion"
            return self._told(UsageError(f"the Python module {error.name} is missing", cure), 2)
        return 0

    def settings_of(self, args: Sequence[str], environ: Mapping[str, str]) -> S:
        """Those of a command line. Raises WrongSetting and UsageError; ends at --help and --version."""
        options, rest = self._parser().parse_known_args(list(args))
        if rest:
            raise UsageError(f'unknown option "{rest[0]}"; {self.name} --help lists all')
        return self.read(vars(options), environ)

    def read(
        self,
        options: Mapping[str, str | None],
        environ: Mapping[str, str],
        namespace_file: Path = NAMESPACE_FILE,
    ) -> S:
        """Settings from options (by the names of the table, None: not given) and the environment.

        Raises WrongSetting, whose text is one line: the setting, its value, where it came from, what is
        allowed.
        """
        given = self.table.read(options, environ)
        if self.whose and "namespace" not in given.values:
            try:
                given.values["namespace"] = parse_label(namespace_file.read_text(encoding="utf-8").strip())
            except (OSError, ValueError):
                allowed = f"must be given outside a pod: the namespace of {self.whose}"
                raise WrongSetting("--namespace", "", allowed) from None
        self.finish(given)
        return self.make(**given.values, ignored=given.ignored)

    def _parser(self) -> argparse.ArgumentParser:
        shown = next(setting for setting in self.table.rows if setting.name == self.example)
        parser = _Parser(
            self.name,
            usage="%(prog)s [--option value …]",
            description=self.description,
            epilog=(
                f"Each option can also be set in the environment: {shown.option} is "
                f"{self.table.variable(shown)}.\nOptions take precedence.\n{self.epilog}"
            ),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        version = f"{self.name} {VERSION}"
        parser.add_argument("--version", action="version", version=version, help="show the version and end")
        for name, rows in self.table.groups.items():
            group = parser.add_argument_group(name)
            for setting in rows:
                group.add_argument(setting.option, metavar=setting.metavar, help=setting.help)
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
