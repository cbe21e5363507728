"""The embedded GPU pool: a stand-in for the `bitfusion` command and for the servers behind it.

Standard library only (and `bitfusion_client`). Modules on the path of `bitfusion run` import little: all of
it is paid before the program starts.
"""
