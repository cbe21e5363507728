"""A request for GPUs: how many, what share or memory of each, and the ways in which people write these."""
