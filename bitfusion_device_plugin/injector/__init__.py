"""The pod injector: the webhook that makes a pod which asks for GPUs a client of the pool."""
