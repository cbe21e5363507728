"""One engine behind the `bitfusion` command, the embedded pool; another engine is a package of its own.

It needs only the standard library and `bitfusion_client`. What `bitfusion run` imports delays the start of
its program, so its modules import as little as they can.
"""
