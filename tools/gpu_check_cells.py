"""The cells of `gpu_check`, in a Bitfusion kernel as any client of Jupyter starts it.

    python3 tools/gpu_check_cells.py torch

Run by `gpu_check` with the Python that computes, once the kernelspec is installed. `torch` or `tensorflow` is
what it has. What the cells said is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

LIMIT_S = 120.0
DEVICES = "import os; print(os.environ['BITFUSION_POOL_DEVICES'])"
SUM = {
    "torch": "import torch; print(int(torch.ones(1 << 20, device='cuda').sum()))",
    "tensorflow": "import tensorflow as tf; print(int(tf.reduce_sum(tf.ones(1 << 20))))",
}
# one more MiB than the share, in one piece
GREED = {
    "torch": "torch.zeros((share + 1) << 20, dtype=torch.uint8, device='cuda')",
    "tensorflow": "tf.zeros(((share + 1) << 20,), tf.uint8) + 1",
}
SHARE = "import json; share = json.loads(os.environ['BITFUSION_POOL_DEVICES'])[0]['memory_mib']"


def main(framework: str) -> None:
    """Run them, one after another."""
    manager, client = start_new_kernel(kernel_name="bitfusion")
    try:
        begun = time.monotonic()
        found: dict[str, Any] = {"computed": said(client, SUM[framework])}
        found["seconds"] = time.monotonic() - begun
        held = said(client, DEVICES)
        found["refused"] = said(client, f"{SHARE}\n{GREED[framework]}")
        manager.restart_kernel()
        client.wait_for_ready(timeout=LIMIT_S)
        found["kept"] = held == said(client, DEVICES) and bool(held)
        said(client, "mine = 1")
        found["words"] = said(client, "%bitfusion release -y")
        found["status"] = said(client, "%bitfusion").partition("\n")[0]
        found["again"] = said(client, f"print('mine' in globals())\n{SUM[framework]}")
        print(json.dumps(found))
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def said(client: BlockingKernelClient, code: str) -> str:
    """What a cell has printed or shown as text and not cleared, or the last line of its error."""
    pieces: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream" and content["name"] == "stdout":
            pieces.append(content["text"])
        elif message["msg_type"] == "error":
            pieces.append(" ".join(content["evalue"].split()))
        elif message["msg_type"] in ("display_data", "execute_result"):
            pieces.append(content["data"].get("text/plain", ""))
        elif message["msg_type"] == "clear_output":  # of the notice that the cell has waited for its GPU
            pieces.clear()

    client.execute_interactive(code, output_hook=hear, timeout=LIMIT_S)
    return "".join(pieces).strip()


if __name__ == "__main__":
    main(sys.argv[1])
