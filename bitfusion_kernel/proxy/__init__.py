"""The process that answers Jupyter: its sockets and loop, the order of requests, the link to the kernel.

Here belongs whatever sends or receives on a socket of Jupyter's, and what decides about a request. What it
says without a kernel is `offline`, what it knows of GPUs is `gpu`.
"""
