"""Pods that ask for Bitfusion GPUs, in Kubernetes: the client put into them, and who they are at the pool.

Nothing imports this package; of ``notebook_controller_patch`` it uses what every process of ours in a cluster
is made of: HTTP server, certificates, metrics, the Kubernetes API.
"""
