"""The file in which a kernel says what it does, as the command that it runs under looks at it.

Whoever waits for GPUs or keeps a lease looks in a loop that it has anyway, once a second at most, and passes
on what is new, every other second at most: however often the file changes, ledger and service do not notice.
A file that is missing, too long, no JSON, a link, a pipe or another user's says nothing: it is not known then
what the kernel does. Imported only where `FILE_VARIABLE` names a file.
"""

from __future__ import annotations

import os
import time

from bitfusion_client.kernel_state.activity import MOST_BYTES, UNKNOWN, KernelActivity, activity_from_json
from bitfusion_client.kernel_state.activity_file import ActivityFile
from bitfusion_pool.json_text import loads
from bitfusion_pool.messages.from_client import Report
from bitfusion_pool.own_files import open_own

TELL_S = 1.8
"""A little less than two of the beats in which it is looked at, which are never exact."""


class KernelStateFile(ActivityFile):
    """Its path, which must be absolute, and what the pool was told of it last."""

    def __init__(self, path: str) -> None:
        super().__init__(path, read_activity, TELL_S)


def read_activity(path: str) -> KernelActivity:
    """What the file says; UNKNOWN where it says nothing. Never raises, never waits."""
    if not path.startswith("/"):
        return UNKNOWN
    try:
        fd = open_own(path, os.O_RDONLY)
        try:
            data = os.read(fd, MOST_BYTES + 1)
        finally:
            os.close(fd)
        return UNKNOWN if len(data) > MOST_BYTES else activity_from_json(loads(data.decode()), time.time())
    except (OSError, ValueError, RecursionError):  # of the path as well: it may have a NUL
        return UNKNOWN


def report(entry_id: str, secret: str, activity: KernelActivity) -> Report:
    """The message that says so to a service."""
    now = time.time()
    idle_s = -1.0 if activity.idle_since is None else now - activity.idle_since
    return Report(entry_id, secret, activity.state, now - activity.since, idle_s, activity.notebook)
