"""From a pod that asks for GPUs to the pod with a client in it: pure functions, no server, no clock."""
