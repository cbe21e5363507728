"""The command `bitfusion-identity` and its settings: one table for options, environment and help."""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_client.errors import WrongSetting
from bitfusion_client.settings_table import GivenSettings, Setting, SettingsTable, parse_text
from bitfusion_cluster.program.common_settings import (
    MONITORING,
    ClusterSettings,
    kubeconfig_row,
    monitoring_rows,
    name_row,
    namespace_row,
)
from bitfusion_cluster.program.program import Program
from bitfusion_device_plugin.identity.limits import KINDS, PARSERS, LimitRules
from bitfusion_device_plugin.identity.records import DEFAULT_NAME
from bitfusion_device_plugin.identity.served import Profiles, parse_profiles


@dataclass(frozen=True, kw_only=True)
class Settings(ClusterSettings):
    """What one process runs with; made by `read_settings`, read by `process.py`."""

    limits: LimitRules
    name: str = DEFAULT_NAME
    issuer_files: str | None = None
    source_files: str | None = None
    command: str = "bitfusion-pool"
    profiles: Profiles | None = None


def _limit_rows() -> tuple[Setting, ...]:
    what = {
        "gpus": ("N", "GPUs of all its leases and waiting requests together"),
        "share": ("F", "of each GPU, such as 0.5"),
        "leases": ("N", "leases and waiting requests together"),
        "waiting": ("N", "waiting requests"),
        "units": ("N", "hundredths of a GPU of all its leases and waiting requests together"),
    }
    rows = []
    for kind in KINDS:
        metavar, text = what[kind]
        annotation = f"annotation bitfusion.io/limit-{kind}"
        rows.append(
            Setting(
                f"default_{kind}",
                metavar,
                f"{text}, for a namespace without the {annotation}. Default: --most-{kind}",
                PARSERS[kind],
            )
        )
        rows.append(
            Setting(
                f"most_{kind}",
                metavar,
                f"the most that the {annotation} may name. Default: what the issuer may give",
                PARSERS[kind],
            )
        )
    return tuple(rows)


TABLE = SettingsTable(
    "BITFUSION_IDENTITY_",
    {
        "the cluster": (
            kubeconfig_row(),
            namespace_row("controller's own Lease is"),
            name_row("the Lease, and of who manages the Secrets", DEFAULT_NAME),
            Setting(
                "profiles",
                "KEY=VALUE",
                "a label of namespaces that are all served, but those with bitfusion.io/identity=false or "
                "bitfusion.io/admission=ignore. It needs the rights and the policy of "
                "manifests/components/profiles. Default: only those with bitfusion.io/identity=true",
                parse_profiles,
            ),
        ),
        "the pool": (
            Setting(
                "issuer_files",
                "FOLDER",
                "servers.conf, client.yaml and ca.crt of an issuer at the pool's service: each namespace "
                "gets a token of its own. Read again when they change",
                parse_text,
            ),
            Setting(
                "source_files",
                "FOLDER",
                "in place of --issuer-files: the three files that every namespace gets as they are, such as "
                "those of VMware's product. The pool cannot tell namespaces apart then",
                parse_text,
            ),
            Setting(
                "command",
                "FILE",
                "the bitfusion-pool that asks the issuer. Default: the one on PATH",
                parse_text,
            ),
        ),
        "limits of a namespace": _limit_rows(),
        MONITORING: monitoring_rows(),
    },
)


def _finish(given: GivenSettings) -> None:
    values = given.values
    if bool(values.get("issuer_files")) == bool(values.get("source_files")):
        raise WrongSetting(
            "--issuer-files",
            str(values.get("issuer_files", "")),
            "must be given, or --source-files in its place: where tokens come from",
        )
    values["limits"] = _taken_rules(values)


def _taken_rules(values: dict[str, object]) -> LimitRules:
    """The limits, which are taken out of `values`."""
    default: list[tuple[str, float]] = []
    most: list[tuple[str, float]] = []
    for kind in KINDS:
        for found, name in ((default, f"default_{kind}"), (most, f"most_{kind}")):
            value = values.pop(name, None)
            if isinstance(value, float):
                found.append((kind, value))
    bounds = dict(most)
    for kind, value in default:
        if value > bounds.get(kind, value):
            raise WrongSetting(f"--default-{kind}", f"{value:g}", f"must be at most --most-{kind}")
    return LimitRules(tuple(default), tuple(most))


PROGRAM = Program(
    "bitfusion-identity",
    """\
Gives every namespace with the label bitfusion.io/identity=true a token of the Bitfusion pool, in its Secret
bitfusion-client, and renews it in time; with --profiles every profile, too. It reads no other Secret, and
that one only where an administrator has applied the Role for it.""",
    "issuer_files",
    "One replica works, elected by a Lease. While the pool is away Secrets stay as they are.",
    TABLE,
    Settings,
    "bitfusion_device_plugin.identity.process",
    "the controller's Service",
    _finish,
)
main, read_settings = PROGRAM.main, PROGRAM.read
