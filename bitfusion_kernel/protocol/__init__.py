"""What Jupyter hands to a kernel: messages on the wire, the connection file, command-line arguments.

Here belongs what Jupyter defines; nothing here knows GPUs. `wire`: signed messages as frames ·
`connection_file`: ports, key, signature scheme · `arguments`: which options are the proxy's
"""
