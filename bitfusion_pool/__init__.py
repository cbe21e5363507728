"""The embedded GPU pool: a stand-in for the `bitfusion` command and for the servers behind it.

It needs only the standard library and `bitfusion_client`. What `bitfusion run` imports delays the start of
its program, so its modules import as little as they can.

- ``client``: the `bitfusion` command
- ``admin``: the `bitfusion-pool` command
- ``ledger``: leases, queue, lease locks, wake-ups
- ``inventory``: servers, GPUs, pool.toml, placement, emulation settings
- ``text_table``: tables for a terminal; ``own_files``: files that no other user can put in our way
"""
