"""One token of the pool's service for each namespace that opted in, kept in a Secret there."""
