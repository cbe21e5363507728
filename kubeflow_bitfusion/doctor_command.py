"""`kubeflow-bitfusion doctor`: a table of what is well in a cluster, what is not, and what to do."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bitfusion_client.errors import UsageError
from kubeflow_bitfusion.cluster_options import add_kubeconfig, namespace_name

if TYPE_CHECKING:
    from bitfusion_cluster.doctor.finding import Finding
    from bitfusion_cluster.doctor.seen import Seen

DEFAULT_NAMESPACE = "kubeflow"

DESCRIPTION = """\
Checks a cluster and shows in a table what is installed, what is reachable and what is wrong, each with what
to do. It changes nothing: what it creates is a dry run. Run it as an admin; what an account may not see is
said, and not checked."""

EPILOG = """\
examples:
  kubeflow-bitfusion doctor
  kubeflow-bitfusion doctor --kubeconfig ~/.kube/other
  kubeflow-bitfusion doctor --json | jq '.findings[] | select(.state != "ok")'

exit status: 0 nothing failed (there may be warnings), 1 something failed or there is no way into a cluster,
2 wrongly asked"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the parser of `kubeflow-bitfusion`."""
    parser = commands.add_parser(
        "doctor",
        help="check a cluster: what is installed, reachable or wrong, and what to do",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_kubeconfig(parser)
    parser.add_argument(
        "--namespace",
        type=namespace_name,
        metavar="NAME",
        help=f"where the programs are (default: where the webhooks point, otherwise {DEFAULT_NAMESPACE})",
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Returns 0, or 1 if something failed; raises BitfusionError."""
    try:
        from bitfusion_cluster.api.client import connect
    except ModuleNotFoundError as error:
        cure = "pip install '.[controller]', in a checkout of kubeflow-bitfusion"
        raise UsageError(f"the Python module {error.name} is missing", cure) from None
    from bitfusion_cluster.doctor.checks import found_namespace
    from bitfusion_cluster.doctor.finding import FAIL
    from bitfusion_cluster.doctor.seen import seen_by
    from kubeflow_bitfusion.doctor_table import as_json, conclusion, table

    api = connect(options.kubeconfig)
    try:
        place = options.namespace or found_namespace(seen_by(api, DEFAULT_NAMESPACE), DEFAULT_NAMESPACE)
        found = list(look(seen_by(api, place)))
    finally:
        api.close()
    if options.json:
        print(as_json(found, place), end="")
    else:
        print(f"{api.server}\n")
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size((100, 24)).columns
        print(table(found, width, is_terminal and not os.environ.get("NO_COLOR")))
        print(conclusion(found, place))
    return 1 if any(each.state == FAIL for each in found) else 0


def look(seen: Seen) -> Iterator[Finding]:
    """All findings of a cluster, with those of the form, which the cluster's own package knows nothing of."""
    from bitfusion_cluster.doctor.checks import Check, findings
    from kubeflow_bitfusion.check_form import check_form
    from kubeflow_bitfusion.check_network import check_network

    return findings(seen, (Check("network", check_network), Check("form", check_form)))
