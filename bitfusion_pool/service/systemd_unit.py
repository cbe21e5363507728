"""The systemd unit of the service, for the Python and the settings file it is printed with."""

from __future__ import annotations

import shlex

ACCOUNT = "bitfusion-pool"
"""The system account as which the service runs."""
_UNIT = """\
# Written by `bitfusion-pool serve --print-unit`.
[Unit]
Description=Bitfusion pool: shares this machine's GPUs between its users
# The driver's own services make its device files, which this account cannot.
After=network.target systemd-modules-load.service nvidia-persistenced.service

[Service]
Type=exec
User={account}
# Where nothing else has made the device files of NVIDIA's driver, for eight cards at most. It runs as root,
# because NoNewPrivileges keeps the driver's library from starting it; without the driver it is not there.
ExecStartPre=-+/usr/bin/nvidia-modprobe -u -c 255 -c 0 -c 1 -c 2 -c 3 -c 4 -c 5 -c 6 -c 7
ExecStart={command}
# It reads pool.toml again when that has changed; a reload says what was found there.
ExecReload=kill -HUP $MAINPID
Restart=always
RestartSec=1
# The ledger, 0700, and the folder of the socket, which everybody may enter.
StateDirectory=bitfusion-pool
StateDirectoryMode=0700
RuntimeDirectory=bitfusion-pool
RuntimeDirectoryMode=0755
# By this folder clients know that the machine has a pool, also while the service is away.
RuntimeDirectoryPreserve=yes
LimitNOFILE=65536
# It needs its own folders, its socket and the machine's NVIDIA devices, nothing else.
# ProtectProc stays off: /proc tells it whether a client comes from a container.
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def unit_text(python: str, settings: str | None) -> str:
    """The unit file: which Python it starts (absolute path), with which settings file (None: the default)."""
    command = [python, "-I", "-m", "bitfusion_pool.admin.cli", "serve"]
    if settings:
        command += ["--settings", settings]
    words = (shlex.quote(word).replace("%", "%%").replace("$", "$$") for word in command)
    return _UNIT.format(account=ACCOUNT, command=" ".join(words))
