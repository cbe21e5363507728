"""This machine's NVIDIA GPUs: what the driver tells of them, and who uses them besides the pool.

- ``cards``: cards, the processes on them, and one reading of all, as plain values
- ``nvml_reader``: one reading, through NVML
- ``nvml_problems``: why there is none, with what to do
- ``reading_process``: NVML in a process of its own, with a time limit
- ``device_use``: what is used of the pool's devices, and by whom
- ``nvidia_configuration``: the cards as a pool.toml
- ``memory_limits``: the variables that keep a program's frameworks to their share of memory
"""
