"""The `bitfusion` command: what users, kernels and scripts call to take GPUs and to run programs with them.

``commands`` and ``health`` are the subcommands, ``pools`` where they get GPUs, ``connections`` how they speak
to a service, ``program`` what they run, and ``keeper`` what keeps a lease over the network meanwhile.
"""
