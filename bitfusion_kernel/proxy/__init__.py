"""The process that answers Jupyter: its sockets and loop, the order of requests, the link to the kernel."""
