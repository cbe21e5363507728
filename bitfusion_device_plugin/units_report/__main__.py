"""The program that `bitfusion-pool status --kubernetes` becomes: its options, its output, its exit status.

It knows of the pool what `bitfusion-pool status --json` says, which it is given in a file, and no more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

if __name__ == "__main__":  # started as a file: its package is not beside the interpreter's own
    sys.path.append(os.path.abspath(f"{os.path.dirname(os.path.abspath(__file__))}/../.."))

from bitfusion_client.one_line import one_line
from bitfusion_device_plugin.units_report.cluster_objects import cluster_objects
from bitfusion_device_plugin.units_report.cluster_report import ClusterReport, cluster_report
from bitfusion_device_plugin.units_report.kubectl import ClusterUnreadable, ask_kubectl, read_objects
from bitfusion_device_plugin.units_report.report_text import report_json, report_text


def main(args: Sequence[str] | None = None) -> int:
    """Print the report; returns the exit status."""
    options = _parser().parse_args(args)
    try:
        report = _report(options)
        text = json.dumps(report_json(report), indent=2) + "\n" if options.json else report_text(report)
    except ClusterUnreadable as error:
        print(f"Error: {error}. What to do: {error.next_step}", file=sys.stderr)
        return 1
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("units-report", description=__doc__)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--objects", metavar="FILE", help="file with kubectl's output; -: standard input")
    parser.add_argument("--context", default="", metavar="NAME", help="passed on to kubectl")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="passed on to kubectl")
    pool = parser.add_mutually_exclusive_group(required=True)
    pool.add_argument("--pool", metavar="FILE", help="file with the output of `bitfusion-pool status --json`")
    pool.add_argument("--no-pool", default="", metavar="WHY", help="why there is no such file")
    return parser


def _report(options: argparse.Namespace) -> ClusterReport:
    status = _read_status(options.pool) if options.pool else None
    if options.objects:
        items = read_objects(options.objects)
    else:
        items = ask_kubectl(options.context, options.kubeconfig)
    return cluster_report(cluster_objects(items), status, options.no_pool)


def _read_status(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            status = json.load(file)
        return {name: status[name] for name in ("leases", "waiting", "left_out")}
    except (OSError, ValueError, TypeError, KeyError) as error:
        cure = "name a file with the output of: bitfusion-pool status --json"
        raise ClusterUnreadable(f"{one_line(path)} cannot be read: {one_line(error)}", cure) from None


if __name__ == "__main__":
    sys.exit(main())
