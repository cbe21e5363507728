"""Benchmarks of the kernel and the pool, side by side with plain ipykernel in one run.

``python -m benchmarks`` prints one table.
"""
