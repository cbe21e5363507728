"""The process that keeps a lease over the network while its program runs."""
