"""`bitfusion-kernel doctor`: runs its checks and prints the report, PASS, WARN or FAIL a line."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bitfusion_client.errors import BitfusionError
from bitfusion_kernel.install import kernelspec, spec_store
from bitfusion_kernel.install.check_client import check_client
from bitfusion_kernel.install.check_environment import (
    check_bytecode,
    check_pidfds,
    check_private_folder,
    check_process_1,
)
from bitfusion_kernel.install.check_kernelspec import check_kernelspec
from bitfusion_kernel.install.check_pod import check_pod
from bitfusion_kernel.install.finding import FAIL, Finding
from bitfusion_kernel.install.spec_store import InstalledSpec
from bitfusion_kernel.settings.resolve import current_settings


def run_checks(name: str | None = None) -> int:
    """Print the report, of all installed specs or the one called `name`. 0 if nothing failed, else 1."""
    failed = 0
    for finding in all_findings(name):
        print("\n".join(finding.lines()), flush=True)
        failed += finding.verdict == FAIL
    print(f"{failed} check{'s' * (failed > 1)} failed." if failed else "Nothing failed.")
    return 1 if failed else 0


def all_findings(name: str | None) -> Iterator[Finding]:
    """The findings, one after the other, as they are made."""
    specs: list[InstalledSpec] = []
    try:
        specs = [spec_store.find(name)] if name else spec_store.installed_specs()
    except BitfusionError as error:
        yield Finding.from_error("kernelspec", error)
    else:
        if not specs:
            found = "Jupyter sees no Bitfusion kernel"
            yield Finding(FAIL, "kernelspec", found, "bitfusion-kernel install --user")
    for spec in specs:
        yield from check_kernelspec(spec)
    yield check_private_folder()
    yield check_pidfds()
    yield check_process_1()
    yield check_bytecode()
    yield from _clients(specs)
    yield from check_pod(os.environ)


def _clients(specs: list[InstalledSpec]) -> Iterator[Finding]:
    """Each client once: it is the same for all specs, unless one names its own."""
    asked: set[str | None] = set()
    for options in [kernelspec.entry_options(spec.kernel) for spec in specs] or [[]]:
        try:
            client = current_settings(options, os.environ).client
        except BitfusionError:
            continue  # told by check_kernelspec
        if client not in asked:
            asked.add(client)
            yield from check_client(client)
