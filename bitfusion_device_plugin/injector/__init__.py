"""The pod injector: from a pod that asks for GPUs to the pod with a client in it, as a pure function."""
