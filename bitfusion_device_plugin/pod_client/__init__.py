"""What runs inside a pod that asks for GPUs: what puts the client there, and what starts it.

`install` and `starter` are scripts for busybox, because an image of a user's may have no shell of its own.
"""
