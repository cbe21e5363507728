"""Where a command gets its GPUs: the user's own pool, a service of this machine, or one on the network."""
