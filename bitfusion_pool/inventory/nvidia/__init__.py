"""This machine's NVIDIA GPUs: what the driver tells of them, and who uses them besides the pool."""
