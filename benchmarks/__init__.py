"""Benchmarks of the kernel and the pool, side by side with plain ipykernel in one run.

``python -m benchmarks`` prints one table; each topic is a module of its own, and what they share is in
``measure`` (samples, goals, rows), ``effort`` (how much is measured), ``table`` (how rows are printed),
``workplace`` (throw-away kernelspecs and the kernels started from them), ``kernel_client`` (a raw client) and
``processes`` (what ``/proc`` tells).
"""
