"""What the pool consists of and may hand out: servers, GPUs, pool.toml, placement, emulation settings.

Pure but for reading pool.toml; nothing here knows who holds what.
"""
