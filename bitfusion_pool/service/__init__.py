"""The service: one process that owns a pool and serves users of this machine and clients on others.

One thread runs everything, in turns of a few milliseconds.
"""
