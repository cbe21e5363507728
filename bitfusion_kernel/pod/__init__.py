"""A kernel in a pod with an injected client: the pod's budget, and which notebook holds what of it."""
