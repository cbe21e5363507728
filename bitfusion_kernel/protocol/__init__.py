"""What Jupyter hands to a kernel: signed messages, the connection file, command-line arguments."""
