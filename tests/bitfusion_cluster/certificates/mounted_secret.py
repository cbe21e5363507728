"""A Secret in a pod's file system."""

from __future__ import annotations

import os
from pathlib import Path

from bitfusion_cluster.certificates.authority import Pair


class MountedSecret:
    """A folder as the kubelet writes it: files are links through ``..data``, which it exchanges."""

    def __init__(self, folder: Path, content: Pair) -> None:
        self.folder = folder
        self.count = 0
        folder.mkdir()
        self.exchange(content)
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(Path("..data") / name)

    def exchange(self, content: Pair) -> None:
        self.count += 1
        fresh = self.folder / f"..{self.count}"
        fresh.mkdir()
        (fresh / "tls.crt").write_bytes(content.certificate)
        (fresh / "tls.key").write_bytes(content.key)
        link = self.folder / "..data_tmp"
        link.symlink_to(fresh.name)
        os.replace(link, self.folder / "..data")
