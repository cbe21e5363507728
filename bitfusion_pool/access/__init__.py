"""Who may use a pool over the network: tokens, the files that a client gets, TLS."""
