"""What a RUN gets of this machine: name servers, certificates, proxies, where pip and apt find packages.

It comes in variables and below /dev, of which nothing gets into the image.
"""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.made_once import made_once, user_cache

_BUILD = "/dev/build"
_CERTIFICATES = f"{_BUILD}/ca-certificates.crt"
_SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# As docker passes them to every RUN, without being asked.
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PIP = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
_APT_SOURCES = ("sources.list", "sources.list.d")


@dataclass(frozen=True)
class MachineSettings:
    """Variables for a RUN, and files and folders of this machine with the place where it sees them."""

    env: Mapping[str, str]
    binds: tuple[tuple[str, str], ...]


def machine_settings() -> MachineSettings:
    """As they are now; pip and apt are asked for their own, so that files and variables count alike."""
    pip = settings_from(_said(sys.executable, "-m", "pip", "config", "list"), os.environ)
    text = apt_configuration(_said("apt-config", "dump", "Acquire"))
    name = hashlib.sha256(text.encode()).hexdigest()[:20]
    apt = made_once(user_cache() / "images" / "apt" / name, lambda folder: _write(folder / "apt.conf", text))
    binds = [(str(apt / "apt.conf"), f"{_BUILD}/apt.conf")]
    binds += [(f"/etc/apt/{name}", f"{_BUILD}/{name}") for name in _APT_SOURCES]
    there = tuple(each for each in binds if os.path.exists(each[0]))
    return MachineSettings({**pip.env, "APT_CONFIG": f"{_BUILD}/apt.conf"}, (*pip.binds, *there))


def settings_from(pip_lines: str, environ: Mapping[str, str]) -> MachineSettings:
    """Those of pip and TLS, from what `pip config list` prints and from variables.

    Packages that lie in folders of this machine (`find-links`) are seen below /dev, too.
    """
    pip = _pip_settings(pip_lines)
    env = {name: environ[name] for name in _PROXIES if name in environ}
    env |= {f"PIP_{name.upper().replace('-', '_')}": pip[name] for name in _PIP if name in pip}
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    env["PIP_ROOT_USER_ACTION"] = "ignore"
    binds = [("/etc/resolv.conf", "/etc/resolv.conf")]
    links = []
    for number, place in enumerate(pip.get("find-links", "").split()):
        if Path(place).is_dir():
            binds.append((place, f"{_BUILD}/links-{number}"))
            place = f"{_BUILD}/links-{number}"
        links.append(place)
    if links:
        env["PIP_FIND_LINKS"] = " ".join(links)
    certificates = pip.get("cert") or environ.get("SSL_CERT_FILE") or _SYSTEM_CERTIFICATES
    if Path(certificates).is_file():
        binds.append((certificates, _CERTIFICATES))
        env |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), _CERTIFICATES)
    return MachineSettings(env, tuple(binds))


def apt_configuration(acquire: str) -> str:
    """A file for APT_CONFIG from what `apt-config dump Acquire` prints: our sources and proxies."""
    lines = [line for line in acquire.splitlines() if line.startswith("Acquire::") and "::CaInfo" not in line]
    places = zip(("sourcelist", "sourceparts"), _APT_SOURCES, strict=True)
    lines += [f'Dir::Etc::{key} "{_BUILD}/{name}";' for key, name in places]
    # Downloads by a user of their own would need folders of that user's.
    lines += [f'Acquire::https::CaInfo "{_CERTIFICATES}";', 'APT::Sandbox::User "root";']
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except OSError:
        return ""  # no apt here


def _pip_settings(lines: str) -> dict[str, str]:
    """What pip goes by: variables over a section of its own over what is for all."""
    settings = {}
    for section in ("global", "install", ":env:"):
        for line in lines.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{section}."):
                settings[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return settings
