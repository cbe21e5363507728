"""What the pool consists of: servers and GPUs, pool.toml, placement of requests, emulation settings."""
