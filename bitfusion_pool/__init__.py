"""The embedded GPU pool: a stand-in for the `bitfusion` command and for the servers behind it.

It needs only the standard library and `bitfusion_client`. What `bitfusion run` imports delays the start of
its program, so its modules import as little as they can.
"""
