"""What Jupyter hands to a kernel: messages on the wire, the connection file, command-line arguments.

Here belongs what Jupyter defines; nothing here knows GPUs.
"""
