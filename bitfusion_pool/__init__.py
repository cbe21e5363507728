"""The embedded GPU pool: a stand-in for the `bitfusion` command and for the servers behind it.

It needs only the standard library and `bitfusion_client`. What `bitfusion run` imports delays the start of
its program, so its modules import as little as they can.

- ``client``: the `bitfusion` command
- ``admin``: the `bitfusion-pool` command
- ``ledger``: leases, queue, lease locks, wake-ups
- ``inventory``: servers, GPUs, pool.toml, placement, emulation settings
- ``messages``: what the command and a service say to each other
- ``text_table``: tables for a terminal; ``json_text``: JSON for commands that must start fast
- ``own_files``: files that no other user can put in our way
"""
