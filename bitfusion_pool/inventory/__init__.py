"""What the pool consists of and may hand out: servers, GPUs, pool.toml, placement, emulation settings.

Pure but for reading pool.toml; nothing here knows who holds what.

- ``servers``: a server and its GPUs
- ``configuration``: pool.toml
- ``emulation``: the settings for what nobody knows about the real client
- ``device_sources``: simulated and real GPUs, and what a program needs to use them
- ``filters``: which GPUs a request accepts
- ``placement``: which of them it gets
- ``refusals``: why it gets none
"""
