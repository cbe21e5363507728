"""What the real KubeSpawner makes of a list of profiles: pods, and the pages that a user sees.

A program of its own, since JupyterHub looks for a cluster when it makes a spawner, and imports for a second.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch

from tests.support.machine import scaled

USER = "ada"
Choice = dict[str, str]
"""What the hub keeps of a user's choice: ``{"profile": "gpu-50", "gpus": "2"}``."""

NO_CLUSTER = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "none",
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {}}],
}
"""A kubeconfig: the spawner reads one, and calls nobody for a manifest."""


def spawned(
    configuration: Path, choices: Sequence[Choice], folder: Path, events: Sequence[object] = ()
) -> dict[str, Any]:
    """``pods``, ``page`` and ``told`` of a hub.

    One pod for each choice, or the words of its refusal; the page on which users choose; and what the page of
    a start tells of raw Events of the namespace. `configuration` is a file like ``jupyterhub_config.py``.
    """
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(NO_CLUSTER))
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, str(configuration)],
        input=json.dumps({"choices": list(choices), "events": list(events)}),
        env={
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(folder),
            "PYTHONPATH": str(Path(__file__).parents[3]),
        },
        capture_output=True,
        text=True,
        timeout=scaled(50),
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


async def _answer(configuration: str, choices: list[Choice], events: list[Any]) -> dict[str, Any]:
    from jinja2 import Template
    from jupyterhub.objects import Hub, Server
    from jupyterhub.orm import Spawner as SpawnerRow
    from kubernetes_asyncio.client import ApiClient
    from kubespawner import KubeSpawner
    from traitlets.config.loader import PyFileConfigLoader

    class User:
        name, escaped_name, id, url, groups, server = USER, USER, 1, f"/user/{USER}/", (), Server()

    def spawner(choice: Choice) -> Any:
        config = PyFileConfigLoader(configuration).load_config()
        made = KubeSpawner(
            config=config, _mock=True, hub=Hub(), user=User(), orm_spawner=SpawnerRow(name=""), api_token="t"
        )
        made.user_options = choice
        return made

    async def pod(client: Any, choice: Choice) -> Any:
        made = spawner(choice)
        try:
            await made.load_user_options()
        except ValueError as error:
            return str(error)
        return client.sanitize_for_serialization(await made.get_pod_manifest())

    async with ApiClient() as client:
        pods = [await pod(client, choice) for choice in choices]
    one = spawner({})
    one._start_watching_events = AsyncMock()
    one._start_future = asyncio.get_running_loop().create_future()
    one._start_future.set_result(None)
    with patch.object(KubeSpawner, "event_reflector", SimpleNamespace(events=events)):
        told = [message["message"] async for message in one.progress()]
    # JupyterHub renders what the spawner has rendered
    page = Template(one._render_options_form(one.profile_list)).render()
    return {"pods": pods, "page": page, "told": told}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_answer(sys.argv[1], **json.load(sys.stdin)))))
