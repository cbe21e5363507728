"""The service: one process that owns a pool and serves users of this machine and clients on others.

``connections`` is who connects, ``sessions`` what a client says and is told, ``leases`` what is done for it
with the ledger, ``devices`` what is known of real GPUs, and ``monitoring`` what Prometheus reads. ``process``
starts and ends all of it.

One thread runs everything, in turns of a few milliseconds.
"""
