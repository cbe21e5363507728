"""Jupyter's side of the proxy: sockets that clients connect to, what is published on iopub, Jupyter's log."""
