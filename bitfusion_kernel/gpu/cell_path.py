"""The PATH of cells: the notebook's own Python first, the commands of the pool last."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bitfusion_client.command.find_client import embedded_folder

if TYPE_CHECKING:
    from bitfusion_client.command.find_client import FoundClient


def cell_path(path: str, kernel: str, client: FoundClient) -> str:
    """The `path` of the proxy's own environment, with the folders that cells need; for each start.

    The order of what is there stays as it is: an activated environment has put itself first. Where the
    kernel's is not activated, its folder leads, so that `python3` is the notebook's, also in
    ``!bitfusion run -- python3 …``.

    Args:
        path: Not empty.
        kernel: The first word of the kernel's command line.
        client: What the kernel uses; behind the stand-in stands `bitfusion-pool`.
    """
    folders = path.split(os.pathsep)
    known = {os.path.realpath(folder) for folder in folders if folder}
    own = os.path.dirname(kernel)
    if os.path.isabs(kernel) and os.path.realpath(own) not in known:
        folders.insert(0, own)
    wanted = [os.path.dirname(client.path), *((embedded_folder(),) if client.is_embedded_pool else ())]
    for folder in wanted:
        if folder not in folders:
            folders.append(folder)
    return os.pathsep.join(folders)
