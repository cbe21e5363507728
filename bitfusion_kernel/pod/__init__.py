"""A kernel in a pod with an injected client: the pod's budget, and who of its notebooks holds how much of it."""
