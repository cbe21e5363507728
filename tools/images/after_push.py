"""What is done with images that are in the registry: their sizes are printed, syft says what is in them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from tools.checkout import ROOT
from tools.images import registry
from tools.images.lock import Locked
from tools.images.plan import Order
from tools.images.wishes import Refused

SBOMS = "build/sbom"
_MB = 1e6


def tell(order: Order, image: Locked, insecure: bool) -> None:
    """Print what the registry has now: the size as it travels, and the user."""
    try:
        found = registry.images(f"{image.repository}@{image.digest}", insecure)
    except registry.RegistryFailed as failed:
        print(f"{order.reference}: size unknown: {failed}")
        return
    for each in found:
        size = f"{sum(each.layers) / _MB:.1f} MB compressed"
        if order.own_layers is not None:
            size += f", {sum(each.layers[-order.own_layers :]) / _MB:.1f} MB of it on top of its base"
        print(f"{order.reference} {each.platform}: {size}, USER {each.user or 'root'}")


def find_syft(wanted: str, program: str) -> str | None:
    """Where syft is, for `--sbom`; None if it is not to be used, or not found where that is no error."""
    if wanted == "buildkit" and program != "docker":
        raise Refused(f"--sbom buildkit is docker's; with {program} choose --sbom syft.")
    syft = shutil.which("syft") if wanted in ("auto", "syft") else None
    if wanted == "syft" and not syft:
        raise Refused("--sbom syft: syft was not found on PATH. Install it, or leave the option out.")
    return syft


def sbom(syft: str, images: Mapping[str, Locked], insecure: bool) -> None:
    """Write build/sbom/NAME.spdx.json for each image; a failure is told and no more."""
    (ROOT / SBOMS).mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **({"SYFT_REGISTRY_INSECURE_USE_HTTP": "true"} if insecure else {})}
    for name, image in images.items():
        file = f"{SBOMS}/{name}.spdx.json"
        argv = [
            syft,
            "scan",
            f"registry:{image.repository}@{image.digest}",
            "--quiet",
            "--output",
            f"spdx-json={file}",
        ]
        done = subprocess.run(argv, cwd=ROOT, env=variables)
        print(
            f"SBOM: {file}"
            if done.returncode == 0
            else f"No SBOM of {name}: syft ended with {done.returncode}."
        )
