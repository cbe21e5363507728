"""One token of the pool's service for each namespace that is served, kept in a Secret there."""
