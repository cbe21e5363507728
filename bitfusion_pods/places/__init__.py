"""What a GPU pod waits for, why it cannot start, and why it has died: in one line for the cell. Pure.

Everything here reads raw answers of the Kubernetes API, of any shape and length, and does nothing itself.
"""
