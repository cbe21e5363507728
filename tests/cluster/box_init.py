"""The first process of a box (`tests.cluster.box`): hides what is the machine's, then reaps orphans for ever.

Run as ``unshare --mount --net --pid --fork … python box_init.py FOLDER``. When it dies, the kernel ends every
process of the box, and with the last one the box's mounts and network devices. Standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

# Both write here, whatever they are told: the kubelet's device plugins and links to logs, what CNI caches,
# the sockets of containerd's shims, names of network namespaces.
_HIDDEN = ("/run", "/var/lib", "/var/log")
# The kubelet sets these for the whole machine; in a box it sets plain files.
_KERNEL_SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, stdin=subprocess.DEVNULL)


def main() -> None:
    folder = sys.argv[1]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    mount("-t", "proc", "proc", "/proc")
    for path in _HIDDEN:
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", path)
    os.makedirs(f"{folder}/kernel")
    for name in _KERNEL_SETTINGS:
        setting = f"/proc/sys/{name}"
        if os.path.exists(setting):
            own = f"{folder}/kernel/{name.replace('/', '.')}"
            with open(setting) as source, open(own, "w") as copy:
                copy.write(source.read())
            mount("--bind", own, setting)
    # Pods see what the kubelet mounts after they were made: token volumes. All of it stays in the box.
    mount("--make-rshared", "/")
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("1")  # of the box's own network
    with open(f"{folder}/made", "w"):
        pass
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    main()
